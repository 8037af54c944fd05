"""Clusters in the words of a story: nodes, jobs and their versions, allocations, deployments."""

from __future__ import annotations

import copy
from typing import Any, Final

from fastplan.structs.times import time_text
from fastplan.testing.builders import group_api, ready_node, running_alloc, service_job
from tests.scenarios.runner import Arguments, numbers, seconds

NOW_NS: Final = 1_800_000_000 * 10**9
"""The time of every story: nothing moves the clock of a scheduler."""

EVAL_ID: Final = "5e2f7d63-0c4f-4c43-9a5d-1f3f3d2b9e11"

_NODE_STATES: Final[dict[str, dict[str, Any]]] = {
    "ready": {"Status": "ready", "SchedulingEligibility": "eligible", "DrainStrategy": None},
    "down": {"Status": "down"},
    "disconnected": {"Status": "disconnected"},
    "closed": {"SchedulingEligibility": "ineligible"},
    "draining": {"SchedulingEligibility": "ineligible", "DrainStrategy": {"Deadline": 0}},
}
_TRANSITIONS: Final = {"migrate": "Migrate", "reschedule": "Reschedule", "force": "ForceReschedule", "no_placement": "MigrateDisablePlacement"}


def nanoseconds(text: str) -> int:
    """Return `5m` in nanoseconds."""
    return round(seconds(text) * 1e9)


def ago(text: str) -> str:
    """Return the instant that lies so long before the time of the story."""
    return time_text(NOW_NS - nanoseconds(text))


def names(words: list[str]) -> list[str]:
    """Return `a n1..n3` as a, n1, n2, n3."""
    found = []
    for word in words:
        first, dots, last = word.partition("..")
        prefix = first.rstrip("0123456789")
        found += [f"{prefix}{number}" for number in numbers(f"{first[len(prefix) :]}..{last[len(prefix) :]}")] if dots else [word]
    return found


