"""Where the computation of a scheduler runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol


class Executor(Protocol):
    """Runs a function to its end and returns what it returns."""

    async def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call *function* with *arguments*. Raises what it raises."""
        ...

    def close(self) -> None:
        """Give back what the executor holds; functions that run go on to their end."""
        ...


class InlineExecutor:
    """Runs everything where it stands: under virtual time, the same seed gives the same run."""

    async def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call *function* at once."""
        return function(*arguments)

    def close(self) -> None:
        """Nothing is held."""


class ThreadExecutor:
    """Runs functions in threads; compiled kernels release the interpreter lock there."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(max_workers=max(threads, 1), thread_name_prefix="fastplan-worker")

    async def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call *function* in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)

    def close(self) -> None:
        """End the threads once they are idle."""
        self._pool.shutdown(wait=False, cancel_futures=True)
