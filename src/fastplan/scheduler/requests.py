"""What a scheduler asks of the world (schedulers 1.3).

A scheduler is a generator: it yields a request and is sent the answer, or has the error thrown in. Whoever drives it decides where the computation runs
and how a request is performed.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from fastplan.state.plans import AnyPlan
from fastplan.state.snapshot import StateReader
from fastplan.structs import Allocation, Deployment, DeploymentUpdate, Evaluation


class CommittedPlan(Protocol):
    """What a scheduler reads of the answer to a plan (plan-apply 1.11)."""

    @property
    def node_update(self) -> Mapping[str, Sequence[Allocation]]: ...
    @property
    def node_allocation(self) -> Mapping[str, Sequence[Allocation]]: ...
    @property
    def deployment(self) -> Deployment | None: ...
    @property
    def deployment_updates(self) -> Sequence[DeploymentUpdate]: ...
    @property
    def rejected_nodes(self) -> Sequence[str]: ...
    @property
    def accepted_counts(self) -> tuple[int, int]: ...
    def full_commit(self, plan: AnyPlan) -> tuple[bool, int, int]: ...


@dataclass(frozen=True, slots=True)
class SubmitReply:
    """The answer to a plan. *state*: a fresh snapshot where the plan was refused in part or made on a stale view, else None."""

    result: CommittedPlan
    state: StateReader | None


@dataclass(frozen=True, slots=True)
class SubmitPlan:
    """Verify and commit a plan. Answered by a `SubmitReply`."""

    plan: AnyPlan


@dataclass(frozen=True, slots=True)
class UpdateEval:
    """Write the status of the evaluation that is processed. Answered by None."""

    evaluation: Evaluation


@dataclass(frozen=True, slots=True)
class CreateEval:
    """Write a new evaluation: blocked, rolling or delayed. Answered by None."""

    evaluation: Evaluation


@dataclass(frozen=True, slots=True)
class ReblockEval:
    """Give an evaluation that is blocked still back to the tracker. Answered by None."""

    evaluation: Evaluation


Request: TypeAlias = SubmitPlan | UpdateEval | CreateEval | ReblockEval

Steps: TypeAlias = Generator[Request, Any, None]
"""A scheduler at work: yields requests, is sent a `SubmitReply` or None."""
