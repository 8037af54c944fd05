"""Registrations that a real server answered: the same ones pass, and the others are refused in the same words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fastplan import codec
from fastplan.errors import InvalidInput, StateError
from fastplan.server.operations import register_job
from fastplan.structs import Job
from tests.server.operated import Operated
from tests.shared_data import shared_path

FOLDER = shared_path("oracles", "http")

OTHER_PARTS = (
    # Refused before an operation sees it: by the path, the query, the shape of the JSON, or as a request to another region.
    "json: cannot unmarshal",
    "No path to region",
    "Job ID does not match name",
    # Found out when nodes are filtered or times worked out.
    "Regular expression failed to compile",
    "Version constraint is invalid",
    "Invalid cron spec",
    "Invalid time zone",
)


def registrations() -> list[tuple[str, dict[str, Any], str | None]]:
    """Return (name, body, refusal) of the recorded registrations of the open server, in order; refusal None for those that passed."""
    found = []
    for file in sorted(FOLDER.glob("[0-9]*.json")):
        exchange = json.loads(file.read_text())
        request, response = exchange["request"], exchange["response"]
        body = request.get("body")
        if request["method"] not in ("PUT", "POST") or request["path"] != "/v1/jobs" or exchange["section"] == "ACL enabled":
            continue
        if isinstance(body, dict) and isinstance(body.get("Job"), dict):
            found.append((file.stem, body, response.get("body_text") if response["status"] != 200 else None))
    return found


def answer(site: Operated, body: dict[str, Any]) -> str | None:
    """Register as recorded, and return the refusal."""
    enforce = body.get("JobModifyIndex", 0) if body.get("EnforceIndex") else None
    try:
        site.do(
            register_job,
            Job.from_api(body["Job"]),
            enforce_index=enforce,
            preserve_counts=body.get("PreserveCounts", False),
            eval_priority=body.get("EvalPriority"),
        )
    except InvalidInput as error:
        return error.wording or str(error)
    except StateError as error:
        return str(error)
    return None


def test_recorded_registrations() -> None:
    site = Operated()
    site.apply(codec.Batch([codec.UpsertNamespaces([{"Name": "team-a"}]), codec.UpsertNodePools([{"Name": "gpu"}])]))
    compared = refused = 0
    for name, body, expected in registrations():
        if expected is not None and expected.startswith("Enforcing job modify index") and "conflicting" in expected:
            # The index is that server's own.
            expected = None if site.store.job("default", body["Job"]["ID"]) is None else expected.rpartition(": ")[0]
            got = answer(site, body)
            assert got is not None, name
            assert got.rpartition(": ")[0] == expected, name
            continue
        if expected is not None and any(part in expected for part in OTHER_PARTS):
            continue
        assert answer(site, body) == expected, name
        compared += 1
        refused += expected is not None
    assert compared > 80
    assert refused > 50
    site.check_replay()


def shown_as_recorded(ours: Any, recorded: Any) -> Any:
    """Return *ours* with the zeros that servers write out and we leave out."""
    if isinstance(recorded, dict) and isinstance(ours, dict):
        return {key: shown_as_recorded(ours.get(key), value) for key, value in recorded.items()} | {
            key: value for key, value in ours.items() if key not in recorded
        }
    if isinstance(recorded, list) and isinstance(ours, list) and len(ours) == len(recorded):
        return [shown_as_recorded(*pair) for pair in zip(ours, recorded, strict=True)]
    if not ours and not recorded:
        return recorded
    return ours


@pytest.mark.parametrize(("registered", "stored"), [("147-reg-service", "148-job-get"), ("243-reg-minimal", "244-get-minimal")])
def test_recorded_defaults(registered: str, stored: str) -> None:
    site = Operated()
    site.do(register_job, Job.from_api(json.loads((FOLDER / f"{registered}.json").read_text())["request"]["body"]["Job"]))
    recorded = json.loads((FOLDER / f"{stored}.json").read_text())["response"]["body"]
    (job,) = site.store.jobs()
    ours = shown_as_recorded(job.to_api(), recorded)
    for key in ("CreateIndex", "ModifyIndex", "JobModifyIndex", "SubmitTime", "Status", "Stable"):
        del ours[key], recorded[key]
    assert ours == recorded