class ClusterWords:
    """A cluster in the shape of a dump, and the commands that describe it. The job that was named last is *the* job."""

    def __init__(self) -> None:
        self.nodes: dict[str, dict[str, Any]] = {}
        self.versions: dict[str, list[dict[str, Any]]] = {}
        self.registered: set[str] = set()
        self.allocs: dict[str, dict[str, Any]] = {}
        self.deployments: dict[str, dict[str, Any]] = {}
        self.config: dict[str, Any] = {"SchedulerAlgorithm": "binpack", "PreemptionConfig": {}}
        self.job_id = ""
        self.job_type = "service"

    def dump(self) -> dict[str, Any]:
        """Return all that is described as a dump."""
        versions = [version for versions in self.versions.values() for version in versions]
        return copy.deepcopy(
            {
                "nodes": list(self.nodes.values()),
                "jobs": [versions[-1] for job_id, versions in self.versions.items() if job_id in self.registered],
                # Of several with one number the last one is known.
                "job_versions": [*{(each["ID"], each["Version"]): each for each in versions if each["ID"] in self.registered}.values()],
                "allocs": list(self.allocs.values()),
                "deployments": list(self.deployments.values()),
                "scheduler_config": self.config,
                "indexes": {"nodes": 1000, "jobs": 1000, "allocs": 1000, "deployments": 1000},
            }
        )

    def take(self, dump: dict[str, Any]) -> None:
        """Go on with the allocations and deployments of a state."""
        self.allocs = {alloc["ID"]: alloc for alloc in dump["allocs"]}
        self.deployments = {deployment["ID"]: deployment for deployment in dump["deployments"]}

    # --- commands ---------------------------------------------------------------------------------------------------

    def do_preempt(self, arguments: Arguments) -> None:
        """preempt: lower priorities give way to service and batch jobs."""
        self.config["PreemptionConfig"] = {"ServiceSchedulerEnabled": True, "BatchSchedulerEnabled": True}

    def do_nodes(self, arguments: Arguments) -> None:
        """nodes NAME… [cpu memory dc pool rack]"""
        amounts = {"cpu_mhz": arguments.number("cpu", 4000), "memory_mib": arguments.number("memory", 8192), "datacenter": arguments.text("dc", "dc1")}
        more = {"NodePool": arguments.text("pool", "default"), "Meta": {"rack": arguments.text("rack", "r1")}}
        for name in names(arguments.rest()):
            self.nodes[name] = ready_node(name, **amounts, **more).to_api()

    def do_node(self, arguments: Arguments) -> None:
        """node NAME… ready|down|disconnected|closed|draining|gone"""
        *words, state = arguments.rest()
        for name in names(words):
            if state == "gone":
                del self.nodes[name]
            else:
                self.nodes[name].update(_NODE_STATES[state])

    def do_job(self, arguments: Arguments) -> None:
        """job ID [service|batch|system|sysbatch] [options of job and group]: its first version, with one group, `web`."""
        self.job_id = job_id = arguments.word()
        self.job_type = arguments.word("service")
        index = {"CreateIndex": 100, "ModifyIndex": 200, "JobModifyIndex": 200, "Version": 0}
        job = service_job(job_id, group_api(), **index, Type=self.job_type).to_api()
        job["TaskGroups"] = [group_api()]
        _change_job(job, job["TaskGroups"][0], arguments)
        self.versions[job_id] = [job]
        self.registered.add(job_id)

    def do_group(self, arguments: Arguments) -> None:
        """group NAME [options]: another group of the job."""
        group = group_api(arguments.word())
        _change_job({}, group, arguments)
        self.versions[self.job_id][-1]["TaskGroups"].append(group)

    def do_version(self, arguments: Arguments) -> None:
        """version [kept] [stop] [without=GROUP] [group=GROUP] [options]: the next version of the job; `kept`: with the number of the one before."""
        versions = self.versions[self.job_id]
        job = copy.deepcopy(versions[-1])
        job["Version"] = versions[-1]["Version"] + (not arguments.flag("kept"))
        job["ModifyIndex"] = job["JobModifyIndex"] = job["JobModifyIndex"] + 100
        job["Stop"] = arguments.flag("stop")
        without, changed = arguments.text("without"), arguments.text("group")
        job["TaskGroups"] = [group for group in job["TaskGroups"] if group["Name"] != without]
        group = next((group for group in job["TaskGroups"] if group["Name"] == changed), job["TaskGroups"][0])
        _change_job(job, group, arguments)
        versions.append(job)

    def do_purge(self, arguments: Arguments) -> None:
        """purge: nobody knows the job any more."""
        self.registered.remove(self.job_id)

    def do_allocs(self, arguments: Arguments) -> None:
        """allocs NAME… NODE [flags] [group index options]: allocations of the version that is the newest now; the number in a name is the index."""
        flags = [word for word in (*_TRANSITIONS, "complete") if arguments.flag(word)]
        *words, node_id = arguments.rest()
        group = arguments.text("group", self.versions[self.job_id][-1]["TaskGroups"][0]["Name"])
        index = arguments.text("index")
        options = arguments.options
        for name in names(words):
            number = int(index or name.lstrip("abcdefghijklmnopqrstuvwxyz") or 0)
            self.allocs[name] = self._alloc(name, group, number, node_id)
            _change_alloc(self.allocs[name], described := Arguments([*flags, *(f"{key}={value}" for key, value in options.items())]))
            described.check_used()
        arguments.options = {}

    def _alloc(self, name: str, group: str, index: int, node_id: str) -> dict[str, Any]:
        job = self.versions[self.job_id][-1]
        if job["Type"] in ("system", "sysbatch") and not job.get("Name"):
            job["Name"] = job["ID"]
        alloc = running_alloc(name, service_job(job["ID"], group_api(group)), node_id, group=group, index=index, cpu_mhz=100).to_api()
        place = 300 + len(self.allocs)
        return {**alloc, "Job": job, "JobVersion": job["Version"], "CreateIndex": place, "ModifyIndex": 500, "ModifyTime": NOW_NS - nanoseconds("1m")}

    def do_alloc(self, arguments: Arguments) -> None:
        """alloc NAME options: what has become of an allocation. `web[0]` is the newest one of that name."""
        name = arguments.word()
        _change_alloc(self.allocs[name] if name in self.allocs else self._newest(name), arguments)

    def _newest(self, name: str) -> dict[str, Any]:
        found = [alloc for alloc in self.allocs.values() if alloc["Name"] == f"{self.job_id}.{name}"]
        return max(found, key=lambda alloc: alloc["CreateIndex"])

    def do_deployment(self, arguments: Arguments) -> None:
        """deployment ID STATUS [version group desired healthy canaries placed promoted]: of the newest version unless another one is named."""
        name, status = arguments.word(), arguments.word()
        job = self.versions[self.job_id][arguments.number("version", -1)]
        state: dict[str, Any] = {
            "DesiredTotal": arguments.number("desired"),
            "HealthyAllocs": arguments.number("healthy"),
            "DesiredCanaries": arguments.number("canaries"),
            "PlacedCanaries": names([word for word in arguments.text("placed").split(",") if word]),
            "Promoted": arguments.flag("promoted"),
        }
        fields = {"ID": name, "Namespace": "default", "JobID": self.job_id, "JobVersion": job["Version"], "JobCreateIndex": job["CreateIndex"]}
        groups = {arguments.text("group", job["TaskGroups"][0]["Name"]): state}
        place = 400 + len(self.deployments)
        self.deployments[name] = {**fields, "Status": status, "TaskGroups": groups, "CreateIndex": place, "ModifyIndex": place}


