"""The settings of a server: every one is checked, and a message names it with its value."""

import pytest

from fastplan.errors import InvalidInput
from fastplan.rules import Rules
from fastplan.server import ServerConfig
from fastplan.testing import VirtualClock


def test_without_settings_everything_has_its_default():
    config = ServerConfig()
    assert (config.data_dir, config.workers, config.rules, config.overlap, config.replication, config.seed) == (None, 2, Rules.STRICT, "enforce", "local", None)
    assert (config.nack_timeout_s, config.delivery_limit, config.initial_nack_delay_s, config.subsequent_nack_delay_s) == (60, 3, 1, 20)
    assert (config.failed_follow_up_baseline_s, config.failed_follow_up_range_s, config.unblock_failed_interval_s) == (60, 300, 60)


def test_settings_are_read_from_toml():
    config = ServerConfig.from_toml('workers = 8\nrules = "nomad"\noverlap = "head"\nnack_timeout_s = 5\nfair_share = true\ndata_dir = "data"\nseed = -3\n')
    expected = ServerConfig(workers=8, rules=Rules.NOMAD, overlap="head", nack_timeout_s=5, fair_share=True, data_dir="data", seed=-3, clock=config.clock)
    assert config == expected


WRONG = [
    ("workers", -1, "integer from 0 to 256"),
    ("workers", 257, "integer from 0 to 256"),
    ("workers", "two", "integer from 0 to 256"),
    ("workers", True, "integer from 0 to 256"),
    ("rules", "lenient", '"nomad" or "strict"'),
    ("overlap", "none", '"enforce" or "pr16097" or "head"'),
    ("replication", "paper", '"local"'),
    ("executor", "dice", '"threads" or "inline"'),
    ("seed", 1.5, "integer or None"),
    ("data_dir", 3, "path of a directory or None"),
    ("data_dir", "", "path of a directory or None"),
    ("fair_share", 1, "boolean"),
    ("rejection_tracker", "yes", "boolean or None"),
    ("delivery_limit", 0, "integer ≥ 1"),
    ("low_water_bytes", -1, "integer ≥ 0"),
    ("nack_timeout_s", 0, "seconds > 0"),
    ("nack_timeout_s", float("nan"), "seconds > 0"),
    ("reap_interval_s", "1s", "seconds > 0"),
    ("initial_nack_delay_s", -0.5, "seconds ≥ 0"),
    ("prune_interval_s", 1e13, r"at most 1e\+12"),
]


@pytest.mark.parametrize(("name", "value", "expected"), WRONG)
def test_a_setting_that_makes_no_sense_is_named_with_its_value(name, value, expected):
    text = {True: "true", False: "false"}.get(value, repr(value).replace("'", '"')) if isinstance(value, bool) else repr(value).replace("'", '"')
    for make in (lambda: ServerConfig(**{name: value}), lambda: ServerConfig.from_toml(f"{name} = {text}")):
        with pytest.raises(InvalidInput, match=f"server.{name}: expected .*{expected}") as caught:
            make()
        assert caught.value.path == f"server.{name}"
        assert repr(caught.value.value) == repr(value)


def test_every_setting_refuses_what_none_of_them_can_be():
    for name in ServerConfig.__struct_fields__:
        with pytest.raises(InvalidInput, match=rf"server\.{name}: "):
            ServerConfig(**{name: object()})


def test_unknown_settings_are_named():
    with pytest.raises(InvalidInput, match=r"server\.wrokers: expected one of the settings data_dir, .*, workers, got 3"):
        ServerConfig.from_toml("wrokers = 3")
    with pytest.raises(InvalidInput, match=r"server\.server: "):
        ServerConfig.from_toml("[server]\nworkers = 3")
    with pytest.raises(InvalidInput, match=r"server\.clock: "):
        ServerConfig.from_toml('clock = "mine"')
    with pytest.raises(InvalidInput, match=r"TOML text"):
        ServerConfig.from_toml("workers = = 3")
    with pytest.raises(TypeError, match="wrokers"):
        ServerConfig(wrokers=3)  # type: ignore[call-arg]


def test_any_clock_will_do():
    clock = VirtualClock()
    assert ServerConfig(clock=clock).time is clock
