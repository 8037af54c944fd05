"""Operations: what changes the state from outside, as pure functions of the state (worker-and-broker 2.3, 5.4).

Each takes the state, its inputs, the time in Unix nanoseconds and a source of ids, and returns an `Operation`: commands and evaluations that belong into
one log entry, and what to unblock afterwards. It raises `StateError` for what the state does not allow, `InvalidInput` for what no state allows, and then
there is nothing to do. Some commands are whole records made from what is stored, so no other operation on the same job, node or deployment may come between.
"""

from fastplan.server.operations.allocs import stop_alloc, update_allocs_from_client
from fastplan.server.operations.deployments import fail_deployment, pause_deployment, promote_deployment
from fastplan.server.operations.jobs import deregister_job, dispatch_job, register_job, scale_job
from fastplan.server.operations.nodes import deregister_node, register_node, update_node_drain, update_node_eligibility, update_node_status
from fastplan.server.operations.operation import Operation, Unblock, Unblocker
from fastplan.server.operations.queued import queued_counts
from fastplan.server.operations.scheduler_config import default_scheduler_config

__all__ = [
    "Operation",
    "Unblock",
    "Unblocker",
    "default_scheduler_config",
    "deregister_job",
    "deregister_node",
    "dispatch_job",
    "fail_deployment",
    "pause_deployment",
    "promote_deployment",
    "queued_counts",
    "register_job",
    "register_node",
    "scale_job",
    "stop_alloc",
    "update_allocs_from_client",
    "update_node_drain",
    "update_node_eligibility",
    "update_node_status",
]