def _change_job(job: dict[str, Any], group: dict[str, Any], arguments: Arguments) -> None:
    """Change a job and one of its groups as options say."""
    options, arguments.options = arguments.options, {}
    task = group["Tasks"][0]
    for key, value in options.items():
        match key:
            case "priority":
                job["Priority"] = int(value)
            case "datacenters":
                job["Datacenters"] = value.split(",")
            case "pool":
                job["NodePool"] = value
            case "count":
                group["Count"] = int(value)
            case "cpu" | "memory":
                task["Resources"]["CPU" if key == "cpu" else "MemoryMB"] = int(value)
            case "env":
                task["Env"] = {"A": value}
            case "on":
                # A constraint: only there.
                group["Constraints"] = [{"LTarget": "${node.unique.id}", "Operand": "=", "RTarget": value}]
            case "distinct_hosts":
                group["Constraints"] = [{"LTarget": "", "Operand": "distinct_hosts", "RTarget": value}]
            case "kernel":
                group["Constraints"] = [{"LTarget": "${attr.kernel.name}", "Operand": "=", "RTarget": value}]
            case "rack_affinity":
                group["Affinities"] = [{"LTarget": "${meta.rack}", "Operand": "=", "RTarget": value, "Weight": 50}]
            case "disk":
                group["EphemeralDisk"] = {"SizeMB": 300, value.capitalize(): True}
            case "max_run":
                group["MaxRunDuration"] = nanoseconds(value)
            case "max_parallel" | "canary":
                group.setdefault("Update", {})["MaxParallel" if key == "max_parallel" else "Canary"] = int(value)
            case "stagger":
                group.setdefault("Update", {})["Stagger"] = nanoseconds(value)
            case "delay" | "max_delay" | "interval":
                policy = group.setdefault("ReschedulePolicy", {"DelayFunction": "constant", "Unlimited": True})
                policy[{"delay": "Delay", "max_delay": "MaxDelay", "interval": "Interval"}[key]] = nanoseconds(value)
            case "grows":
                group["ReschedulePolicy"]["DelayFunction"] = value
            case "attempts":
                group.setdefault("ReschedulePolicy", {"Delay": 0, "DelayFunction": "constant"}).update(Attempts=int(value), Unlimited=False)
            case "lost_after":
                group.setdefault("Disconnect", {"Replace": True})["LostAfter"] = nanoseconds(value)
            case "replace":
                group.setdefault("Disconnect", {})["Replace"] = value == "yes"
            case "reconcile":
                group.setdefault("Disconnect", {"Replace": True})["Reconcile"] = value
            case "stop_after":
                group.setdefault("Disconnect", {"Replace": True})["StopOnClientAfter"] = nanoseconds(value)
            case _:
                raise ValueError(f"no option of a job: {key}")


def _change_alloc(alloc: dict[str, Any], arguments: Arguments) -> None:
    """Change an allocation as words and options say."""
    for word, flag in _TRANSITIONS.items():
        if arguments.flag(word):
            alloc.setdefault("DesiredTransition", {})[flag] = True
    task = alloc["TaskGroup"]
    if arguments.flag("complete"):
        alloc.update(ClientStatus="complete", TaskStates={task: {"State": "dead", "Failed": False, "FinishedAt": ago("1m")}})
    options, arguments.options = arguments.options, {}
    for key, value in options.items():
        match key:
            case "client" | "desired":
                alloc["ClientStatus" if key == "client" else "DesiredStatus"] = value
            case "failed":
                # So long ago.
                alloc.update(ClientStatus="failed", ModifyTime=NOW_NS - nanoseconds(value))
                alloc["TaskStates"] = {task: {"State": "dead", "Failed": True, "StartedAt": ago("9h"), "FinishedAt": ago(value)}}
            case "started":
                alloc["TaskStates"] = {task: {"State": "running", "StartedAt": ago(value)}}
            case "unknown" | "back":
                # Unknown for so long; `back`: until its client was heard of again.
                alloc["AllocStates"] = [{"Field": 0, "Value": "unknown", "Time": ago(value)}]
                if key == "unknown":
                    alloc["ClientStatus"] = "unknown"
            case "next" | "previous":
                alloc["NextAllocation" if key == "next" else "PreviousAllocation"] = value
            case "follow_up":
                alloc["FollowupEvalID"] = EVAL_ID if value == "this" else value
            case "delays":
                # The delays of earlier attempts, an hour between them; the last one `last` ago.
                delays = [nanoseconds(each) for each in value.split(",")]
                last_ns = nanoseconds(options.get("last", "1h"))
                times = [NOW_NS - last_ns - place * nanoseconds("1h") for place in reversed(range(len(delays)))]
                events = [
                    {"RescheduleTime": time, "PrevAllocID": f"p{place}", "PrevNodeID": options.get("nodes", "x"), "Delay": delay}
                    for place, (time, delay) in enumerate(zip(times, delays, strict=True))
                ]
                alloc["RescheduleTracker"] = {"Events": events, "LastReschedule": options.get("outcome", "ok")}
            case "last" | "nodes" | "outcome":
                continue
            case "score":
                alloc["Metrics"] = {"ScoreMetaData": [{"NodeID": alloc["NodeID"], "NormScore": float(value)}]}
            case "deployment":
                health = {"yes": True, "no": False, "open": None}[options.get("healthy", "open")]
                alloc.update(DeploymentID=value, DeploymentStatus={"Healthy": health, "Canary": options.get("canary") == "yes"})
            case "healthy" | "canary":
                continue
            case "cpu":
                alloc["AllocatedResources"]["Tasks"][task]["Cpu"]["CpuShares"] = int(value)
            case _:
                raise ValueError(f"no option of an allocation: {key}")
