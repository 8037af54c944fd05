"""Datacenters and node pools of a job (schedulers 2.6)."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable

from fastplan.structs import Node

ALL_POOLS = "all"
DEFAULT_POOL = "default"


@functools.lru_cache(1024)
def _pattern(glob: str, strict: bool) -> re.Pattern[str]:
    parts = {"*": ".*", "?": "."} if strict else {"*": ".*"}
    return re.compile("".join(parts.get(letter) or re.escape(letter) for letter in glob), re.DOTALL)


def matches_datacenter(globs: Iterable[str], datacenter: str, *, strict: bool = True) -> bool:
    """Return whether some pattern matches: `*` is any text, and under *strict* rules `?` any one character; case counts."""
    return any(_pattern(glob, strict).fullmatch(datacenter) for glob in globs)


def node_in_pool(pool: str, node: Node) -> bool:
    """Return whether a node belongs to a job's pool."""
    return is_in_pool(pool, node.node_pool)


def is_in_pool(pool: str, node_pool: str) -> bool:
    """Return whether nodes of a pool belong to a job's pool; all do to `all`, and to no name."""
    return pool in ("", ALL_POOLS) or pool == (node_pool or DEFAULT_POOL)
