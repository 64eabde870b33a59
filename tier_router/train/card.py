"""The tables of `tier_router/data/MODEL_CARD.md` and the text around them."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tier_router.classify import features
from tier_router.classify.difficulty import Difficulty
from tier_router.encoder import StaticEncoder
from tier_router.train import data, measure
from tier_router.train.data import Row

Floats = npt.NDArray[np.float64]
Tables = Mapping[str, Mapping[str, Mapping[str, float]]]

PAIRS = (
    ("MMLU, Mixtral-8x7B > GPT-4-1106", "mmlu", "mixtral-8x7b", "gpt-4-1106"),
    ("GSM8K, Mixtral-8x7B > GPT-4-1106", "gsm8k", "mixtral-8x7b", "gpt-4-1106"),
    (
        "GSM8K, Llama-3.1-8B > 405B",
        "gsm8k",
        "Meta-Llama-3.1-8B-Instruct",
        "Llama-3.1-405B-Inst@sambanova",
    ),
    (
        "MMLU-Pro, Llama-3.1-8B > 70B",
        "mmlu_pro",
        "Meta-Llama-3_1-8B-Instruct",
        "Meta-Llama-3_1-70B-Instruct",
    ),
    (
        "LLMRouter tasks, Llama-3.1-8B > Nemotron-51B",
        "llmrouter",
        "llama-3.1-8b-instruct",
        "llama-3.1-nemotron-51b-instruct",
    ),
)
MT_BENCH = ("MT-Bench (evaluation only), Mixtral-8x7B > GPT-4-1106", "mt_bench", *PAIRS[0][2:])
FLIPS = 1_500
"""Texts that the flip rates are taken over."""
TEMPLATE = Path(__file__).with_name("card.md")


@dataclass(frozen=True, slots=True)
class Scored:
    """Rows with the score that a model which had not seen them gave each."""

    rows: Sequence[Row]
    score: Floats

    def pair(self, source: str, light: str, heavy: str) -> tuple[Floats, Floats, Floats]:
        """(scores, light right, heavy right) of one benchmark."""
        at = [
            index
            for index, row in enumerate(self.rows)
            if row.source == source and not row.extra and light in row.scores
            and heavy in row.scores
        ]  # fmt: skip
        below = np.array([self.rows[index].scores[light] for index in at])
        above = np.array([self.rows[index].scores[heavy] for index in at])
        return self.score[at], below, above

    def of(self, source: str) -> Floats:
        """The scores of one source's rows."""
        at = [row.source == source and not row.extra for row in self.rows]
        found: Floats = self.score[np.array(at, bool)]
        return found


def routing(held_out: Scored, never: Scored) -> dict[str, dict[str, float]]:
    """APGR and CPT by benchmark, and on the service mix."""
    out = {
        name: measure.table_row(*held_out.pair(source, light, heavy))
        for name, source, light, heavy in PAIRS
    }
    name, source, light, heavy = MT_BENCH
    out[name] = measure.table_row(*never.pair(source, light, heavy))
    out["Service mix"] = measure.table_row(*_service_mix(held_out))
    return out


def _service_mix(held_out: Scored) -> tuple[Floats, Floats, Floats]:
    """Half simple requests (both right), a quarter tasks, a quarter MMLU-Pro and GSM8K."""
    pick = np.random.default_rng(4)
    tasks = held_out.pair(*PAIRS[4][1:])
    size = len(tasks[0])
    hard = [held_out.pair(*PAIRS[index][1:]) for index in (2, 3)]
    joined = [np.concatenate(parts) for parts in zip(*hard, strict=True)]
    chosen = pick.choice(len(joined[0]), size, replace=False)
    easy = np.concatenate([held_out.of(source) for source in data.INTENT_SETS])
    easy = pick.choice(easy, 2 * size, replace=False)
    ones = np.ones(2 * size)
    return (
        np.concatenate([tasks[0], joined[0][chosen], easy]),
        np.concatenate([tasks[1], joined[1][chosen], ones]),
        np.concatenate([tasks[2], joined[2][chosen], ones]),
    )


def shares(held_out: Scored, never: Scored, threshold: float) -> dict[str, dict[str, float]]:
    """The share that goes to the heavy tier at the default threshold."""
    out: dict[str, dict[str, float]] = {}
    for source in data.INTENT_SETS:
        out[f"{source}, test split"] = _share(never.of(source), threshold)
        out[f"{source}, intents never seen"] = _share(held_out.of(source), threshold)
    for source in ("mmlu", "mmlu_pro", "gsm8k", "llmrouter", "numersense"):
        out[source] = _share(held_out.of(source), threshold)
    for label in ("easy", "hard"):
        at = [row.source == "own" and row.subset.startswith(label) for row in held_out.rows]
        out[f"our own {label} prompts, line never seen"] = _share(
            held_out.score[np.array(at)], threshold
        )
    return out


