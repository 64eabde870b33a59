"""The figures of a report, against logs whose answer is known."""

import json
import math
from pathlib import Path

import pytest

from tests.evidence.conftest import YAML, Written, record
from tier_router.config import Config, parse
from tier_router.errors import RequestError
from tier_router.evidence import collect as collecting
from tier_router.evidence import collected, difference_of, opened, report_of
from tier_router.evidence.engines import Engine
from tier_router.evidence.figures import Report
from tier_router.evidence.page import page
from tier_router.evidence.wilson import share


def report(path: Path, config: Config, **options: object) -> Report:
    with opened(path) as source, collected(source, [config], **options) as found:  # type: ignore[arg-type]
        return report_of(found, config)


def test_wilson_s_interval_is_the_published_one() -> None:
    found = share(81, 263)  # Newcombe 1998, table I: 0.2553 to 0.3662
    assert (round(found.low, 4), round(found.high, 4)) == (0.2553, 0.3662)
    none = share(0, 20)  # and 0.0000 to 0.1611
    assert (none.low, round(none.high, 4)) == (0.0, 0.1611)
    assert math.isnan(share(0, 0).value)


def test_a_log_of_decisions_gives_shares_sums_and_projections(
    config: Config, written: Written
) -> None:
    hard = {"tier": "heavy", "reasons": ["hard"], "difficulty": 0.9}
    of_intent = {"reasons": ["intent"], "intent": "hours", "threshold": None}
    log = [
        record(n, **(hard if n % 4 == 0 else of_intent if n % 4 == 1 else {})) for n in range(40)
    ]
    found = report(written(log), config)
    assert (found.largest.count, found.largest.total) == (10, 40)
    assert found.largest.low < 0.25 < found.largest.high
    assert (found.intents["hours"].count, found.intents["hours"].total) == (0, 10)
    assert {side.tier: side.requests.count for side in found.by_tier} == {"light": 30, "heavy": 10}
    # one light request: 160 / 16,000 + 0.008 s; then 99 tokens at 8 ms
    light = found.by_tier[0]
    assert light.ttft.p50 == pytest.approx(0.018)
    assert light.latency.p50 == pytest.approx(0.018 + 99 * 0.008)
    assert light.gpu_hours == pytest.approx(30 * (0.01 + 100 * 0.008 / 16) / 3600)
    heavy = (0.04 + 100 * 0.03 / 16) * 4 / 3600
    assert found.all_largest.gpu_hours == pytest.approx(40 * heavy)
    assert found.all_largest.cost == pytest.approx(2 * 40 * heavy)
    assert found.routed.gpu_hours == pytest.approx(light.gpu_hours + 10 * heavy)


def test_what_load_did_to_a_request_is_not_what_it_needs(config: Config, written: Written) -> None:
    spilled = record(0, tier="heavy", reasons=["easy", "spilled"])
    ruled = record(1, tier="heavy", reasons=["rule"])
    pinned = record(2, tier="heavy", reasons=["pinned"], asked="heavy")
    unsure = record(3, tier="heavy", reasons=["unsure"], difficulty=None, abstain="empty")
    long = record(4, tokens=20_000)
    found = report(written([spilled, ruled, pinned, unsure, long]), config)
    assert (found.largest.count, found.largest.total) == (4, 5)
    assert found.reasons == {
        "easy": 1, "easy,needs_context": 1, "pinned": 1, "rule": 1, "unsure": 1,
    }  # fmt: skip


def test_plain_prompts_are_judged_and_the_nearest_to_the_line_are_shown(
    config: Config, tmp_path: Path
) -> None:
    path = tmp_path / "prompts.txt"
    path.write_text("when do you open\n\nThanks!\nProve Fermat's last theorem for n = 4.\n" * 3)
    found = report(path, config)
    assert found.log["format"] == "plain"
    assert (found.log["judged"], found.log["other_lines"]) == (9, 3)
    assert found.intents["hours"].total == 3
    texts = [near.text for near in found.boundary]
    assert len(texts) == len(set(texts))  # what was asked three times is shown once
    assert any("Fermat" in (text or "") for text in texts)
    assert any("no counted answer" in each for each in found.basis)


