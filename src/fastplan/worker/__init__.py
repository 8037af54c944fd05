"""Workers: take an evaluation, wait for the state it needs, run its scheduler, submit, ack or nack (worker-and-broker 6)."""

from fastplan.worker.back_off import FAST, SEED, SLOW, VERSION_MISMATCH, BackOff, Profile
from fastplan.worker.executor import Executor, InlineExecutor, ThreadExecutor
from fastplan.worker.worker import Dequeued, Endpoints, StateAccess, Worker, WorkerInfo, WorkerMetrics, WorkerSettings, WorkerStatus, WorkloadStatus

__all__ = [
    "FAST",
    "SEED",
    "SLOW",
    "VERSION_MISMATCH",
    "BackOff",
    "Dequeued",
    "Endpoints",
    "Executor",
    "InlineExecutor",
    "Profile",
    "StateAccess",
    "ThreadExecutor",
    "Worker",
    "WorkerInfo",
    "WorkerMetrics",
    "WorkerSettings",
    "WorkerStatus",
    "WorkloadStatus",
]
