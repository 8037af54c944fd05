"""What operations unblock, performed on the tracker of blocked evaluations (worker-and-broker 5.4)."""

from __future__ import annotations

from fastplan.broker import BlockedEvals
from fastplan.server.operations import Operation, Unblock, Unblocker
from fastplan.structs import Evaluation
from fastplan.testing.clock import VirtualClock
from tests.server.operated import Operated


def blocked(eval_id: str, **changes: object) -> Evaluation:
    return Evaluation(id=eval_id, namespace="default", job_id=eval_id, status="blocked", snapshot_index=5, **changes)  # type: ignore[arg-type]


def released_by(*unblocks: Unblock) -> list[str]:
    """Block evaluations that wait for different things, and return which of them these let go."""
    released: list[str] = []
    tracker = BlockedEvals(VirtualClock(), None, lambda evals: released.extend(evaluation.id for evaluation, _ in evals))
    tracker.set_enabled(True)
    tracker.block(blocked("c only", type="service", class_eligibility={"c": True, "d": False}))
    tracker.block(blocked("d only", type="service", class_eligibility={"c": False, "d": True}))
    tracker.block(blocked("quota", type="service", class_eligibility={"c": True, "d": False}, quota_limit_reached="q"))
    tracker.block(blocked("node", type="system", class_eligibility={"c": False, "d": False}, node_id="n1"))
    told: Unblocker = tracker
    for unblock in unblocks:
        unblock.perform(told, 9)
    return sorted(released)


def test_each_kind() -> None:
    assert released_by(Unblock("class", computed_class="d")) == ["d only"]
    assert released_by(Unblock("class", computed_class="c")) == ["c only", "quota"]
    assert released_by(Unblock("class_and_quota", computed_class="c", quota="other")) == ["c only"]
    assert released_by(Unblock("node", node_id="n1")) == ["node"]
    assert released_by(Unblock("node", node_id="n2")) == []


def test_entries() -> None:
    assert Operation().entry() is None
    entry = Operation(evaluations=[Evaluation(id="e", job_id="j", status="pending")]).entry()
    assert entry is not None
    site = Operated()
    assert site.apply(entry) is None
    assert [evaluation.id for evaluation in site.store.evals()] == ["e"]
