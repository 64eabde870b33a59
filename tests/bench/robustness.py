"""Prints how often a decision stays when a request is said differently but means the same.

    TIER_ROUTER_DATA=... python tests/bench/robustness.py [--texts 1200]

The line is drawn where 30, 50 and 70% of the texts go to the heavy tier.  Paraphrases are made by
rules (synonyms, contractions, clauses in another order); RouterArena's own 420 are not here.
"""

from __future__ import annotations

import argparse
import os
import random
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from tier_router.classify.native import NativeClassifier
from tier_router.config import parse
from tier_router.router import TierRouter
from tier_router.train import card, data
from tier_router.turn import turn_of

Change = Callable[[str, random.Random], str]
Floats = npt.NDArray[np.float64]

SHARES = (0.3, 0.5, 0.7)
GOAL = 0.95
PARTS = {"clinc150": 0.3, "banking77": 0.1, "llmrouter": 0.25, "mmlu": 0.1, "mmlu_pro": 0.1,
         "gsm8k": 0.1, "mt_bench": 0.05}  # fmt: skip
"""What the texts are made of: half of it everyday, as far as the sets go."""
SYNONYMS = {
    "calculate": "compute", "determine": "find out", "show": "demonstrate", "big": "large",
    "large": "big", "begin": "start", "begins": "starts", "start": "begin", "help": "assist",
    "buy": "purchase", "buys": "purchases", "get": "obtain", "gets": "receives", "total": "overall",
    "want": "would like", "need": "require", "needs": "requires", "about": "roughly",
    "many": "numerous", "explain": "clarify", "correct": "right", "following": "below",
    "most": "chiefly", "small": "little", "also": "too", "money": "cash", "tell": "let me know",
    "often": "frequently", "because": "since", "use": "employ", "used": "employed",
    "usually": "normally", "write": "compose", "make": "produce", "makes": "produces",
    "child": "kid", "children": "kids", "quickly": "fast", "job": "work", "car": "automobile",
    "error": "mistake", "problem": "issue", "problems": "issues", "check": "verify",
    "house": "home", "each": "every", "whole": "entire", "give": "provide", "gives": "provides",
}  # fmt: skip
CONTRACTIONS = {
    "what is": "what's", "it is": "it's", "do not": "don't", "does not": "doesn't",
    "is not": "isn't", "are not": "aren't", "i am": "i'm", "cannot": "can't", "that is": "that's",
    "who is": "who's", "where is": "where's", "i would": "i'd", "how is": "how's",
    "will not": "won't", "did not": "didn't", "i will": "i'll", "there is": "there's",
}  # fmt: skip
_WORD = re.compile(r"[A-Za-z]+")
_LONG, _SHORT = (
    re.compile(r"\b(" + "|".join(map(re.escape, words)) + r")\b", re.I)
    for words in (CONTRACTIONS, CONTRACTIONS.values())
)
_EXPANDED = {short: long for long, short in CONTRACTIONS.items()}
_CLAUSES = re.compile(r"\A((?:If|When|Since|Suppose|Given|After|Because)\b[^,.?!\n]{8,160}), "
                      r"([^.?!\n]{8,200})([.?!]?)\Z", re.I)  # fmt: skip


