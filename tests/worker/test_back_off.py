"""Delays after failures (worker-and-broker 6.4, 11.4 rows 88 to 90)."""

import pytest

from fastplan.worker import FAST, SEED, SLOW, VERSION_MISMATCH, BackOff, Profile


def delays_ms(profile, count):
    back_off = BackOff()
    return [round(back_off.next_delay_s(profile) * 1000) for _ in range(count)]


@pytest.mark.parametrize(
    ("profile", "expected_ms"),
    [
        (FAST, [20, 40, 80, 160, 320, 640, 1280, 2560, 5120, 10000, 10000]),
        (SLOW, [500, 1000, 2000, 4000, 8000, 10000, 10000]),
        (VERSION_MISMATCH, [30000, 30000]),
        (SEED, [20, 80, 320, 1280, 5000, 5000]),
    ],
)
def test_series(profile, expected_ms):
    assert delays_ms(profile, len(expected_ms)) == expected_ms


def test_a_million_failures_give_the_limit():
    assert FAST.delay_s(10**6) == 10.0
    assert SEED.delay_s(10**9) == 5.0


def test_no_base_no_delay():
    assert Profile(0.0, 10.0).delay_s(5) == 0.0
    assert Profile(-1.0, 10.0).delay_s(0) == 0.0


def test_a_profile_that_does_not_grow_ends_at_its_base():
    assert Profile(0.5, 10.0, growth=1).delay_s(10**9) == 0.5


def test_reset_begins_anew():
    back_off = BackOff()
    back_off.next_delay_s(FAST)
    back_off.next_delay_s(FAST)
    back_off.reset()
    assert back_off.next_delay_s(FAST) == 0.020
