"""Verdicts on earlier answers."""

import json
from pathlib import Path
from typing import Any

import pytest

from tier_router.cli.calibrate import run
from tier_router.decide import Decision, Reason
from tier_router.view import view_of
from tier_router_proxy.feedback import BYTES, WHOLE_BYTES, Feedback

FEEDBACK = "/v1/tier/feedback"


async def give(stage: Any, answer: Any, verdict: str, **more: Any) -> Any:
    body = {"request_id": answer.headers["x-request-id"], "verdict": verdict, **more}
    return await stage.http.post(FEEDBACK, json=body)


@pytest.mark.parametrize(
    ("text", "verdict", "preferred"),
    [
        ("hello", "good", "light"),
        ("hello", "underpowered", "heavy"),
        ("hello", "overkill", "light"),
        ("prove it", "good", "heavy"),
        ("prove it", "underpowered", "heavy"),
        ("prove it", "overkill", "light"),
    ],
)
async def test_a_verdict_is_kept_as_a_label(
    stage: Any, tmp_path: Path, text: str, verdict: str, preferred: str
) -> None:
    file = tmp_path / "labels.jsonl"
    await stage.serve(feedback=str(file))
    answer = await stage.ask(text, stream=True)
    told = await give(stage, answer, verdict, remark="so it was")
    assert (told.status_code, told.json()["kept"]) == (200, True)
    (line,) = file.read_text().splitlines()
    label = json.loads(line)
    assert label["preferred"] == preferred
    assert label["verdict"] == verdict
    assert label["tier"] == answer.headers["x-tier-router-tier"]
    assert label["request"]["messages"] == [{"role": "user", "content": text}]
    assert label["remark"] == "so it was"
    assert file.stat().st_mode & 0o777 == 0o600
    again = await give(stage, answer, verdict)
    assert (again.status_code, again.json()["error"]["code"]) == (404, "unknown_request_id")


@pytest.mark.parametrize(
    ("body", "status", "param", "told"),
    [
        ({"request_id": "nope", "verdict": "good"}, 404, "request_id", "`nope` is remembered"),
        ({"verdict": "good"}, 400, "request_id", "must be a string"),
        ({"request_id": "x", "verdict": "fine"}, 400, "verdict", "good, underpowered, overkill"),
        ({"request_id": "x", "verdict": ["good"]}, 400, "verdict", "must be one of"),
        ({"request_id": "x", "verdict": "good", "remark": 5}, 400, "remark", "must be a string"),
    ],
)
async def test_what_is_no_verdict(
    stage: Any, tmp_path: Path, body: Any, status: int, param: str, told: str
) -> None:
    http = await stage.serve(feedback=str(tmp_path / "labels.jsonl"))
    answer = await http.post(FEEDBACK, json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (status, param)
    assert told in error["message"]


async def test_nothing_is_remembered_unless_asked(stage: Any) -> None:
    await stage.serve()
    answer = await give(stage, await stage.ask(), "good")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "feedback_not_configured")
    assert repr(stage.sidecar._app.up.feedback) == "<Feedback on 0 answers, 0 bytes>"


async def test_a_file_that_cannot_be_written(stage: Any, tmp_path: Path) -> None:
    await stage.serve(feedback=str(tmp_path / "no" / "labels.jsonl"))
    answer = await stage.ask()
    told = await give(stage, answer, "good")
    assert told.status_code == 500
    assert "could not be written" in told.json()["error"]["message"]
    (tmp_path / "no").mkdir()
    assert (await give(stage, answer, "good")).status_code == 200, "it was not lost"


async def test_calibrate_reads_the_file(stage: Any, tmp_path: Path) -> None:
    file, config, out = (tmp_path / name for name in ("l.jsonl", "config.yaml", "out.yaml"))
    await stage.serve(feedback=str(file))
    for number in range(4):
        await give(stage, await stage.ask(f"prove\nit {number}"), "overkill")
        await give(stage, await stage.ask(f"hello {number}"), "good")
    tiers = [
        {"name": tier.name, "model": tier.model, "replicas": ["http://x"]}
        for tier in stage.sidecar.router.config.tiers
    ]
    config.write_text(json.dumps({"tiers": [tiers[0], {**tiers[1], "replicas": ["http://y"]}]}))
    run(config, None, None, file, out)
    assert "read: 8" in out.read_text()


def test_what_is_remembered_is_bounded() -> None:
    decision = Decision("light", "light-0", "http://x", "m", (Reason.EASY,))
    feedback = Feedback()
    large = b'{"prompt":"' + b"x" * (WHOLE_BYTES - 20) + b'"}'
    view = view_of({"prompt": "x"})
    for number in range(BYTES // WHOLE_BYTES + 50):
        feedback.answered(str(number), decision, large, view)
    assert feedback._bytes <= BYTES
    feedback.answered("huge", decision, large * 10, view_of({"prompt": "short after all"}))
    assert b"short after all" in feedback._answers["huge"].request
    assert "0" not in feedback._answers
