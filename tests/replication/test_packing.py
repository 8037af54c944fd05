"""The payload of a row."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastplan.replication.packing import ENTRY, NOOP, BadPayload, chain_value, pack, unpack


@given(st.lists(st.tuples(st.binary(max_size=300), st.binary(max_size=40)), min_size=1, max_size=30), st.sampled_from([ENTRY, NOOP]))
def test_a_payload_unpacks_to_what_was_packed(pairs: list[tuple[bytes, bytes]], kind: int) -> None:
    payload = pack(kind, [entry for entry, _ in pairs], [key for _, key in pairs])
    assert unpack(payload) == [(kind, key, entry) for entry, key in pairs]


def test_the_layout_does_not_change() -> None:
    assert pack(ENTRY, [b"ab", b""], [b"", b"key"]) == bytes.fromhex("02000000 02000000 00000000 0000 0300 01 01") + b"keyab"


@given(st.binary(max_size=80))
def test_other_bytes_are_refused_or_add_up(payload: bytes) -> None:
    try:
        stored = unpack(payload)
    except BadPayload:
        return
    assert 4 + sum(7 + len(key) + len(entry) for _, key, entry in stored) == len(payload)


def test_a_payload_cut_anywhere_is_refused() -> None:
    payload = pack(ENTRY, [b"abc", b"defg"], [b"k", b""])
    for end in range(len(payload)):
        with pytest.raises(BadPayload):
            unpack(payload[:end])


def test_the_chain_covers_every_column() -> None:
    values = {
        chain_value(*columns)
        for columns in [(0, 1, 2, 1, b"x"), (1, 1, 2, 1, b"x"), (0, 2, 2, 1, b"x"), (0, 1, 3, 1, b"x"), (0, 1, 2, 2, b"x"), (0, 1, 2, 1, b"y")]
    }
    assert len(values) == 6
