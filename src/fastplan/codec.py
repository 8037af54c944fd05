"""What the bytes of a log entry mean.

An entry is a *plan* (the accepted part of one plan, as columns) or a *command* (any other change of state, as msgpack). Both start
with a header that names the version of the format, the time of the entry and a checksum; the layout stands in `_codec.pxd`.
The key of an entry travels outside, in the log.

Nothing in an entry means anything only to the process that wrote it: claims refer to a table of texts inside the entry, ids that
are no UUIDs bring their text along, and a resource shape is its content or the row that committed state has given it.

`VERSION` grows with every change of the format, and `tests/golden` keeps entries of every version: they must be readable for ever.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

from fastplan._codec import VERSION, PlanEntry, gather
from fastplan._codec import decode as _decode
from fastplan._codec_writer import encode_command as _encode_command
from fastplan._codec_writer import encode_plan, numbered_key, plan_key
from fastplan.errors import CodecError
from fastplan.state.resource_shapes import ResourceShape

__all__ = [
    "VERSION",
    "AllocClientUpdate",
    "AnswerPart",
    "Batch",
    "Change",
    "ColdPart",
    "Command",
    "DeleteAllocs",
    "DeleteDeployments",
    "DeleteEvals",
    "DeleteJob",
    "DeleteNodes",
    "PlanEntry",
    "PromoteDeployment",
    "SetSchedulerConfig",
    "TimedCommand",
    "UpdateAllocDesiredTransitions",
    "UpdateAllocsFromClient",
    "UpdateDeploymentStatus",
    "UpdateNodeDrain",
    "UpdateNodeEligibility",
    "UpdateNodeStatus",
    "UpsertAllocs",
    "UpsertDeployment",
    "UpsertEvals",
    "UpsertJob",
    "UpsertNamespaces",
    "UpsertNodePools",
    "UpsertNodes",
    "decode",
    "decode_answer",
    "decode_cold",
    "decode_shape",
    "encode_answer",
    "encode_cold",
    "encode_command",
    "encode_plan",
    "encode_shape",
    "gather",
    "numbered_key",
    "plan_key",
]

Api: TypeAlias = dict[str, Any]
"""An object in the shape of Nomad's API."""


class Change(msgspec.Struct, frozen=True, array_like=True):
    """Base of all commands. Tags and the order of fields are part of the format: new fields come last and have a default."""


class UpsertNodes(Change, tag=1, frozen=True):
    """Write nodes."""

    nodes: list[Api]


class UpdateNodeStatus(Change, tag=2, frozen=True):
    """Set the status of a node."""

    node_id: str
    status: str


class UpdateNodeEligibility(Change, tag=3, frozen=True):
    """Set the scheduling eligibility of a node: `eligible` or `ineligible`."""

    node_id: str
    eligibility: str


class UpdateNodeDrain(Change, tag=4, frozen=True):
    """Set or, with None, end the drain of a node; `eligible_after` is its eligibility once the drain has ended."""

    node_id: str
    drain_strategy: Api | None
    eligible_after: bool = True


class DeleteNodes(Change, tag=5, frozen=True):
    """Forget nodes."""

    node_ids: list[str]


class UpsertJob(Change, tag=6, frozen=True):
    """Register a job, or its next version."""

    job: Api


class DeleteJob(Change, tag=7, frozen=True):
    """Forget a job and its versions."""

    namespace: str
    job_id: str


class UpsertEvals(Change, tag=8, frozen=True):
    """Write evaluations."""

    evals: list[Api]


class DeleteEvals(Change, tag=9, frozen=True):
    """Forget evaluations."""

    eval_ids: list[str]


class AllocClientUpdate(msgspec.Struct, frozen=True, array_like=True):
    """What a client says about an allocation; None: nothing new."""

    alloc_id: str
    client_status: str
    client_description: str | None = None
    task_states: Api | None = None
    deployment_status: Api | None = None


class UpdateAllocsFromClient(Change, tag=10, frozen=True):
    """Write what clients say about their allocations."""

    updates: list[AllocClientUpdate]


class UpsertAllocs(Change, tag=11, frozen=True):
    """Write whole allocations, as a loader does."""

    allocs: list[Api]


class DeleteAllocs(Change, tag=12, frozen=True):
    """Forget allocations."""

    alloc_ids: list[str]


class UpsertDeployment(Change, tag=13, frozen=True):
    """Write a deployment."""

    deployment: Api


class UpdateDeploymentStatus(Change, tag=14, frozen=True):
    """Change the status of an active deployment."""

    deployment_id: str
    status: str
    description: str


class DeleteDeployments(Change, tag=15, frozen=True):
    """Forget deployments."""

    deployment_ids: list[str]


class UpsertNamespaces(Change, tag=16, frozen=True):
    """Write namespaces."""

    namespaces: list[Api]


