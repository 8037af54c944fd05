"""The settings of a server."""

from __future__ import annotations

import math
import tomllib
from typing import Any, Literal, Self

import msgspec

from fastplan.clock import Clock, SystemClock
from fastplan.errors import InvalidInput
from fastplan.rules import Rules
from fastplan.scheduler.setting import Overlap

WORKERS_MAX = 256


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a server works. Durations are in seconds. Raises InvalidInput, naming field and value, for what makes no sense.

    `data_dir`: where the log lies; None for a directory that is removed when the server ends. `workers`: how many evaluations are handled at a time, 0
    for a server that only commits. `executor`: whether schedulers compute in threads, or inline on the event loop, as virtual time needs it. `seed`: of
    random draws and new ids; None draws it. `overlap`: what happens to several live allocations in one slot (schedulers 5.8).
    `deployment_watcher`: somebody outside watches deployments, so no rolling follow-ups are made (schedulers 4.9). `fair_share`: serve namespaces in turn.
    `pause_when_leading`: how a leader spares itself; None pauses three quarters of its workers where other servers could do the work (worker-and-broker 6.11).
    `rejection_tracker`: None follows the rules: on under STRICT. `restore_unblock_check`: treat capacity that came before a leadership as news to blocked
    evaluations (worker-and-broker 7).
    """

    data_dir: str | None = None
    workers: int = 2
    rules: Rules = Rules.STRICT
    overlap: Overlap = "enforce"
    replication: Literal["local"] = "local"
    executor: Literal["threads", "inline"] = "threads"
    seed: int | None = None
    clock: Any = msgspec.field(default_factory=SystemClock)
    deployment_watcher: bool = False
    fair_share: bool = False
    pause_when_leading: bool | None = None
    rejection_tracker: bool | None = None
    restore_unblock_check: bool = False
    nack_timeout_s: float = 60.0
    delivery_limit: int = 3
    initial_nack_delay_s: float = 1.0
    subsequent_nack_delay_s: float = 20.0
    failed_follow_up_baseline_s: float = 60.0
    failed_follow_up_range_s: float = 300.0
    reap_interval_s: float = 1.0
    reap_cancelable_interval_s: float = 5.0
    unblock_failed_interval_s: float = 60.0
    prune_interval_s: float = 300.0
    prune_threshold_s: float = 900.0
    index_limit_s: float = 5.0
    low_water_bytes: int = 64 << 20
    reserve_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        if not 0 <= self.workers <= WORKERS_MAX:
            raise InvalidInput("server.workers", self.workers, f"integer from 0 to {WORKERS_MAX}")
        if self.delivery_limit < 1:
            raise InvalidInput("server.delivery_limit", self.delivery_limit, "integer ≥ 1")
        for name in ("low_water_bytes", "reserve_bytes"):
            if getattr(self, name) < 0:
                raise InvalidInput(f"server.{name}", getattr(self, name), "integer ≥ 0")
        for name in self.__struct_fields__:
            if name.endswith("_s"):
                value = getattr(self, name)
                may_be_zero = "delay" in name or "follow_up" in name
                if not math.isfinite(value) or value < 0 or (value == 0 and not may_be_zero):
                    raise InvalidInput(f"server.{name}", value, f"seconds {'≥' if may_be_zero else '>'} 0")
        for method in ("now_ns", "monotonic_s"):
            if not callable(getattr(self.clock, method, None)):
                raise InvalidInput("server.clock", type(self.clock).__name__, "a Clock")

    @classmethod
    def from_toml(cls, text: str) -> Self:
        """Return the configuration in a TOML text; its keys are the fields. Raises InvalidInput."""
        try:
            found = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise InvalidInput("server configuration", str(error), "TOML text") from error
        for name in found:
            if name not in cls.__struct_fields__ or name == "clock":
                raise InvalidInput(f"server.{name}", found[name], f"one of the settings {', '.join(sorted(set(cls.__struct_fields__) - {'clock'}))}")
        try:
            return msgspec.convert(found, cls)
        except msgspec.ValidationError as error:
            # The text ends with the way to the field: … - at `$.workers`
            text, _, path = str(error).partition(" - at `$.")
            name = path.rstrip("`")
            raise InvalidInput(f"server.{name}", found.get(name), text) from error

    @property
    def time(self) -> Clock:
        """The clock."""
        clock: Clock = self.clock
        return clock
