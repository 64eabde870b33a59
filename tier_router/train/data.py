"""Rows to train on, from the data folder named by TIER_ROUTER_DATA and from our own prompts."""

from __future__ import annotations

import csv
import gzip
import hashlib
import itertools
import json
import os
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tier_router.request import Turn
from tier_router.turn import turn_of

PROMPTS = Path(__file__).with_name("prompts.txt")
HARD_GAIN, OPEN_GAIN = 0.35, 0.25
"""Assumed gains, no labels: our own hard prompts, and Arena-Hard's.  In between what MMLU-Pro
(0.23), logic puzzles and code (0.27) show for 8B against 70B and what a strong pair would."""
INTENT_SETS = ("clinc150", "banking77", "hwu64", "snips")
COMBINATIONS = 12
"""Most texts that one line of prompts.txt is written out to."""
# MMLU's mathematics is answered by letter alone there, which says little of worked answers.
NO_STEMS = {"high_school_mathematics", "college_mathematics", "elementary_mathematics"}
_OPTIONS = re.compile(r"\n\s*\(?A[.):] .*", re.S)
_CHOICE = re.compile(r"\{([^{}]*\|[^{}]*)\}")


@dataclass(frozen=True, slots=True)
class Row:
    """One example: the turn, where it is from, its gain, its weight; equal `group`, same fold."""

    turn: Turn
    source: str
    subset: str
    group: str
    gain: float
    weight: float = 1.0
    extra: bool = False
    """Trained on but never counted in a table: copies, own prompts, assumed gains."""
    scores: dict[str, float] = field(default_factory=dict)
    wins: float = 0.0
    """How often a heavy model was right where a light one was not, over all pairs of them."""


def folder() -> Path:
    """The data folder; ends the script where there is none."""
    name = os.environ.get("TIER_ROUTER_DATA")
    if not name:
        raise SystemExit("set TIER_ROUTER_DATA to the data folder (see tests/data/README.md)")
    return Path(name)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def benchmarks(root: Path) -> list[Row]:
    """The rows with right and wrong of light and heavy models; MT-Bench among them."""
    weights = {"mmlu": 1.0, "mmlu_pro": 2.0, "gsm8k": 4.0, "llmrouter": 1.5, "numersense": 0.5}
    rows = []
    for line in _lines(root / "routing" / "routing_dev.jsonl.gz"):
        light, heavy = line["light"], line["heavy"]
        above, below = _mean(heavy), _mean(light)
        rows.append(
            Row(
                turn_of(line["prompt"]),
                line["benchmark"],
                line["subset"],
                line["stem"],
                above - below,
                weights.get(line["benchmark"], 0.0),
                scores=light | heavy,
                wins=above * (1 - below),
            )
        )
    return rows


def _mean(scores: dict[str, float]) -> float:
    return sum(scores.values()) / len(scores)


