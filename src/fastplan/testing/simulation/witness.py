"""A second replica that sees the log entry by entry and looks at the state after each one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fastplan import codec
from fastplan.fsm import StateMachine
from fastplan.replication.contract import LogItem
from fastplan.scheduler.config import config_of
from fastplan.structs import Allocation, Job
from fastplan.testing import invariants


class Witness:
    """Follows the log. `violations` has what did not hold, with the index at which it was seen."""

    def __init__(self) -> None:
        self.machine = StateMachine()
        self.violations: list[str] = []
        self.stopped_jobs: set[invariants.JobKey] = set()
        """Jobs that were stopped or forgotten at some time: a plan of theirs may be acknowledged without its allocations (plan-apply 6.10)."""
        self.overlooked: set[invariants.JobKey] = set()
        """Jobs with an allocation on a node that went away while a plan or the change of the node was on its way: no evaluation was made for that."""
        self._shrunk: set[str] = set()

    def hear(self, items: Sequence[LogItem]) -> None:
        """Apply entries that were stored, one after the other."""
        for item in items:
            before = self.machine.foreign_changes
            self.machine.apply([item])
            found = codec.decode(item[2])
            if isinstance(found, codec.PlanEntry):
                # One that has the key of an earlier plan changes nothing.
                self._look_at_plan(item[0], (found.namespace, found.job_id), found.verified_at)
            elif self.machine.foreign_changes > before:
                commands = found.command.commands if isinstance(found.command, codec.Batch) else [found.command]
                for command in commands:
                    self._note(command)
                self._note_overlooked(commands)

    def _note(self, command: codec.Single) -> None:
        if isinstance(command, codec.UpsertNodes):
            self._note_shrunk()
        elif isinstance(command, codec.UpsertJob):
            job = Job.from_api(command.job)
            if job.stop:
                self.stopped_jobs.add((job.namespace, job.id))
        elif isinstance(command, codec.DeleteJob):
            self.stopped_jobs.add((command.namespace, command.job_id))

    def _note_overlooked(self, commands: Sequence[codec.Single]) -> None:
        """Note the jobs on nodes that an entry has changed which the evaluations of the entry do not name."""
        node_ids = [command.node_id for command in commands if isinstance(command, codec.UpdateNodeStatus | codec.UpdateNodeDrain)]
        node_ids += [node_id for command in commands if isinstance(command, codec.DeleteNodes) for node_id in command.node_ids]
        named = {each["JobID"] for command in commands if isinstance(command, codec.UpsertEvals) for each in command.evals}
        for node_id in node_ids:
            live = self.machine.store.allocs_by_node(node_id, terminal=False)
            self.overlooked |= {(alloc.namespace, alloc.job_id) for alloc in live if alloc.job_id not in named}

    def _note_shrunk(self) -> None:
        """Note which nodes hold more than they have: they have registered with less, perhaps while a plan was on its way."""
        store = self.machine.store
        self._shrunk = {node.id for node in store.nodes() if invariants.over_committed(store, node_ids=[node.id])}

    def _look_at_plan(self, index: int, key: invariants.JobKey, verified_at: int) -> None:
        store = self.machine.store
        changed = [alloc for alloc in store.allocs_by_job(*key) if alloc.modify_index == index]
        job = store.job(*key)
        preempts = job is None or config_of(store, job).preemption_enabled(job.type)
        found = invariants.placed_without_room(store, index, key, verified_at, preempts=preempts)
        node_ids = {alloc.node_id for alloc in changed}
        nodes = [store.node(node_id) for node_id in node_ids]
        if any(node is None or node.modify_index > verified_at for node in nodes):
            self._note_shrunk()
            self.overlooked.add(key)
        found += invariants.over_committed(store, self._shrunk, sorted(node_ids))
        if job is not None:
            found += invariants.doubled_slots(store, [job])
        self.violations += [f"at index {index}: {sentence}" for sentence in found]

    def missing(self, placed: Iterable[Allocation]) -> list[str]:
        """Return what is not stored of allocations that a plan's answer says were placed."""
        store = self.machine.store
        return [
            f"allocation {alloc.id} of {alloc.job_id} was acknowledged, and is not stored"
            for alloc in placed
            if store.alloc(alloc.id) is None and (alloc.namespace, alloc.job_id) not in self.stopped_jobs
        ]
