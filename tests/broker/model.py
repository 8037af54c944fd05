"""The evaluation broker once more, as simple as can be: one list of records, looked through from one end to the other for every question."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from fastplan.broker import FAILED_QUEUE, BrokerSettings
from fastplan.structs import Evaluation

OWNING = ("ready", "held", "given back")
"""Places in which an evaluation keeps others of its job waiting."""


@dataclass(slots=True)
class Record:
    """An evaluation and where it is. `number`: when it came to this place, counted in moves."""

    evaluation: Evaluation
    place: str = ""
    queue: str = ""
    due: float = 0.0
    number: int = 0
    deliveries: int = 0
    token: str = ""
    deadline_s: float | None = None
    again: Evaluation | None = None

    @property
    def job(self) -> tuple[str, str]:
        return self.evaluation.namespace, self.evaluation.job_id


class Model:
    """What the broker should have; the test tells it which evaluation was delivered, where the broker may choose."""

    def __init__(self, settings: BrokerSettings) -> None:
        self.settings = settings
        self.records: dict[str, Record] = {}
        self.cancelable: list[str] = []
        self._moves = 0

    def _move(self, record: Record, place: str) -> None:
        self._moves += 1
        record.place, record.number = place, self._moves

    def at(self, *places: str) -> list[Record]:
        return sorted((record for record in self.records.values() if record.place in places), key=lambda record: record.number)

    def enqueue(self, evaluation: Evaluation, token: str, now_s: float, now_ns: int) -> None:
        known = self.records.get(evaluation.id)
        if known is not None:
            if known.place == "held" and token and known.token == token:
                known.again = evaluation
            return
        record = self.records[evaluation.id] = Record(evaluation)
        if evaluation.wait > 0:
            record.due = now_s + evaluation.wait / 1e9
            self._move(record, "waiting")
        elif evaluation.wait_until and int(evaluation.wait_until) > now_ns:
            record.due = int(evaluation.wait_until)
            self._move(record, "delayed")
        else:
            self._make_ready(record, evaluation.type)

    def _make_ready(self, record: Record, queue: str) -> None:
        record.queue = queue
        busy = any(other.job == record.job and other is not record for other in self.at(*OWNING))
        self._move(record, "pending" if busy else "ready")

    def may_be_delivered(self, queues: list[str]) -> set[str]:
        """Return the ids of which one has to be delivered now."""
        ready = [record for record in self.at("ready") if record.queue in queues]
        if not ready:
            return set()
        highest = max(record.evaluation.priority for record in ready)
        # The oldest of each queue; where namespaces share, the oldest of each namespace: whose turn it is, is a question for other tests.
        first: dict[tuple[str, str], Record] = {}
        for record in ready:
            if record.evaluation.priority == highest:
                group = record.queue, record.evaluation.namespace if self.settings.fair_share else ""
                best = first.setdefault(group, record)
                if record.evaluation.create_index < best.evaluation.create_index:
                    first[group] = record
        return {record.evaluation.id for record in first.values()}

    def delivered(self, eval_id: str, token: str, now_s: float) -> None:
        record = self.records[eval_id]
        record.deliveries += 1
        record.token, record.again, record.deadline_s = token, None, now_s + self.settings.nack_timeout_s
        self._move(record, "held")

    def holder(self, eval_id: str, token: str) -> Record | None:
        record = self.records.get(eval_id)
        return record if record is not None and record.place == "held" and record.token == token else None

    def ack(self, eval_id: str, now_s: float, now_ns: int) -> None:
        record = self.records.pop(eval_id)
        pending = [other for other in self.at("pending") if other.job == record.job]
        if pending:
            pending.sort(key=lambda other: (-other.evaluation.priority, -other.evaluation.modify_index, other.number))
            for superseded in pending[1:]:
                del self.records[superseded.evaluation.id]
                self.cancelable.append(superseded.evaluation.id)
            self._make_ready(pending[0], pending[0].evaluation.type)
        if record.again is not None:
            self.enqueue(record.again, "", now_s, now_ns)

    def nack(self, eval_id: str, now_s: float) -> None:
        record = self.records[eval_id]
        record.again = None
        if record.deliveries >= self.settings.delivery_limit:
            self._make_ready(record, FAILED_QUEUE)
            return
        delay_s = self.settings.nack_delay_s(record.deliveries)
        if delay_s > 0:
            record.due = now_s + delay_s
            self._move(record, "given back")
        else:
            self._make_ready(record, record.evaluation.type)

    def advance(self, now_s: float, now_ns: int) -> None:
        held = [record for record in self.at("held") if record.deadline_s is not None and record.deadline_s <= now_s]
        for record in sorted(held, key=lambda record: (record.deadline_s, record.number)):
            self.nack(record.evaluation.id, now_s)
        for places, now in ((("waiting", "given back"), now_s), (("delayed",), now_ns)):
            for record in sorted((record for record in self.at(*places) if record.due <= now), key=lambda record: (record.due, record.number)):
                self._make_ready(record, record.evaluation.type)

    def drop(self, eval_id: str) -> None:
        record = self.records.get(eval_id)
        if record is not None and record.place == "delayed":
            del self.records[eval_id]

    def figures(self) -> tuple[dict[str, int], dict[str, tuple[int, int]]]:
        """Return the totals, and ready and held evaluations by queue."""
        places = Counter(record.place for record in self.records.values())
        totals = {
            "ready": places["ready"],
            "unacked": places["held"],
            "pending": places["pending"],
            "waiting": places["waiting"] + places["given back"] + places["delayed"],
            "cancelable": len(self.cancelable),
        }
        by_queue: dict[str, list[int]] = {}
        for record in self.at("ready", "held"):
            by_queue.setdefault(record.queue, [0, 0])[record.place == "held"] += 1
        return totals, {queue: (ready, held) for queue, (ready, held) in by_queue.items()}
