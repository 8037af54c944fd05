"""Replays: recorded or generated workloads, played through the whole path and checked at the end.

`replay(workload, settings)` plays one. Workloads come from `read_openb`, from `fastplan.replay.c2m` and `fastplan.replay.gpu_fleet`, or are made by
hand of `Workload`.
"""

from fastplan.replay.openb import read_openb
from fastplan.replay.report import Figures
from fastplan.replay.session import ReplaySettings, replay
from fastplan.replay.shapes import Workload

__all__ = ["Figures", "ReplaySettings", "Workload", "read_openb", "replay"]
