"""Small nodes, jobs and allocations, named by what they are. Every builder takes further fields in the shape of the API."""

from __future__ import annotations

from typing import Any

from fastplan.structs import Allocation, Job, Node

DEFAULT_ADDRESS = "10.0.0.1"


def ready_node(
    node_id: str, *, cpu_mhz: int = 4000, memory_mib: int = 8192, disk_mib: int = 100_000, datacenter: str = "dc1", address: str = DEFAULT_ADDRESS, **more: Any
) -> Node:
    """Return a ready, eligible Linux node of the pool `default` with the drivers exec and docker, and one address."""
    healthy = {"Detected": True, "Healthy": True}
    return Node.from_api(
        {
            "ID": node_id,
            "Name": f"name-of-{node_id}",
            "Datacenter": datacenter,
            "NodePool": "default",
            "Status": "ready",
            "SchedulingEligibility": "eligible",
            "Attributes": {"kernel.name": "linux", "arch": "amd64"},
            "Drivers": {"exec": healthy, "docker": healthy},
            "NodeResources": {
                "Processors": {"Topology": {"OverrideTotalCompute": cpu_mhz, "Cores": [{"ID": core, "BaseSpeed": cpu_mhz // 4} for core in range(4)]}},
                "Memory": {"MemoryMB": memory_mib},
                "Disk": {"DiskMB": disk_mib},
                "NodeNetworks": [{"Mode": "host", "Device": "eth0", "Addresses": [{"Family": "ipv4", "Alias": "default", "Address": address}]}],
                "MinDynamicPort": 20000,
                "MaxDynamicPort": 32000,
            },
            **more,
        }
    )


def group_api(name: str = "web", *, count: int = 1, cpu_mhz: int = 500, memory_mib: int = 256, disk_mib: int = 300, **more: Any) -> dict[str, Any]:
    """Return a group of one exec task, in the shape of the API."""
    task = {"Name": name, "Driver": "exec", "Config": {"command": "/bin/true"}, "Resources": {"CPU": cpu_mhz, "MemoryMB": memory_mib}}
    return {"Name": name, "Count": count, "EphemeralDisk": {"SizeMB": disk_mib}, "Tasks": [task], **more}


def _job(job_type: str, job_id: str, groups: tuple[dict[str, Any], ...], more: dict[str, Any]) -> Job:
    return Job.from_api(
        {
            "ID": job_id,
            "Name": job_id,
            "Namespace": "default",
            "Type": job_type,
            "Priority": 50,
            "Datacenters": ["*"],
            "NodePool": "default",
            "TaskGroups": list(groups or (group_api(),)),
            **more,
        }
    )


def service_job(job_id: str = "web", *groups: dict[str, Any], **more: Any) -> Job:
    """Return a service job; one group `web` of one unless *groups* are given."""
    return _job("service", job_id, groups, more)


def batch_job(job_id: str = "crunch", *groups: dict[str, Any], **more: Any) -> Job:
    """Return a batch job."""
    return _job("batch", job_id, groups, more)


def system_job(job_id: str = "agent", *groups: dict[str, Any], **more: Any) -> Job:
    """Return a system job."""
    return _job("system", job_id, groups, more)


def sysbatch_job(job_id: str = "sweep", *groups: dict[str, Any], **more: Any) -> Job:
    """Return a sysbatch job."""
    return _job("sysbatch", job_id, groups, more)


def running_alloc(
    alloc_id: str, job: Job, node_id: str, *, group: str = "", index: int = 0, cpu_mhz: int = 500, memory_mib: int = 256, **more: Any
) -> Allocation:
    """Return a running allocation of *job* on a node; of its first group unless another one is named."""
    group = group or job.task_groups[0].name
    name = job.name if job.type in ("system", "sysbatch") else job.id
    alloc = Allocation.from_api(
        {
            "ID": alloc_id,
            "Namespace": job.namespace,
            "JobID": job.id,
            "TaskGroup": group,
            "Name": f"{name}.{group}[{index}]",
            "NodeID": node_id,
            "DesiredStatus": "run",
            "ClientStatus": "running",
            "AllocatedResources": {
                "Tasks": {group: {"Cpu": {"CpuShares": cpu_mhz}, "Memory": {"MemoryMB": memory_mib}}},
                "Shared": {"DiskMB": 300},
            },
            **more,
        }
    )
    alloc.job = job
    return alloc