class UpsertNodePools(Change, tag=18, frozen=True):
    """Write node pools."""

    node_pools: list[Api]


class SetSchedulerConfig(Change, tag=20, frozen=True):
    """Replace the scheduler configuration."""

    config: Api


class UpdateAllocDesiredTransitions(Change, tag=22, frozen=True):
    """Note what operators and drains want of allocations: id → the flags that are set; other flags stay."""

    transitions: dict[str, Api]


class PromoteDeployment(Change, tag=23, frozen=True):
    """Promote the canaries of an active deployment: of all groups, or of those named."""

    deployment_id: str
    groups: list[str] | None = None


Single: TypeAlias = (
    UpsertNodes
    | UpdateNodeStatus
    | UpdateNodeEligibility
    | UpdateNodeDrain
    | DeleteNodes
    | UpsertJob
    | DeleteJob
    | UpsertEvals
    | DeleteEvals
    | UpdateAllocsFromClient
    | UpsertAllocs
    | DeleteAllocs
    | UpsertDeployment
    | UpdateDeploymentStatus
    | DeleteDeployments
    | UpsertNamespaces
    | UpsertNodePools
    | SetSchedulerConfig
    | UpdateAllocDesiredTransitions
    | PromoteDeployment
)


class Batch(Change, tag=21, frozen=True):
    """Several commands that take effect together or not at all."""

    commands: list[Single]


Command: TypeAlias = Single | Batch


class TimedCommand(msgspec.Struct, frozen=True):
    """A decoded command with the time of its entry in Unix nanoseconds."""

    time_ns: int
    command: Command


class ColdPart(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a plan carries beside its columns; most plans carry nothing.

    `job`: the job of the plan, when state does not hold this version. `extras`: placement row → the API record that it came as.
    """

    job: Api | None = None
    extras: dict[int, Api] = {}
    deployment: Api | None = None
    deployment_updates: list[Api] = []
    preemption_evals: list[Api] = []
    ineligible_nodes: list[str] = []
    identities: dict[str, dict[str, str]] = {}


class AnswerPart(msgspec.Struct, frozen=True, array_like=True):
    """The refused part of the answer to a plan, so that a repeated plan gets the same one. State does not look at it."""

    rejected_nodes: list[str]
    refresh_index: int


_encoder: Final = msgspec.msgpack.Encoder()
_command_decoder: Final = msgspec.msgpack.Decoder(Command)
_shape_decoder: Final = msgspec.msgpack.Decoder(tuple[int, int, int, int, bool, bytes])
_answer_decoder: Final = msgspec.msgpack.Decoder(AnswerPart)
_cold_decoder: Final = msgspec.msgpack.Decoder(ColdPart)


def encode_command(command: Command, time_ns: int) -> bytes:
    """Return the entry of *command*, stamped with *time_ns* (Unix nanoseconds)."""
    return _encode_command(_encoder.encode(command), time_ns)


def encode_answer(answer: AnswerPart) -> bytes:
    """Return the bytes of the refused part of an answer."""
    return _encoder.encode(answer)


def encode_cold(cold: ColdPart) -> bytes | None:
    """Return the bytes of a cold part, None if it holds nothing."""
    return None if cold == _NOTHING_COLD else _encoder.encode(cold)


def decode(entry: bytes) -> PlanEntry | TimedCommand:
    """Return what an entry says.

    Raises `VersionUnsupported` naming both versions, and `CodecError` for bytes that are no entry, cut short or changed.
    """
    found = _decode(entry)
    if isinstance(found, PlanEntry):
        return found
    time_ns, body = found
    return TimedCommand(time_ns, _read(_command_decoder, body, "command"))


def decode_cold(plan: PlanEntry) -> ColdPart:
    """Return the cold part of a plan. Raises `CodecError`."""
    cold: ColdPart = _NOTHING_COLD if plan.cold is None else _read(_cold_decoder, plan.cold, "plan")
    return cold


def decode_answer(plan: PlanEntry) -> AnswerPart | None:
    """Return the refused part of the answer to a plan, None if nothing was refused. Raises `CodecError`."""
    return None if plan.answer is None else _read(_answer_decoder, plan.answer, "answer")


def encode_shape(shape: ResourceShape) -> bytes:
    """Return the content of a shape as it stands in an entry."""
    return _encoder.encode(msgspec.structs.astuple(shape))


def decode_shape(content: bytes) -> ResourceShape:
    """Return the shape with this content. Raises `CodecError`."""
    try:
        return ResourceShape(*_shape_decoder.decode(content))
    except msgspec.MsgspecError as error:
        raise CodecError(f"log entry: a resource shape cannot be read: {error}") from error


def _read(decoder: msgspec.msgpack.Decoder[Any], body: bytes, what: str) -> Any:
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CodecError(f"log entry: its {what} cannot be read: {error}") from error


_NOTHING_COLD: Final = ColdPart()