def synonyms(text: str, pick: random.Random) -> str:
    """Up to one word in six by another that means the same."""
    words = len(text.split())
    left = max(words // 6, 1)

    def swapped(match: re.Match[str]) -> str:
        nonlocal left
        other = SYNONYMS.get(match[0].lower())
        if other is None or left <= 0 or pick.random() < 0.2:
            return match[0]
        left -= 1
        return other.capitalize() if match[0][0].isupper() else other

    return _WORD.sub(swapped, text)


def contractions(text: str, pick: random.Random) -> str:
    """ "what is" as "what's", and where there is none, "what's" as "what is"."""
    if _LONG.search(text):
        return _LONG.sub(lambda match: CONTRACTIONS[match[0].lower()], text)
    return _SHORT.sub(lambda match: _EXPANDED[match[0].lower()], text)


def reordered(text: str, pick: random.Random) -> str:
    """The condition after what depends on it, or sentences without a question rotated."""
    found = _CLAUSES.match(text.strip())
    if found:
        first, second = found[1], found[2]
        return f"{second[0].upper()}{second[1:]} {first[0].lower()}{first[1:]}{found[3]}"
    parts = re.split(r"(?<=[.?!]) ", text.strip())
    if len(parts) == 2 and "\n" not in text:
        return f"{parts[1]} {parts[0]}"
    return text


def paraphrased(text: str, pick: random.Random) -> str:
    """All of the above and a request's usual dress."""
    return polite(contractions(synonyms(reordered(text, pick), pick), pick), pick)


def polite(text: str, pick: random.Random) -> str:
    """With "please" or "could you" before it, or thanks after it."""
    lower = text[:1].lower() + text[1:]
    return pick.choice(
        (f"Please {lower}", f"Could you please tell me: {text}", f"{text} Thanks in advance!",
         f"Hi there, {text}", f"{text} please", f"I was wondering, {lower}")
    )  # fmt: skip


CHANGES: Mapping[str, Change] = {
    "paraphrase (all rules)": paraphrased,
    "synonyms": synonyms,
    "contractions": contractions,
    "clauses reordered": reordered,
    "politeness": polite,
    "typos": card.CHANGES["typos"],
    "lower case": lambda text, _: text.lower(),
    "upper case": lambda text, _: text.upper(),
    "no punctuation at the end": card.CHANGES["no punctuation at the end"],
    "padding before": card.CHANGES["padding: a greeting before"],
    "padding after": card.CHANGES["padding: thanks after"],
    "spaces doubled": card.CHANGES["spaces doubled"],
    "trailing spaces": lambda text, _: f"{text}  \n",
}


def texts_of(root: Path, count: int, pick: random.Random) -> list[str]:
    """The texts: of each source its part, or what there is."""
    rows = data.benchmarks(root) + [r for r in data.intents(root) if r.subset.startswith("test/")]
    out = []
    for source, part in PARTS.items():
        own = [row.turn.text for row in rows if row.source == source]
        out += pick.sample(own, min(round(part * count), len(own)))
    return out


def levels(native: NativeClassifier, texts: Sequence[str]) -> Floats:
    """The difficulty of each text; what is abstained from goes up."""
    verdicts = [native.classify(turn_of(text)) for text in texts]
    return np.array([1.0 if v.abstain is not None else v.difficulty for v in verdicts])


def kept(before: Floats, after: Floats, moved: npt.NDArray[np.bool_], share: float) -> float:
    """The share of the changed texts' decisions that stay, with `share` of all above the line."""
    line = float(np.quantile(before, 1 - share))
    same = (before >= line) == (after >= line)
    return float(same[moved].mean()) if moved.any() else 1.0


def systems_kept(texts: Sequence[str]) -> float:
    """The share of decisions that stay when the system prompt is another one."""
    tiers = "tiers:\n" + "".join(
        f"  - {{name: {name}, model: {name}, replicas: [sim://{name}]}}\n"
        for name in ("light", "heavy")
    )
    router = TierRouter(parse(tiers))
    prompts = ("", "You are a helpful assistant.", "You prove theorems. Answer in C++, in steps.")
    same = []
    for text in texts:
        found = set()
        for prompt in prompts:
            system = [{"role": "system", "content": prompt}] if prompt else []
            body = {"messages": [*system, {"role": "user", "content": text}]}
            found.add(router.decide(router.view(body)).tier)
        same.append(len(found) == 1)
    return float(np.mean(same))


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--texts", type=int, default=1_200)
    given = parser.parse_args()
    folder = os.environ.get("TIER_ROUTER_DATA")
    if not folder:
        print("skipped: TIER_ROUTER_DATA is not set (see tests/data/README.md)")
        return
    texts, native = texts_of(Path(folder), given.texts, random.Random(3)), NativeClassifier()
    before = levels(native, texts)
    printed = Table(title=f"decisions that stay, % of the texts changed (goal {GOAL:.0%})")
    for name in ("change", "texts", *(f"at {share:.0%} heavy" for share in SHARES), ""):
        printed.add_column(name, justify="left" if name == "change" else "right")
    for name, change in CHANGES.items():
        pick = random.Random(5)
        changed = [change(text, pick) for text in texts]
        moved = np.array([a != b for a, b in zip(texts, changed, strict=True)])
        after = levels(native, changed)
        found = [kept(before, after, moved, share) for share in SHARES]
        error = 100 * (0.05 * 0.95 / max(moved.sum(), 1)) ** 0.5
        printed.add_row(name, str(moved.sum()), *(f"{100 * one:.1f}" for one in found),
                        f"± {error:.1f} {'met' if min(found) >= GOAL else 'not met'}")  # fmt: skip
    same = systems_kept(texts[::4])
    printed.add_row("system prompt swapped", str(len(texts[::4])), *([f"{100 * same:.1f}"] * 3),
                    "met" if same >= GOAL else "not met")  # fmt: skip
    Console(width=120).print(printed)
    print("RouterArena's 420 paraphrases and translations: not in the data folder")


if __name__ == "__main__":
    main()
