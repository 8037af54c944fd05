"""Tools to test what is built on fastplan: virtual time, a log in memory that fails on purpose, and a disk that remembers what was flushed.

`fastplan.testing.disk` needs the package `apsw` and is imported by its own name.
"""

from fastplan.testing.clock import VirtualClock, VirtualLoop, run_virtual
from fastplan.testing.harness import SchedulerHarness
from fastplan.testing.log import SimulatedLog

__all__ = ["SchedulerHarness", "SimulatedLog", "VirtualClock", "VirtualLoop", "run_virtual"]
