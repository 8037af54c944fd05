"""The fit check: does a list of allocations fit a node, why not, and what is left (plan-apply 2 to 4, schedulers.md 9.2 and 9.3).

This package embeds alone: it needs `fastplan.structs` and `fastplan.errors`, and knows nothing of states, plans or servers.
"""

from fastplan.errors import PortsUnavailable
from fastplan.fit.assign import PortOffer, TaskNetworkOffer
from fastplan.fit.checker import FitChecker
from fastplan.fit.explain import NodeExplanation, Shortfall
from fastplan.fit.lists import alloc_subset, filter_terminal_allocs, remove_allocs
from fastplan.fit.ports import PortIndex
from fastplan.fit.reference import allocs_fit
from fastplan.fit.results import FitResult, UsedResources
from fastplan.fit.score import score_fit

__all__ = [
    "FitChecker",
    "FitResult",
    "NodeExplanation",
    "PortIndex",
    "PortOffer",
    "PortsUnavailable",
    "Shortfall",
    "TaskNetworkOffer",
    "UsedResources",
    "alloc_subset",
    "allocs_fit",
    "filter_terminal_allocs",
    "remove_allocs",
    "score_fit",
]
