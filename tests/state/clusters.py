"""Small clusters, as JSON and as columns, for the tests of the state."""

from __future__ import annotations

from typing import Any

import numpy

from fastplan.columns.ids import keys_of
from fastplan.state import StateStore
from fastplan.state.alloc_records import NO_ROW
from fastplan.state.resource_shapes import shape_of
from fastplan.state.statuses import CLIENT_PENDING
from fastplan.structs import AllocatedResources, Allocation

ADDRESS = "10.0.0.1"


def uuid(number: int) -> str:
    """Return a canonical UUID; ids ascend with numbers."""
    return f"{number:08x}-0000-4000-8000-{number:012x}"


def node_api(node_id: str, *, cpu_mhz: int = 4000, reserved_ports: str = "", status: str = "ready", **more: Any) -> dict[str, Any]:
    """Return a node with 4 cores, 8,192 MiB, 10,000 MiB of disk, one address and two GPUs."""
    return {
        "ID": node_id,
        "Name": f"name of {node_id}",
        "Status": status,
        "NodeResources": {
            "Processors": {"Topology": {"OverrideTotalCompute": cpu_mhz, "Cores": [{"ID": core, "BaseSpeed": 1000} for core in range(4)]}},
            "Memory": {"MemoryMB": 8192},
            "Disk": {"DiskMB": 10_000},
            "NodeNetworks": [{"Addresses": [{"Alias": "default", "Address": ADDRESS}]}],
            "Devices": [{"Vendor": "nvidia", "Type": "gpu", "Name": "t4", "Instances": [{"ID": f"gpu-{i}", "Healthy": True} for i in range(2)]}],
        },
        "ReservedResources": {"Networks": {"ReservedHostPorts": reserved_ports}},
        **more,
    }


def resources_api(*, cpu_mhz: int = 100, memory_mib: int = 64, disk_mib: int = 10, ports: tuple[int, ...] = (), gpus: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the `AllocatedResources` of one task."""
    devices = [{"Vendor": "nvidia", "Type": "gpu", "Name": "t4", "DeviceIDs": list(gpus)}] if gpus else []
    return {
        "Tasks": {"web": {"Cpu": {"CpuShares": cpu_mhz}, "Memory": {"MemoryMB": memory_mib}, "Devices": devices}},
        "TaskLifecycles": {},
        "Shared": {"DiskMB": disk_mib, "Ports": [{"Label": f"p{i}", "Value": port, "HostIP": ADDRESS} for i, port in enumerate(ports)]},
    }


def alloc_api(alloc_id: str, node_id: str, *, job_id: str = "job", group: str = "web", index: int = 0, eval_id: str = "", **more: Any) -> dict[str, Any]:
    """Return an allocation that is told to run and pending."""
    return {
        "ID": alloc_id,
        "Namespace": "default",
        "JobID": job_id,
        "TaskGroup": group,
        "Name": f"{job_id}.{group}[{index}]",
        "NodeID": node_id,
        "EvalID": eval_id,
        "DesiredStatus": "run",
        "ClientStatus": "pending",
        "AllocatedResources": resources_api(),
        **more,
    }


def job_api(job_id: str, *, version: int = 0, **more: Any) -> dict[str, Any]:
    """Return a service job with one group, `web`."""
    return {"ID": job_id, "Namespace": "default", "Type": "service", "Version": version, "TaskGroups": [{"Name": "web"}], **more}


def numbers(*values: int) -> Any:
    """Return a uint32 array."""
    return numpy.array(values, numpy.uint32)


def place(
    store: StateStore,
    index: int,
    alloc_ids: list[str],
    node_ids: list[str],
    *,
    job_id: str = "job",
    eval_id: str = "",
    resources: list[dict[str, Any]] | None = None,
    extras: dict[int, Allocation] | None = None,
) -> int:
    """Insert pending allocations of the group `web` of a job from columns and return the first row."""
    shapes = [shape_of(AllocatedResources.from_api(each)) for each in resources or [resources_api()] * len(alloc_ids)]
    rows = [store.node_row(node_id) for node_id in node_ids]
    return store.insert_rows(
        index,
        index * 1000,
        keys_of(alloc_ids),
        numbers(*(NO_ROW if row is None else row for row in rows)),
        numbers(store.jobs_view.groups.intern("default", job_id, "web")),
        numbers(NO_ROW if (version := store.jobs_view.row_of("default", job_id)) is None else version),
        numbers(store.allocs_view.intern_eval(eval_id)),
        numbers(*(store.intern_shape(shape) for shape, _ in shapes)),
        numpy.arange(len(alloc_ids), dtype=numpy.int32),
        numpy.array([CLIENT_PENDING], numpy.uint8),
        numpy.cumsum([0, *(len(claims) for _, claims in shapes)], dtype=numpy.uint32),
        numpy.concatenate([claims for _, claims in shapes]),
        node_ids={position: node_ids[position] for position, row in enumerate(rows) if row is None},
        extras=extras,
    )
