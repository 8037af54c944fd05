"""Schedulers: where work goes (schedulers.md)."""

from fastplan.scheduler.attributes import parse_attribute
from fastplan.scheduler.difference import tasks_updated
from fastplan.scheduler.operands import check_attribute_constraint, check_constraint
from fastplan.scheduler.preempt_calls import preempt_for_device, preempt_for_network, preempt_for_task_group
from fastplan.scheduler.reconciler.node import reconcile_system
from fastplan.scheduler.targets import resolve_device_target, resolve_target

__all__ = [
    "reconcile_system",
    "check_attribute_constraint",
    "check_constraint",
    "parse_attribute",
    "preempt_for_device",
    "preempt_for_network",
    "preempt_for_task_group",
    "resolve_device_target",
    "resolve_target",
    "tasks_updated",
]
