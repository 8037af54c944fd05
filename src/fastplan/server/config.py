"""The settings of a server."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Final, Literal, Self, get_args

import msgspec

from fastplan.broker.evals import MAX_SECONDS, is_duration
from fastplan.clock import Clock, SystemClock
from fastplan.errors import InvalidInput
from fastplan.rules import Rules
from fastplan.scheduler.setting import Overlap

WORKERS_MAX: Final = 256


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

    data_dir: str | Path | None = None
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
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if not _is_possible(name, value):
                raise InvalidInput(f"server.{name}", _shown(value), _expected(name))

    @classmethod
    def from_toml(cls, text: str) -> Self:
        """Return the configuration in a TOML text; its keys are the fields but for `clock`, `rules` is `"strict"` or `"nomad"`. Raises InvalidInput."""
        try:
            found = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise InvalidInput("server configuration", str(error), "TOML text") from error
        settings = sorted(set(cls.__struct_fields__) - {"clock"})
        for name, value in found.items():
            if name not in settings:
                raise InvalidInput(f"server.{name}", _shown(value), f"one of the settings {', '.join(settings)}")
        if "rules" in found:
            if found["rules"] not in _RULES:
                raise InvalidInput("server.rules", _shown(found["rules"]), _expected("rules"))
            found["rules"] = Rules(found["rules"])
        return cls(**found)

    @property
    def time(self) -> Clock:
        """The clock."""
        clock: Clock = self.clock
        return clock


_RULES: Final = tuple(rules.value for rules in Rules)
_CHOICES: Final[dict[str, tuple[str, ...]]] = {"overlap": get_args(Overlap), "replication": ("local",), "executor": ("threads", "inline")}
_FLAGS: Final = frozenset({"deployment_watcher", "fair_share", "restore_unblock_check"})
_FLAGS_OR_NONE: Final = frozenset({"pause_when_leading", "rejection_tracker"})
_INTEGERS: Final = {"workers": (0, WORKERS_MAX), "delivery_limit": (1, None), "low_water_bytes": (0, None), "reserve_bytes": (0, None)}
_MAY_BE_ZERO: Final = frozenset({"initial_nack_delay_s", "subsequent_nack_delay_s", "failed_follow_up_baseline_s", "failed_follow_up_range_s"})


def _expected(name: str) -> str:
    """Return in words what a setting may be."""
    if name == "rules":
        return " or ".join(f'"{value}"' for value in _RULES)
    if name in _CHOICES:
        return " or ".join(f'"{value}"' for value in _CHOICES[name])
    if name in _FLAGS:
        return "boolean"
    if name in _FLAGS_OR_NONE:
        return "boolean or None"
    if name in _INTEGERS:
        low, high = _INTEGERS[name]
        return f"integer ≥ {low}" if high is None else f"integer from {low} to {high}"
    return {"data_dir": "path of a directory or None", "seed": "integer or None", "clock": "a Clock"}.get(
        name, f"seconds {'≥' if name in _MAY_BE_ZERO else '>'} 0, at most {MAX_SECONDS:g}"
    )


def _is_possible(name: str, value: Any) -> bool:
    """Return whether a setting may have a value."""
    match name:
        case "rules":
            return isinstance(value, Rules)
        case "clock":
            return all(callable(getattr(value, method, None)) for method in ("now_ns", "monotonic_s"))
        case "data_dir":
            return value is None or (isinstance(value, str | Path) and str(value) != "")
        case "seed":
            return value is None or type(value) is int
    if name in _CHOICES:
        return isinstance(value, str) and value in _CHOICES[name]
    if name in _FLAGS:
        return isinstance(value, bool)
    if name in _FLAGS_OR_NONE:
        return value is None or isinstance(value, bool)
    if name in _INTEGERS:
        low, high = _INTEGERS[name]
        return type(value) is int and value >= low and (high is None or value <= high)
    return is_duration(value) and (value > 0 or name in _MAY_BE_ZERO)


def _shown(value: Any) -> Any:
    """Return a value as a message may show it."""
    if isinstance(value, Rules):
        return value.value
    return value if value is None or isinstance(value, str | int | float | bool | list | dict) else type(value).__name__
