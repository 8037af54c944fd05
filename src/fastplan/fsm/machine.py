"""The state machine of the replicated log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from fastplan import codec
from fastplan.clock import Clock
from fastplan.errors import CodecError
from fastplan.fsm import snapshots
from fastplan.fsm.commands import CommandWriter
from fastplan.fsm.keys import RecentKeys
from fastplan.fsm.plans import PlanWriter
from fastplan.fsm.results import Refused, Repeated, Result
from fastplan.metrics import Metrics
from fastplan.state import StateStore

RUN_PLANS: Final = 2048
"""Plain plans written by one call into the store; more would only delay snapshots."""

LogItem = tuple[int, int, bytes, bytes]
"""Index, term, entry, key."""


class _Run:
    """Plain plans that wait to be written together, and what is to be noted about them then."""

    def __init__(self, writer: PlanWriter, keys: RecentKeys, results: list[Result]) -> None:
        self.writer = writer
        self.keys_waiting: set[bytes] = set()
        self._keys = keys
        self._results = results
        self._waiting: list[bytes] = []

    def wait(self, key: bytes) -> None:
        """Note the key of a plan that the writer has taken into its run."""
        self._waiting.append(key)
        if key:
            self.keys_waiting.add(key)

    def flush(self) -> None:
        """Write what waits, and note the results."""
        if not self._waiting:
            return
        indexes, plans = self.writer.indexes, self.writer.plans
        for index, plan, key, refused in zip(indexes, plans, self._waiting, self.writer.flush(), strict=True):
            self.finish(index, plan.time_ns, key, refused, plan)
        self._waiting = []
        self.keys_waiting = set()

    def finish(self, index: int, time_ns: int, key: bytes, refused: Refused | None, plan: codec.PlanEntry | None) -> None:
        """Note the result of one entry."""
        self._results.append(refused)
        if not key:
            return
        if refused is not None:
            self._keys.add(key, time_ns, Repeated(index, refused.refused))
            return
        answer = None if plan is None or plan.answer is None else codec.decode_answer(plan)
        if answer is None:
            self._keys.add(key, time_ns, index)
        else:
            self._keys.add(key, time_ns, Repeated(index, None, tuple(answer.rejected_nodes), answer.refresh_index))


class StateMachine:
    """Applies entries to a store, deterministically: the same entries give the same state, keys and results on every replica.

    Nothing else writes to the store while a log exists.
    """

    def __init__(self, store: StateStore | None = None, metrics: Metrics | None = None, clock: Clock | None = None) -> None:
        """Start on *store*, as loaded before there was a log, or empty. *clock* only measures how long applying takes; None: it is not measured."""
        metrics = metrics if metrics is not None else Metrics()
        self.store = store if store is not None else StateStore()
        self.keys = RecentKeys()
        self.foreign_changes = 0
        """How many entries other than plans were applied by this object: a change of it makes verdicts made before stale."""
        self._applied = 0
        self._clock = clock
        self._writer = PlanWriter(self.store)
        self._listener: Callable[[], None] | None = None
        self._apply_timer = metrics.timer("nomad.fsm.apply_plan_results", "Time to apply one plan to the state; a batch is shared out among its plans.")
        self._entries = metrics.counter("fastplan.fsm.entries", "Log entries applied.")
        self._refusals = metrics.counter("fastplan.fsm.refused", "Log entries that were refused and changed nothing.")

    @property
    def applied(self) -> int:
        """Index of the last entry in the state, 0 when empty."""
        return self._applied

    def set_listener(self, listener: Callable[[], None] | None) -> None:
        """Have *listener* called after every batch of entries that was applied."""
        self._listener = listener

    # --- applying ---------------------------------------------------------------------------------------------------

    def apply(self, batch: Sequence[LogItem]) -> Sequence[Result]:
        """Apply committed entries, in order, and return one result each: None, `Refused` or `Repeated`.

        Raises `CodecError` for an entry that cannot be read: the log is damaged, or of another version.
        """
        results: list[Result] = []
        run = _Run(self._writer, self.keys, results)
        commands_before = self.foreign_changes
        start_s = 0.0 if self._clock is None else self._clock.monotonic_s()
        with self.store.batch():
            for index, _, entry, key in batch:
                if index <= self._applied:
                    raise CodecError(f"entry {index} comes after entry {self._applied} was applied")
                repeated = self._repeated(run, key) if key else None
                if repeated is not None:
                    run.flush()
                    results.append(repeated)
                else:
                    self._apply_one(run, index, entry, key)
                self._applied = index
            run.flush()
        plans = len(results) - (self.foreign_changes - commands_before)
        if self._clock is not None and plans:
            self._apply_timer.record((self._clock.monotonic_s() - start_s) / plans, times=plans)
        self._entries.add(len(results))
        self._refusals.add(sum(isinstance(result, Refused) for result in results))
        if self._listener is not None:
            self._listener()
        return results

    def _repeated(self, run: _Run, key: bytes) -> Repeated | None:
        if key in run.keys_waiting:
            run.flush()
        return self.keys.get(key)

    def _apply_one(self, run: _Run, index: int, entry: bytes, key: bytes) -> None:
        found = codec.decode(entry)
        if isinstance(found, codec.PlanEntry):
            writer = self._writer
            if writer.waiting >= RUN_PLANS:
                run.flush()
            if writer.add(index, found):
                run.wait(key)
                return
            run.flush()
            refused = writer.apply(index, found)
            run.finish(index, found.time_ns, key, refused, found)
            return
        run.flush()
        self.foreign_changes += 1
        reason = CommandWriter(self.store, index, found.time_ns).apply(found.command)
        run.finish(index, found.time_ns, key, None if reason is None else Refused(reason), None)

    def result_of(self, key: bytes) -> Repeated | None:
        """Return what became of the entry with *key*, None if it is not among the recent ones."""
        return self.keys.get(key)

    # --- snapshots --------------------------------------------------------------------------------------------------

    def snapshot(self) -> Iterator[bytes]:
        """Return the state as chunks, consistent at `applied`. Returns at once; the iterator may be driven in another thread."""
        return snapshots.write(snapshots.head_of(self._applied, self.keys, self._writer.refused), self.store.snapshot())

    def restore(self, chunks: Iterable[bytes]) -> None:
        """Replace the whole state. Raises `CodecError`, `VersionUnsupported`; then nothing has changed."""
        head, store = snapshots.read(chunks)
        self.store = store
        self.keys = snapshots.keys_of(head)
        self._writer = PlanWriter(store)
        self._writer.refused.extend((index, frozenset(freed)) for index, freed in head.refused)
        self._applied = head.applied
        self.foreign_changes += 1
