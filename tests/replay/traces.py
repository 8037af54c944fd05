"""Small traces in the layout of openb, and the workloads they make."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from pathlib import Path

from fastplan.replay.openb import read_openb
from fastplan.replay.shapes import Workload

NODE_HEADER = "sn,cpu_milli,memory_mib,gpu,model"
POD_HEADER = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"


def node_line(name: str, cpu_milli: int = 8000, memory_mib: int = 32768, gpus: int = 0, model: str = "") -> str:
    return f"{name},{cpu_milli},{memory_mib},{gpus},{model}"


def pod_line(
    name: str, start_s: float | str, end_s: float | str, cpu_milli: int = 1000, memory_mib: int = 1024, gpus: int = 0, spec: str = "", qos: str = "LS"
) -> str:
    return f"{name},{cpu_milli},{memory_mib},{gpus},{1000 * bool(gpus)},{spec},{qos},Running,{start_s},{end_s},{start_s}"


def write_trace(folder: Path, nodes: Iterable[str], pods: Iterable[str]) -> tuple[Path, Path]:
    """Write both files and return their paths."""
    paths = folder / "nodes.csv", folder / "pods.csv"
    for path, header, lines in zip(paths, (NODE_HEADER, POD_HEADER), (nodes, pods), strict=True):
        path.write_text("\n".join([header, *lines]) + "\n")
    return paths


def workload(folder: Path, nodes: Iterable[str], pods: Iterable[str], seed: int = 0) -> Workload:
    """Return what a trace of these lines plays."""
    return read_openb(*write_trace(folder, nodes, pods), seed=seed)


def mixed_trace(count: int = 80, seed: int = 1) -> tuple[Sequence[str], Sequence[str]]:
    """Return nodes and pods that crowd each other: some wait, some are given up, two never fit."""
    rng = random.Random(seed)
    nodes = [node_line(f"cpu-{number}", 8000, 16384) for number in range(3)]
    nodes += [node_line(f"small-{number}", 16000, 65536, 2, "T4") for number in range(3)]
    nodes += [node_line(f"large-{number}", 32000, 131072, 4, "V100") for number in range(2)]
    pods = []
    for number in range(count):
        start_s = rng.randrange(25 * count // 3)
        gpus = rng.choice((0, 0, 1, 1, 2, 4))
        spec = rng.choice(("", "", "T4", "V100", "T4|V100")) if gpus and gpus < 3 else ""
        pods.append(
            pod_line(
                f"pod-{number:03d}",
                start_s,
                start_s + rng.randrange(1, 400),
                rng.choice((500, 2000, 4000)),
                rng.choice((512, 4096, 8192)),
                gpus,
                spec,
                rng.choice(("LS", "BE")),
            )
        )
    pods.append(pod_line("too-large", 5, 900, cpu_milli=64000))
    pods.append(pod_line("no-such-gpu", 6, 900, gpus=1, spec="H100"))
    return nodes, pods