def _share(score: Floats, threshold: float) -> dict[str, float]:
    return {"texts": float(len(score)), "heavy": float((score >= threshold).mean())}


def flips(
    rows: Sequence[Row], judge: Callable[[Row], float], threshold: float
) -> dict[str, dict[str, float]]:
    """How often a change that means nothing changes the side of the threshold."""
    pick = random.Random(9)
    part = {"clinc150": 0.25, "banking77": 0.25, "mmlu": 0.15, "mmlu_pro": 0.15, "gsm8k": 0.1}
    part["llmrouter"] = 0.1
    chosen = []
    for source, share in part.items():
        own = [row for row in rows if row.source == source and not row.extra]
        chosen += pick.sample(own, min(int(share * FLIPS), len(own)))
    before = [judge(row) >= threshold for row in chosen]
    out = {}
    for name, change in CHANGES.items():
        after = [
            judge(replace(row, turn=replace(row.turn, text=change(row.turn.text, pick))))
            >= threshold
            for row in chosen
        ]
        moved = [a != b for a, b in zip(before, after, strict=True)]
        out[name] = {"texts": float(len(chosen)), "flipped": sum(moved) / len(moved)}
    return out


def _typos(text: str, pick: random.Random) -> str:
    """Two neighbouring letters swapped in one long word of eight, at least in one."""
    words = text.split(" ")
    long = [at for at, word in enumerate(words) if len(word) > 3]
    for at in pick.sample(long, min(len(long), max(len(words) // 8, 1))):
        word = words[at]
        i = pick.randrange(1, len(word) - 2)
        words[at] = word[:i] + word[i + 1] + word[i] + word[i + 2 :]
    return " ".join(words)


CHANGES: Mapping[str, Callable[[str, random.Random], str]] = {
    "lower case": lambda text, _: text.lower(),
    "upper case": lambda text, _: text.upper(),
    "no punctuation at the end": lambda text, _: text.rstrip(".?!: \n"),
    "typos": _typos,
    "padding: a greeting before": lambda text, _: f"Hi! I hope you can help me. {text}",
    "padding: thanks after": lambda text, _: f"{text}\nThanks a lot in advance!",
    "spaces doubled": lambda text, _: text.replace(" ", "  "),
}


def judge_with(model: Difficulty, encoder: StaticEncoder) -> Callable[[Row], float]:
    """The shipped model's difficulty of one row."""

    def judge(row: Row) -> float:
        seen = features.glance(row.turn)
        return model.of_row(model.row(seen, encoder.of_words(seen.words)))

    return judge


# ---- the text


def text(
    tables: Tables, threshold: float, prior: float, quantiles: Mapping[str, float], size: int
) -> str:
    """The model card."""
    return TEMPLATE.read_text(encoding="utf-8").format(
        threshold=threshold,
        prior=prior,
        size=size / 1e6,
        routing=_routing_rows(tables["routing"]),
        shares=_rows(tables["shares"], ("texts", "heavy")),
        flips=_rows(tables["flips"], ("texts", "flipped")),
        calibration=_rows(tables["calibration"], ("texts", "ECE")),
        quantiles=" | ".join(f"{share}: {value:.3f}" for share, value in quantiles.items()),
        intents=_intent_rows(tables["intents"]),
    )


def _routing_rows(table: Mapping[str, Mapping[str, float]]) -> str:
    return "\n".join(
        f"| {name} | {row['rows']:.0f} | {row['apgr']:.3f} ± {row['se']:.3f} | {row['cpt50']:.1f} "
        f"| {row['cpt80']:.1f} | {row['cpt95']:.1f} |"
        for name, row in table.items()
    )


def _rows(table: Mapping[str, Mapping[str, float]], columns: tuple[str, str]) -> str:
    count, share = columns
    return "\n".join(
        f"| {name} | {row[count]:.0f} | "
        + (f"{row[share]:.4f} |" if share == "ECE" else f"{row[share]:.2%} |")
        for name, row in table.items()
    )


def _intent_rows(table: Mapping[str, Mapping[str, float]]) -> str:
    keys = [
        "accuracy", "oos AUROC", "oos rejected at 95% kept", "kept", "right of kept", "oos let in",
    ]  # fmt: skip
    return "\n".join(
        f"| {name} | " + " | ".join(f"{row[key]:.3f}" for key in keys) + " |"
        for name, row in table.items()
    )
