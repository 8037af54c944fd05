"""fastplan verifies and commits cluster scheduling plans: a compiled fit checker, a plan applier and a durable log."""

from fastplan.structs import Allocation, Deployment, Evaluation, Job, Node, Plan, PlanResult

__version__ = "0.1.0"

__all__ = ["Allocation", "Deployment", "Evaluation", "Job", "Node", "Plan", "PlanResult", "__version__"]
