"""Verdicts on plans, the plan queue, and the pipeline that verifies, commits and answers (plan-apply 5 to 9)."""

from fastplan.planner.evaluate import evaluate_node_plan, evaluate_plan
from fastplan.planner.result import NodeVerdict, PlanResult
from fastplan.rules import Rules

__all__ = ["NodeVerdict", "PlanResult", "Rules", "evaluate_node_plan", "evaluate_plan"]
