"""Operations: what changes the state from outside, as pure functions of the state (worker-and-broker 2.3, 5.4).

Each takes the state, its inputs, the time in Unix nanoseconds and a source of ids, and returns an `Operation`: commands and evaluations that belong into
one log entry, and what to unblock afterwards. It raises `StateError` for what the state does not allow, `InvalidInput` for what no state allows, and then
there is nothing to do. Some commands are whole records made from what is stored, so nothing else may write those records between.
"""

from fastplan.server.operations.jobs import deregister_job, dispatch_job, register_job, scale_job
from fastplan.server.operations.nodes import deregister_node, register_node, update_node_drain, update_node_eligibility, update_node_status
from fastplan.server.operations.operation import Operation, Unblock

__all__ = [
    "Operation",
    "Unblock",
    "deregister_job",
    "deregister_node",
    "dispatch_job",
    "register_job",
    "register_node",
    "scale_job",
    "update_node_drain",
    "update_node_eligibility",
    "update_node_status",
]
