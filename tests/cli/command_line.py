"""Run the command line inside the test process, and what its tests feed it."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from fastplan.cli import main


@dataclass(frozen=True)
class Outcome:
    """Exit code and output of one command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class CommandLine:
    """Calls `fastplan` with arguments, and text or bytes on stdin."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *arguments: object, stdin: str | bytes = b"") -> Outcome:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main([str(argument) for argument in arguments])
        output = self._capsys.readouterr()
        assert isinstance(stop.value.code, int)
        return Outcome(stop.value.code, output.out, output.err)


def node(node_id: str = "n1", **changes: Any) -> dict[str, Any]:
    """A ready node of 4,000 MHz, 8,192 MiB, 10,000 MiB disk and one address."""
    return {
        "ID": node_id,
        "Name": f"name-{node_id}",
        "Status": "ready",
        "SchedulingEligibility": "eligible",
        "Datacenter": "dc1",
        "NodePool": "default",
        "NodeResources": {
            "Cpu": {"CpuShares": 4000, "TotalCpuCores": 4, "ReservableCpuCores": [0, 1, 2, 3]},
            "Memory": {"MemoryMB": 8192},
            "Disk": {"DiskMB": 10_000},
            "NodeNetworks": [{"Mode": "host", "Device": "eth0", "Addresses": [{"Family": "ipv4", "Alias": "default", "Address": "10.0.0.1"}]}],
            "MinDynamicPort": 20000,
            "MaxDynamicPort": 32000,
        },
        **changes,
    }


def alloc(
    alloc_id: str, node_id: str = "n1", *, cpu_mhz: float | str = 1000, memory_mib: int = 1024, port: int | None = None, **changes: Any
) -> dict[str, Any]:
    """A running allocation of one task; *port* is a static port of the group on 10.0.0.1."""
    ports = [] if port is None else [{"Label": "http", "Value": port, "To": 0, "HostIP": "10.0.0.1"}]
    return {
        "ID": alloc_id,
        "NodeID": node_id,
        "Namespace": "default",
        "JobID": "job",
        "TaskGroup": "web",
        "Name": f"job.web[{alloc_id[-1] if alloc_id[-1].isdigit() else 0}]",
        "DesiredStatus": "run",
        "ClientStatus": "running",
        "AllocatedResources": {
            "Tasks": {"server": {"Cpu": {"CpuShares": cpu_mhz}, "Memory": {"MemoryMB": memory_mib}}},
            "Shared": {"DiskMB": 100, "Ports": ports},
        },
        **changes,
    }