def labelled(path: Path) -> list[Row]:
    """A deployment's own labels: `{"prompt", "light", "heavy"}` a line, scores in 0..1."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.strip():
            one = json.loads(line)
            light, heavy = float(one["light"]), float(one["heavy"])
            rows.append(
                Row(turn_of(one["prompt"]), "labels", "", "labels" + digest(one["prompt"]),
                    heavy - light, 4.0, True, wins=heavy * (1 - light))
            )  # fmt: skip
    return rows


def copies(rows: list[Row], seed: int = 1) -> list[Row]:
    """Stems without their options, and noisy copies, so that plain questions count by content."""
    pick = random.Random(seed)
    out = []
    for row in rows:
        if row.source == "mt_bench":
            continue
        stem = _OPTIONS.sub("", row.turn.text).removesuffix("Answer:").strip()
        asks = len(stem) > 15 and stem != row.turn.text and row.subset not in NO_STEMS
        if asks and row.source in ("mmlu", "mmlu_pro"):
            weight = row.weight * 0.4
            turn = replace(row.turn, text=_noisy(stem, pick), chars=len(stem))
            out.append(replace(row, turn=turn, weight=weight, extra=True))
        elif pick.random() < 0.25:
            turn = replace(row.turn, text=_noisy(row.turn.text, pick))
            out.append(replace(row, turn=turn, weight=row.weight * 0.3, extra=True))
    return out


def _noisy(text: str, pick: random.Random) -> str:
    kind = pick.random()
    if kind < 0.4:
        return text
    if kind < 0.6:
        return text.lower()
    if kind < 0.75:
        return text.rstrip(".?!: ")
    if kind < 0.9:
        return text.lower().rstrip(".?!: ").replace(",", "")
    place = pick.randrange(max(len(text) - 1, 1))
    return text[:place] + text[place + 1 :]


def dressed(rows: list[Row], seed: int = 2) -> list[Row]:
    """Utterances again, written as people also write them: a capital, a full stop or its lack.

    The intent sets are mostly lower case without punctuation; that must not be what is learnt.
    """
    pick = random.Random(seed)
    out = []
    for row in rows:
        text = row.turn.text
        if not text or pick.random() < 0.5:
            continue
        end = pick.choice((".", "?", "!", " please", ", thanks", " "))
        text = (text[0].upper() + text[1:]).rstrip(".?! ") + end
        out.append(replace(row, turn=turn_of(text), weight=row.weight * 0.5, extra=True))
    return out


def intents(root: Path) -> list[Row]:
    """The utterances of the intent sets, gain 0 by assumption; `subset` is split/intent."""
    with gzip.open(root / "intent" / "intents.csv.gz", "rt", encoding="utf-8", newline="") as file:
        return [
            Row(
                turn_of(line["text"]),
                line["dataset"],
                f"{line['split']}/{line['intent']}",
                f"{line['dataset']}/{line['intent']}",
                0.0,
            )
            for line in csv.DictReader(file)
        ]


def steps(root: Path) -> list[tuple[Turn, int, str]]:
    """GSM8K's train questions with the steps of their reference solutions."""
    return [
        (turn_of(line["question"]), int(line["steps"]), "train" + digest(line["question"]))
        for line in _lines(root / "prompts" / "gsm8k_train_steps.jsonl.gz")
    ]


def arena(root: Path) -> list[Row]:
    """Arena-Hard's prompts with an assumed gain; creative writing is left out."""
    return [
        Row(turn_of(line["prompt"]), "arena", line["category"], "arena" + digest(line["prompt"]),
            OPEN_GAIN, 1.0, True)
        for line in _lines(root / "prompts" / "hard_prompts.jsonl.gz")
        if line["set"].startswith("arena-hard") and line["category"] != "creative_writing"
    ]  # fmt: skip


def prompts(root: Path, source: str) -> Iterator[dict[str, Any]]:
    """The lines of one set of `hard_prompts`, to look at: set, category, prompt."""
    for line in _lines(root / "prompts" / "hard_prompts.jsonl.gz"):
        if line["set"] == source:
            yield line


def own(path: Path = PROMPTS) -> list[Row]:
    """Our own prompts, every alternative written out; the line is the group."""
    rows, label, reason = [], "", ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("# "):
            continue
        if line.startswith("[") and line.endswith("]") and len(line.split()) == 3:
            label, reason, language = line[1:-1].split()
            continue
        texts = sorted(_written_out(line))
        random.Random(line).shuffle(texts)
        gain, weight = (HARD_GAIN, 6.0) if label == "hard" else (0.0, 3.0)
        for text in texts[:COMBINATIONS]:
            subset = f"{label}/{language}/{reason}"
            rows.append(Row(turn_of(text), "own", subset, f"own/{line}", gain, weight, True))
    return rows


def _written_out(line: str) -> Iterator[str]:
    parts = _CHOICE.split(line)  # plain, choice, plain, ...
    options = [part.split("|") if i % 2 else [part] for i, part in enumerate(parts)]
    for chosen in itertools.product(*options):
        yield "".join(chosen)


def digest(text: str) -> str:
    """A short, stable name of a text."""
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
