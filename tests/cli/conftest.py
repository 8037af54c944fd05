"""Fixtures of the tests of the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_line import CommandLine


@pytest.fixture
def fastplan(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """The command, run in this process."""
    return CommandLine(monkeypatch, capsys)


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, Any], Path]:
    """Writes a value as JSON, or text and bytes as they are, to a file of that name and returns its path."""

    def write(name: str, value: Any) -> Path:
        path = tmp_path / name
        data = value if isinstance(value, str | bytes) else json.dumps(value)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return path

    return write
