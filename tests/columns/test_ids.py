"""Ids and keys: every text comes back, canonical UUIDs keep their bytes and their order."""

from __future__ import annotations

import os
import uuid

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastplan.columns.ids import key_of, keys_of, new_keys, text_of, texts_of


@given(st.one_of(st.text(), st.uuids().map(str), st.uuids().map(lambda u: str(u).upper()), st.uuids().map(lambda u: u.hex)))
def test_any_text_comes_back(text: str) -> None:
    key = key_of(text)
    assert len(key) == 16
    assert text_of(key) == text
    assert texts_of(keys_of([text])) == [text]


@given(st.uuids(), st.uuids())
def test_canonical_uuids_are_their_bytes_and_keep_their_order(a: uuid.UUID, b: uuid.UUID) -> None:
    assert key_of(str(a)) == a.bytes
    assert (key_of(str(a)) < key_of(str(b))) == (str(a) < str(b))


def test_texts_that_look_alike_have_different_keys() -> None:
    canonical = "0a0b0c0d-0000-4000-8000-00000000000f"
    alike = [canonical, canonical.upper(), canonical.replace("-", ""), canonical + " ", canonical[:-1] + "g", canonical.replace("a", "а"), ""]
    assert len({key_of(text) for text in alike}) == len(alike)


def test_new_keys_are_version_4() -> None:
    texts = texts_of(new_keys(os.urandom(16 * 100)))
    assert all(uuid.UUID(text).version == 4 and uuid.UUID(text).variant == uuid.RFC_4122 for text in texts)
    assert new_keys(b"").shape == (0, 16)


def test_bad_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        text_of(b"short")
    with pytest.raises(ValueError, match="multiple"):
        new_keys(b"12345")
    with pytest.raises(ValueError, match="16 bytes"):
        texts_of(numpy.zeros((2, 8), numpy.uint8))
