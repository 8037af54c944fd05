"""Virtual time."""

from __future__ import annotations

import asyncio

import pytest

from fastplan.testing.clock import VirtualClock, run_virtual


def test_time_moves_only_when_told_to() -> None:
    clock = VirtualClock(1000)
    assert (clock.now_ns(), clock.monotonic_s()) == (1000, 0)
    clock.advance(1.5)
    assert (clock.now_ns(), clock.monotonic_s()) == (1_500_001_000, 1.5)
    clock.jump_wall(-1)
    assert (clock.now_ns(), clock.monotonic_s()) == (500_001_000, 1.5)
    with pytest.raises(ValueError, match="go back"):
        clock.advance(-1)


def test_a_day_of_sleep_takes_no_time_and_keeps_order() -> None:
    clock = VirtualClock()
    order: list[tuple[str, float]] = []

    async def sleeper(name: str, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        order.append((name, clock.monotonic_s()))

    async def run() -> None:
        await asyncio.gather(sleeper("day", 86400), sleeper("hour", 3600), sleeper("none", 0), sleeper("hour too", 3600))

    run_virtual(run(), clock)
    assert order == [("none", 0), ("hour", 3600), ("hour too", 3600), ("day", 86400)]


def test_a_deadlock_is_an_error() -> None:
    async def run() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(RuntimeError, match="waits for ever"):
        run_virtual(run(), VirtualClock())


def test_a_timer_that_is_almost_due_comes_due() -> None:
    clock = VirtualClock()

    async def run() -> None:
        due_s = clock.monotonic_s() + 0.1 + 1e-10
        while clock.monotonic_s() < due_s:
            await asyncio.sleep(due_s - clock.monotonic_s())

    run_virtual(run(), clock)
