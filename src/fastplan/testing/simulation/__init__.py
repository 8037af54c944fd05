"""A whole server under virtual time, from one seed: workers, broker, applier, log, nodes, clients, users, and what goes wrong.

`python -m fastplan.testing.simulation --seeds 2000` runs many seeds (docs/guide/simulation.md).
"""

from fastplan.testing.simulation.simulation import Report, Simulation, SimulationSettings, Violation, simulate

__all__ = ["Report", "Simulation", "SimulationSettings", "Violation", "simulate"]
