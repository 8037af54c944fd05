"""From an allocation's columns to its record: the texts that columns refer to by number, and putting both together."""

from __future__ import annotations

from typing import NamedTuple

from fastplan.state.statuses import CLIENT_TEXTS, DESIRED_TEXTS, client_number, desired_number
from fastplan.structs import AllocatedResources, Allocation

NO_ROW = 0xFFFFFFFF
"""Stands for "no row" in columns of row numbers."""


class AllocFields(NamedTuple):
    """What the columns hold of one allocation; `AllocView.fields` returns these in this order. Times in Unix nanoseconds."""

    id: str
    node_ref: int
    group_row: int
    name_index: int
    create_index: int
    create_time_ns: int
    modify_index: int
    modify_time_ns: int
    alloc_modify_index: int
    desired: int
    client: int
    irregular: bool
    job_version_row: int
    eval_ref: int
    shape_row: int
    claims: list[int]
    extra: int
    note: int


class StopNote(NamedTuple):
    """What a stop or preemption says about an allocation (plan-apply 5.4). Empty parts leave what the record says."""

    description: str = ""
    followup_eval_id: str = ""
    preempted_by: str = ""

    def over(self, older: StopNote) -> StopNote:
        """Return the note that stands after this one was written over *older*."""
        return StopNote(self.description, self.followup_eval_id or older.followup_eval_id, self.preempted_by or older.preempted_by)


class Notes:
    """Numbers of stop notes: equal notes have one number. Append-only, so all snapshots share them."""

    def __init__(self) -> None:
        self.items: list[StopNote] = []
        self._numbers: dict[StopNote, int] = {}

    def intern(self, note: StopNote) -> int:
        """Return the number of *note*."""
        number = self._numbers.get(note)
        if number is None:
            number = len(self.items)
            self.items.append(note)
            self._numbers[note] = number
        return number


def preemption_note(preempted_by: str) -> StopNote:
    """Return the note of an allocation that another one preempts (plan-apply 5.4)."""
    return StopNote(f"Preempted by alloc ID {preempted_by}", "", preempted_by)


def alloc_name(job_id: str, group: str, index: int) -> str:
    """Return the name of the allocation with this index of a group."""
    return f"{job_id}.{group}[{index}]"


def name_index_of(name: str, job_id: str, group: str) -> int:
    """Return the index in a name that says exactly `job.group[index]`, −1 if it says something else."""
    head = f"{job_id}.{group}["
    if name.startswith(head) and name.endswith("]"):
        digits = name[len(head) : -1]
        # 007 and signs would not come back as they were.
        if digits.isascii() and digits.isdigit() and (digits == "0" or digits[0] != "0") and len(digits) < 10:
            return int(digits)
    return -1


def fill_record(fields: AllocFields, extra: Allocation | None, note: StopNote | None, resources: AllocatedResources | None) -> Allocation:
    """Return the record of an allocation: what the columns say, over what its extra says. Node, group, job and evaluation are the caller's to add."""
    alloc = Allocation() if extra is None else extra.copy()
    alloc.id = fields.id
    if alloc.allocated_resources is None:
        alloc.allocated_resources = resources
    if desired_number(alloc.desired_status) != fields.desired or extra is None:
        alloc.desired_status = DESIRED_TEXTS[fields.desired]
    if client_number(alloc.client_status) != fields.client or extra is None:
        alloc.client_status = CLIENT_TEXTS[fields.client]
    if note is not None:
        alloc.desired_description = note.description
        alloc.followup_eval_id = note.followup_eval_id or alloc.followup_eval_id
        alloc.preempted_by_allocation = note.preempted_by or alloc.preempted_by_allocation
    alloc.create_index = fields.create_index
    alloc.create_time = fields.create_time_ns
    alloc.modify_index = fields.modify_index
    alloc.modify_time = fields.modify_time_ns
    alloc.alloc_modify_index = fields.alloc_modify_index
    return alloc
