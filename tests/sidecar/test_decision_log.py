"""The decision log as the sidecar writes it: one line a request, whatever came of it."""

import json
from pathlib import Path
from typing import Any


async def lines(stage: Any, path: Path) -> list[dict[str, Any]]:
    """What the log holds once the sidecar has ended."""
    await stage.sidecar.stop()
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_an_answer_leaves_a_line_without_its_text(stage: Any, tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    await stage.serve(log=str(path))
    answer = await stage.ask("a secret question", headers={"x-request-id": "mine"})
    await stage.ask("prove it", stream=True)
    await stage.http.post("/tokenize", json={"prompt": "x", "model": "light"})
    one, two = await lines(stage, path)
    assert (one["id"], one["door"], one["tier"], one["status"]) == ("mine", "sidecar", "light", 200)
    assert one["replica"] == answer.headers["x-tier-router-replica"]
    assert one["usage"]["completion"] == answer.json()["usage"]["completion_tokens"]
    assert (two["tier"], two["stream"], two["reasons"]) == ("heavy", True, ["hard"])
    assert 0 < two["ttft"] <= two["latency"]
    assert "secret" not in path.read_text()


async def test_prompts_are_written_where_asked(stage: Any, tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    await stage.serve(log={"path": str(path), "prompts": True})
    await stage.ask("a secret question")
    assert [line["text"] for line in await lines(stage, path)] == ["a secret question"]


async def test_refusals_and_failovers_are_in_it(stage: Any, tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    await stage.serve(log=str(path))
    assert (await stage.ask("hello", model="nobody")).status_code == 404
    for fake in stage.light:
        await fake.stop()
    assert (await stage.ask("hello")).status_code == 200
    refused, moved = await lines(stage, path)
    assert (refused["outcome"], refused["status"], refused["attempts"]) == (
        "model_not_found", 404, 0,
    )  # fmt: skip
    assert (moved["tier"], moved["attempts"]) == ("heavy", 3)
    assert sorted(moved["failed"]) == ["light-0", "light-1"]


async def test_a_reload_moves_the_log(stage: Any, tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    await stage.serve(log=str(first))
    await stage.ask()
    await stage.sidecar.reload(stage.config(log=str(second)))
    await stage.ask()
    assert len(await lines(stage, second)) == 1
    assert len(first.read_text().splitlines()) == 1


async def test_no_log_no_file(stage: Any, tmp_path: Path) -> None:
    await stage.serve()
    await stage.ask()
    assert stage.sidecar._app.up.book.dropped == 0
    assert not list(tmp_path.iterdir())
