"""The metrics of the plan path, by Nomad's names (plan-apply 9)."""

from __future__ import annotations

from fastplan.metrics import Metrics


class PlanMetrics:
    """The instruments of submit, queue, pipeline and tracker, registered in *metrics*."""

    def __init__(self, metrics: Metrics) -> None:
        self.submit = metrics.timer("nomad.plan.submit", "Time of a plan submission from its arrival to the reply, failures included.")
        self.queue_depth = metrics.gauge("nomad.plan.queue_depth", "Plans that wait in the plan queue.")
        self.wait_for_index = metrics.timer("nomad.plan.wait_for_index", "Time a plan waited until the state had reached the index it needs.")
        self.evaluate = metrics.timer("nomad.plan.evaluate", "Time to verify one plan; a batch is shared out among its plans.")
        self.node_rejected = metrics.labelled_counter("nomad.plan.node_rejected", "Plans in which this node was refused.", "node_id")
        self.sign_identities = metrics.timer("nomad.plan.sign_identities", "Time in the identity hook for one plan.")
        self.raft_dispatch = metrics.timer("nomad.plan.raft_dispatch", "Time to encode one batch of plans and hand it to the log.")
        self.optimistic_apply = metrics.timer("nomad.plan.optimistic_apply", "Time to add one batch of results to the view of what is in flight.")
        self.outstanding_apply = metrics.sample("nomad.plan.outstanding_apply", "Plans in flight when a batch was taken from the queue.")
        self.apply = metrics.timer("nomad.plan.apply", "Time from handing a plan to the log to its answer, failures included.")
        self.node_score = metrics.labelled_gauge(
            "nomad.plan.rejection_tracker.node_score", "Refusals of this node inside the window of the rejection tracker.", "node_id"
        )
        self.batches = metrics.counter("fastplan.plan.batches", "Batches of plans handed to the log; each costs one sync.")
        self.committed = metrics.counter("fastplan.plan.committed", "Plans committed.")
        self.verified_again = metrics.counter("fastplan.plan.verified_again", "Verdicts thrown away and made again because something they rested on changed.")