def test_lines_that_cannot_be_read_are_counted_and_the_first_are_shown_with_their_numbers(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collecting, "CHUNK", 300)
    good = b'{"messages": [{"role": "user", "content": "when do you open"}]}\n'
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"".join(good if n % 10 else b"{broken\n" for n in range(1, 101)))
    with opened(path) as source:
        assert len(source.chunks()) > 10
    found = report(path, config, processes=1)
    assert (found.log["lines"], found.log["judged"], found.log["unreadable"]) == (100, 90, 10)
    assert [each["line"] for each in found.log["problems"]] == [10, 20, 30, 40, 50]


def test_pieces_of_any_size_and_several_processes_give_the_same_report(
    config: Config, written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(record(n, difficulty=(n % 97) / 97) for n in range(500))
    whole = report(path, config)
    monkeypatch.setattr(collecting, "CHUNK", 10_007)
    for processes in (1, 2):
        found = report(path, config, processes=processes)
        assert found.routed.gpu_hours == pytest.approx(whole.routed.gpu_hours)
        for name in ("log", "largest", "intents", "reasons", "difficulties", "boundary"):
            assert getattr(found, name) == getattr(whole, name)


def test_a_draw_of_a_long_log_is_near_the_whole_and_its_sums_are_scaled_up(
    config: Config, tmp_path: Path
) -> None:
    path = tmp_path / "prompts.txt"
    path.write_text("when do you open\nProve Fermat's last theorem.\n" * 2_000)
    whole, drawn = report(path, config), report(path, config, judge=1_000)
    assert 800 < drawn.log["judged"] < 1_200
    assert drawn.routed.output_tokens == pytest.approx(whole.routed.output_tokens, rel=0.15)
    assert any("drawn at random" in each for each in drawn.basis)


def test_what_pruning_would_remove_is_summed_over_bodies(config: Config, written: Written) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    spaced = json.dumps([{"name": "row", "value": n} for n in range(100)], indent=8)
    body = {
        "messages": [
            {"role": "user", "content": "list the rows"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": spaced},
        ]
    }
    path = written([body] * 3)
    found = report(path, config, pruning=True).pruning
    assert found is not None
    assert found["requests"] == 3
    assert found["removed"] == sum(found["steps"].values()) > 0.1 * found["tokens"]
    assert "fold" in found["steps"]
    assert report(path, config).pruning is None


def test_nothing_to_read_is_an_error_that_says_so(config: Config, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text("\n\n")
    with pytest.raises(RequestError, match="nothing to read"):
        report(path, config)
    path.write_text("{}\n")
    with pytest.raises(RequestError, match="no request could be read: line 1: no `messages`"):
        report(path, config)


def test_the_page_holds_everything_and_asks_nobody(config: Config, tmp_path: Path) -> None:
    path = tmp_path / "prompts.txt"
    path.write_text("when do you open\n<script>alert(1)</script> is this safe?\n")
    text = page(report(path, config))
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "http" not in text.replace('xmlns="http', "")
    assert "prefers-color-scheme: dark" in text
    assert text.count("<svg") == 3


def test_ray_that_is_not_installed_names_its_extra(
    config: Config, written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(ImportError, match=r"tier-router\[ray\]"):
        report(written([record(0)]), config, engine=Engine.RAY)


# ---- diff

CHANGED = YAML.replace("threshold: 0.5", "threshold: 0.8")


def test_a_higher_line_moves_what_lies_between_and_costs_less(
    config: Config, written: Written
) -> None:
    path = written(record(n, difficulty=n / 100) for n in range(100))
    raised = parse(CHANGED)
    with opened(path) as source, collected(source, [config, raised]) as found:
        difference = difference_of(found, config, raised)
    assert (difference.moved.count, difference.moved.total) == (30, 100)
    (move,) = difference.moves
    assert (move.source, move.target, move.reason, move.reason_new) == (
        "heavy", "light", "hard", "easy",
    )  # fmt: skip
    assert [each.line for each in difference.examples][:2] == [51, 52]
    assert difference.cost.new < difference.cost.old  # type: ignore[operator]
    assert difference.latency.new < difference.latency.old  # type: ignore[operator]


def test_what_only_one_configuration_can_take_moves_too(config: Config, written: Written) -> None:
    small = parse(CHANGED.replace("context: 32000", "context: 4000"))
    path = written([record(0), record(1, tokens=20_000)])
    with opened(path) as source, collected(source, [config, small]) as found:
        difference = difference_of(found, config, small)
    assert [(move.source, move.target) for move in difference.moves] == [
        ("heavy", "refused: context_length_exceeded")
    ]
