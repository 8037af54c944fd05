"""Reads a recorded GPU cluster: two CSV files in the layout of the openb trace, nodes and pods.

One milli-CPU counts as one MHz. A pod is a batch job of one task that takes whole GPUs: a share of one is rounded up. `gpu_spec` lists the models
that will do; the service class gives the priority. Columns may stand in any order, and others beside them.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy

from fastplan.errors import InvalidInput
from fastplan.replay.shapes import LEAST_CPU_MHZ, LEAST_MEMORY_MIB, NodeShape, ShapeTable, Tasks, TaskShape, Workload, address_of, id_maker, uuid_text
from fastplan.structs import Node

PRIORITIES: Final = {"LS": 80, "Burstable": 50, "BE": 20}
"""Priority by service class; 50 for any other."""

_NODE_COLUMNS: Final = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
_POD_COLUMNS: Final = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_spec", "qos", "creation_time", "deletion_time")
_LARGEST: Final = 2**40
_LARGEST_SECONDS: Final = 2**33
_NUMBER: Final = re.compile(r"\s*([+-]?[0-9]{1,18})(\.[0-9]*)?\s*")
_NANOSECONDS: Final = 10**9


def read_openb(nodes: Path, pods: Path, *, seed: int) -> Workload:
    """Return the workload of two CSV files.

    Raises InvalidInput naming file, line, column and value: what cannot be read, a header without a needed column, rows of another length, no rows,
    something that is no number or negative, a name twice, a pod that is deleted before it was created.
    """
    return _workload(_read_nodes(nodes, seed), _Table(pods, _POD_COLUMNS))


class _Table:
    """A CSV file with a header: yields its rows, and speaks of their fields in errors."""

    def __init__(self, path: Path, columns: tuple[str, ...]) -> None:
        self._path = path
        self._columns = columns

    def rows(self) -> Iterator[_Row]:
        """Yield the rows."""
        found = False
        try:
            with self._path.open(newline="", encoding="utf-8-sig") as file:
                reader = csv.reader(file, strict=True)
                header = [name.strip() for name in next(reader, [])]
                lacking = [column for column in self._columns if column not in header]
                if lacking:
                    raise InvalidInput(f"{self._path} line 1", ",".join(header), f"a header with the column {lacking[0]}")
                for cells in reader:
                    if not cells:
                        continue
                    where = f"{self._path} line {reader.line_num}"
                    if len(cells) != len(header):
                        raise InvalidInput(where, ",".join(cells), f"{len(header)} fields, as in the header")
                    found = True
                    yield _Row(where, dict(zip(header, cells, strict=True)))
        except OSError as problem:
            raise InvalidInput(str(self._path), str(self._path), f"a CSV file that can be read ({problem.strerror or problem})") from problem
        except UnicodeDecodeError as problem:
            raise InvalidInput(str(self._path), problem.object[problem.start : problem.start + 8].hex(" "), "UTF-8 text") from problem
        except csv.Error as problem:
            raise InvalidInput(str(self._path), "", f"a CSV file ({problem})") from problem
        if not found:
            raise InvalidInput(str(self._path), "", "rows below the header")


class _Row:
    """One row of a table."""

    def __init__(self, where: str, cells: dict[str, str]) -> None:
        self._where = where
        self._cells = cells

    def text(self, column: str) -> str:
        """Return a field as text."""
        return self._cells[column].strip()

    def name(self, column: str, seen: set[str]) -> str:
        """Return a name that is not empty and not in *seen* yet, and put it there."""
        name = self.text(column)
        if not name:
            raise self.fault(column, "a name")
        if name in seen:
            raise self.fault(column, "a name that no earlier row has")
        seen.add(name)
        return name

    def whole(self, column: str, largest: int = _LARGEST) -> int:
        """Return a whole number from 0 to *largest*."""
        number = _NUMBER.fullmatch(self._cells[column])
        if number is None or (number[2] or ".").strip(".0") or not 0 <= int(number[1]) <= largest:
            raise self.fault(column, f"a whole number from 0 to {largest}")
        return int(number[1])

    def nanoseconds(self, column: str) -> int:
        """Return a time of seconds, perhaps with a fraction, in nanoseconds."""
        number = _NUMBER.fullmatch(self._cells[column])
        if number is None or number[1].startswith("-") or int(number[1]) > _LARGEST_SECONDS:
            raise self.fault(column, f"a number of seconds from 0 to {_LARGEST_SECONDS}")
        fraction = (number[2] or ".")[1:10]
        return int(number[1]) * _NANOSECONDS + int(fraction.ljust(9, "0") or "0")

    def fault(self, column: str, expected: str) -> InvalidInput:
        """Return the error of a field."""
        return InvalidInput(f"{self._where}, column {column}", self._cells[column], expected)


def _read_nodes(path: Path, seed: int) -> list[Node]:
    draw = id_maker(seed)
    nodes: list[Node] = []
    seen: set[str] = set()
    for row in _Table(path, _NODE_COLUMNS).rows():
        name = row.name("sn", seen)
        gpus = row.whole("gpu", 1024)
        model = row.text("model")
        if gpus and not model:
            raise row.fault("model", "the GPU type of a node that has GPUs")
        shape = NodeShape(row.whole("cpu_milli"), row.whole("memory_mib"), gpus=gpus, gpu_name=model)
        nodes.append(shape.node(uuid_text(draw(16, "node", name)), name, address_of(len(nodes))))
    return nodes


def _workload(nodes: list[Node], pods: _Table) -> Workload:
    shapes = ShapeTable()
    names: list[str] = []
    numbers: list[int] = []
    arrivals_ns: list[int] = []
    ends_ns: list[int] = []
    seen: set[str] = set()
    for row in pods.rows():
        names.append(row.name("name", seen))
        numbers.append(shapes.number(_pod_shape(row)))
        arrivals_ns.append(row.nanoseconds("creation_time"))
        ends_ns.append(row.nanoseconds("deletion_time"))
        if ends_ns[-1] < arrivals_ns[-1]:
            raise row.fault("deletion_time", f"a time not before creation_time ({row.text('creation_time')})")
    order = numpy.argsort(numpy.array(arrivals_ns), kind="stable")
    tasks = Tasks(
        names=[names[place] for place in order.tolist()],
        shapes=numpy.array(numbers, numpy.uint32)[order],
        counts=numpy.ones(len(names), numpy.int64),
        arrivals_ns=numpy.array(arrivals_ns, numpy.int64)[order],
        ends_ns=numpy.array(ends_ns, numpy.int64)[order],
    )
    return Workload("openb", "pods", nodes, shapes.shapes, tasks)


def _pod_shape(row: _Row) -> TaskShape:
    gpus = row.whole("num_gpu", 1024)
    models = tuple(sorted({name.strip() for name in row.text("gpu_spec").split("|")} - {""}))
    return TaskShape(
        max(row.whole("cpu_milli"), LEAST_CPU_MHZ),
        max(row.whole("memory_mib"), LEAST_MEMORY_MIB),
        gpus=gpus,
        gpu_names=models if gpus else (),
        priority=PRIORITIES.get(row.text("qos"), 50),
    )
