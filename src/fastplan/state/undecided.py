"""What a dump leaves open: references that it does not hold, and what a lossy source cannot say (plan-apply 1.13)."""

from __future__ import annotations

from collections.abc import Iterable

from fastplan.structs import Allocation, Job, Node


class _Counts:
    """Counts ids by what is said of them, remembering the first."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[int, str]] = {}

    def add(self, fact: str, record_id: str) -> None:
        count, first = self._found.get(fact, (0, record_id))
        self._found[fact] = (count + 1, first)

    def lines(self, noun: str) -> list[str]:
        return [f"{noun} {first}: {fact}" if count == 1 else f"{count} {noun}s, {first} the first: {fact}" for fact, (count, first) in self._found.items()]


def list_undecided(nodes: Iterable[Node], jobs: Iterable[Job], allocs: Iterable[Allocation]) -> list[str]:
    """Return one sentence for each thing that the records of a dump leave open, with how many records it concerns and the first of them."""
    node_ids = {node.id for node in nodes}
    versions = {(job.namespace, job.id, job.version) for job in jobs}
    registered = {(namespace, job_id) for namespace, job_id, _ in versions}
    of_nodes, of_allocs = _Counts(), _Counts()
    for node in nodes:
        _look_at_node(node, of_nodes)
    for alloc in allocs:
        namespace = alloc.namespace or "default"
        if alloc.node_id not in node_ids:
            of_allocs.add(f"node {alloc.node_id or '(none)'} is not in the dump, usage is counted once it appears", alloc.id)
        if alloc.job is None:
            version = (namespace, alloc.job_id, alloc.job_version)
            if alloc.job_version < 0:
                of_allocs.add("no job is attached, volume claims are not known", alloc.id)
            elif version not in versions if alloc.is_given("job_version") else version[:2] not in registered:
                shown = f"{namespace}/{alloc.job_id}" + (f" version {alloc.job_version}" if alloc.is_given("job_version") else "")
                of_allocs.add(f"job {shown} is not in the dump, volume claims are not known", alloc.id)
        _look_at_resources(alloc, of_allocs)
    return of_nodes.lines("node") + of_allocs.lines("allocation")


def _look_at_node(node: Node, found: _Counts) -> None:
    if not node.is_from_api:
        return
    if node.is_given("drain") and not node.is_given("drain_strategy") and not node.is_given("node_max_allocs"):
        found.add("came from a list, whether the number of allocations is limited is not known", node.id)
    resources = node.node_resources
    if resources is not None and not resources.is_given("processors"):
        found.add("came without topology, cores are made up from the CPU block, so core ids may differ", node.id)


def _look_at_resources(alloc: Allocation, found: _Counts) -> None:
    resources = alloc.allocated_resources
    if resources is None:
        if alloc.task_resources is None and alloc.resources is None and not alloc.is_client_terminal:
            found.add("came without resources, no check of its node is possible", alloc.id)
    elif resources.is_from_api and not resources.is_given("task_lifecycles"):
        found.add("came without TaskLifecycles, demand is summed over all tasks, so cpu and memory may be judged too strictly", alloc.id)
