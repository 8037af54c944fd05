"""What the fit check answers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from fastplan.errors import Reason

MAX_ALLOCS_ERROR = "plan exceeds max allocation"
"""The error that goes with `max allocation exceeded` (plan-apply 2.2, step 1)."""


@dataclass(frozen=True, slots=True)
class UsedResources:
    """The sum of what allocations use on one node (plan-apply 2.3): MHz, MiB and the union of the pinned cores, ascending.

    `memory_max_mib` is reported but never checked: only the reservation counts.
    """

    cpu_mhz: int = 0
    memory_mib: int = 0
    memory_max_mib: int = 0
    disk_mib: int = 0
    reserved_cores: Iterable[int] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "reserved_cores", tuple(sorted(set(self.reserved_cores))))


NOTHING_USED = UsedResources()


@dataclass(frozen=True, slots=True)
class Check:
    """The verdict of the reference: a reason code, what stands behind the reason's colon, the error if any, and the sum."""

    code: Reason
    detail: str = ""
    error: str = ""
    used: UsedResources = field(default=NOTHING_USED)

    @property
    def reason(self) -> str:
        """The whole reason as Nomad words it (plan-apply 2.9, 3.6); empty exactly when it fits."""
        return f"{self.code.text}: {self.detail}" if self.detail else self.code.text


@dataclass(frozen=True, slots=True)
class FitResult:
    """The answer of the fit check on one node (plan-apply 2.1).

    `reason` is empty exactly when it fits. `error` is empty, or `plan exceeds max allocation`.
    `used` is the sum at the moment of return, also when it does not fit. `code` is the reason as a number.
    """

    fit: bool
    reason: str
    error: str
    used: UsedResources
    code: Reason

    @classmethod
    def of(cls, check: Check) -> FitResult:
        """Return *check* in the public form."""
        return cls(check.code is Reason.FITS, check.reason, check.error, check.used, check.code)
