"""Prints the goals of pruning beside what is measured here.

    TIER_ROUTER_DATA=... python tests/bench/pruning.py [--quick] [--sessions N] [--only ...]

Passages kept, prefix cache simulated block by block, CPU time, tool calibration, random sessions
and fuzzed bodies.  Tokens are cl100k's where `tiktoken` finds its file (TIKTOKEN_CACHE_DIR, or the
one in an installed LiteLLM), else four characters each.  Peers run where they are installed.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import itertools
import json
import os
import random
import statistics
import string
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table as Printed

from tier_router.config import Tier
from tier_router.config.pruning import Pruning, Rag, Step
from tier_router.encoder import load as load_encoder
from tier_router.prune.bound import enough, upper
from tier_router.prune.pipeline import plan
from tier_router.prune.plan import Known, Plan, apply
from tier_router.prune.recognise import block_of
from tier_router.prune.score import Scorer, bm25, query_terms, terms
from tier_router.prune.steps.rag import choose
from tier_router.prune.steps.tools import described, ranked
from tier_router.prune.warm import COLD, Caches
from tier_router.view import view_of

Body = dict[str, Any]
BLOCK = 16
"""Tokens of a KV block in vLLM's default."""
WORTH = 0.75
"""Share of a tool list above which a cut is not worth a prefix of its own."""
SESSIONS = 0
"""Random sessions, where the command line says how many."""
ALL = frozenset({Step.RAG, Step.RESULTS, Step.CAPS})
TIER = Tier.model_validate({"name": "light", "model": "m", "replicas": ["http://light-0:8000"]})


@dataclass(frozen=True, slots=True)
class Measured:
    """One row of the goals' table; `met` is None where there is no goal for it."""

    what: str
    value: str
    goal: str
    beside: str
    met: bool | None


def settings(**more: Any) -> Pruning:
    """Everything that is on by default, without a hold-out, and time enough."""
    return Pruning.model_validate({"mode": "on", "holdout": 0, "budget_ms": 10_000, **more})


# ---- tokens


@cache
def _encoding() -> Any:
    import tiktoken

    found = importlib.util.find_spec("litellm")
    if found is not None and found.origin and "TIKTOKEN_CACHE_DIR" not in os.environ:
        inside = Path(found.origin).parent / "litellm_core_utils" / "tokenizers"
        os.environ["TIKTOKEN_CACHE_DIR"] = str(inside)
    if "TIKTOKEN_CACHE_DIR" not in os.environ:
        return None
    return tiktoken.get_encoding("cl100k_base")


@lru_cache(50_000)
def ids_of(text: str) -> tuple[int, ...]:
    """The tokens of a text."""
    encoding = _encoding()
    if encoding is not None:
        return tuple(encoding.encode_ordinary(text))
    return tuple(hash(text[at : at + 4]) for at in range(0, len(text), 4))


def prompt_ids(body: Body) -> tuple[list[int], list[int]]:
    """The tokens of a chat prompt as ChatML writes it, and the end of each message."""
    ids: list[int] = []
    if body.get("tools"):
        ids += ids_of(json.dumps(body["tools"]))
    ends = []
    for message in body["messages"]:
        content = message.get("content") or ""
        if isinstance(content, list):
            content = "".join(part.get("text", "") for part in content)
        calls = json.dumps(message["tool_calls"]) if message.get("tool_calls") else ""
        ids += ids_of(f"<|im_start|>{message['role']}\n")
        ids += ids_of(content)
        ids += ids_of(f"{calls}<|im_end|>\n")
        ends.append(len(ids))
    return ids, ends


class BlockCache:
    """vLLM's prefix cache: whole blocks, each known by all before it; nothing is ever evicted."""

    def __init__(self) -> None:
        self.blocks: set[int] = set()

    def prefill(self, ids: Sequence[int]) -> int:
        """Tokens of a prompt that are not cached; they are cached after it."""
        link, cached, missed = 0, 0, False
        for at in range(0, len(ids) - BLOCK + 1, BLOCK):
            link = hash((link, tuple(ids[at : at + BLOCK])))
            missed = missed or link not in self.blocks
            cached += 0 if missed else BLOCK
            self.blocks.add(link)
        return len(ids) - cached


# ---- ways to prune, ours and others'


class Unpruned:
    """What is sent without pruning."""

    name = "no pruning"

    def send(self, body: Body, place: str) -> Body:
        """The body that goes to `place`."""
        return body


class Ours(Unpruned):
    """Our plan with its own book of what is cached."""

    def __init__(self, name: str, config: Pruning) -> None:
        self.name, self.config = name, config
        self.caches, self.now = Caches(), 0.0
        self.scorer = Scorer(load_encoder())
        self.known = Known(proven=ALL)
        self.failed: Counter[str] = Counter()
        self.ms: list[float] = []
        self.last: Plan | None = None

    def send(self, body: Body, place: str) -> Body:
        self.now += 1.0
        cached = self.caches.at(place, self.now, 1e9)
        made = plan(body, view_of(body), TIER, cached, self.config, known=self.known,
                    scorer=self.scorer)  # fmt: skip
        self.caches.sent(place, made.chain, made.asked, self.now, made.forks)
        self.failed[made.failed] += 1
        self.ms.append(made.seconds * 1000)
        self.last = made
        return dict(apply(made, body))


class Sliding(Unpruned):
    """LangChain's and Anthropic's default way: the newest results stay."""

    name = "keep the newest 3 results"

    def send(self, body: Body, place: str) -> Body:
        at = [i for i, m in enumerate(body["messages"]) if m["role"] == "tool"][:-3]
        messages = [
            {**m, "content": "[cleared]"} if i in at else m for i, m in enumerate(body["messages"])
        ]
        return {**body, "messages": messages}


class LiteLLM(Unpruned):
    """`litellm.compress` with its trigger lowered to 4,000 tokens, so that it does something."""

    name = "litellm.compress, trigger 4k"

    def __init__(self) -> None:
        os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # no network
        import litellm

        self.compress = litellm.compress

    def send(self, body: Body, place: str) -> Body:
        messages = [
            {**m, "content": m.get("content") or ""} for m in body["messages"]
        ]  # a null crashes it
        made = self.compress(messages=messages, model="gpt-4", compression_trigger=4_000)
        return {**body, "messages": made["messages"]}


class Headroom(Unpruned):
    """headroom's default pipeline, without its text model."""

    name = "headroom, default"

    def __init__(self) -> None:
        import headroom

        self.compress = headroom.compress

    def send(self, body: Body, place: str) -> Body:
        made = self.compress(body["messages"], model="gpt-4")
        return {**body, "messages": made.messages}


def peers(console: Console) -> list[Callable[[], Unpruned]]:
    """The others that are installed."""
    found: list[Callable[[], Unpruned]] = [Sliding]
    for make, package in ((LiteLLM, "litellm"), (Headroom, "headroom")):
        if importlib.util.find_spec(package) is None:
            console.print(f"skipped: {make.name} (`{package}` is not installed)")
            continue
        try:
            make()
        except (ImportError, AttributeError) as error:
            console.print(f"skipped: {make.name} ({error})")
        else:
            found.append(make)
    return found


# ---- histories replayed


@dataclass(slots=True)
class Replayed:
    """Sums over all model calls of a replay."""

    calls: int = 0
    sent: int = 0
    plain: int = 0
    prefill: int = 0
    recoverable: int = 0
    kept: int = 0
    orphans: int = 0
    humans_changed: int = 0
    seconds: list[float] = field(default_factory=list)


def sessions(root: Path, tasks: int, most: int) -> list[list[Body]]:
    """tau-bench airline trajectories, `tasks` after one another in each session."""
    system = (root / "tau_airline_system.md").read_text("utf-8")
    rows = [row["messages"] for row in _rows(root / "tau_airline.jsonl")][: most * tasks]
    groups = [rows[at : at + tasks] for at in range(0, len(rows) - tasks + 1, tasks)]
    return [
        [{"role": "system", "content": system}, *itertools.chain.from_iterable(group)]
        for group in groups
    ]


def replay(
    way: Unpruned, histories: Sequence[list[Body]], switching: float, *, answers: bool = False
) -> Replayed:
    """Every model call of every session, sent by `way`, to two tiers that take turns by chance.

    With `answers` a tier also keeps the blocks of what it wrote, as vLLM does; a template that
    shows an answer's tokens again one by one finds them there."""
    out = Replayed()
    caches = {"a": BlockCache(), "b": BlockCache()}
    for number, messages in enumerate(histories):
        chance = random.Random(number)
        place = "a"
        for at, message in enumerate(messages):
            if message["role"] != "assistant":
                continue
            if chance.random() < switching:
                place = "b" if place == "a" else "a"
            body = {"model": "m", "messages": messages[:at]}
            start = time.process_time()
            sent = way.send(body, place)
            out.seconds.append(time.process_time() - start)
            ids, _ = prompt_ids(sent)
            out.calls += 1
            out.sent += len(ids)
            out.plain += len(prompt_ids(body)[0])
            out.prefill += caches[place].prefill(ids)
            if answers:
                said = {**sent, "messages": [*sent["messages"], message]}
                caches[place].prefill(prompt_ids(said)[0])
            _compare(out, body, sent, message)
    return out


def _compare(out: Replayed, body: Body, sent: Body, message: Body) -> None:
    """Counts arguments that can still be read, orphans, and human turns that changed."""
    values = {value for call in message.get("tool_calls") or ()
              for value in _leaves(_loads(call["function"]["arguments"]))}  # fmt: skip
    if values:
        full, left = _text(body), _text(sent)
        there = {value for value in values if value in full}
        out.recoverable += 1
        out.kept += all(value in left for value in there)
    human = [m["content"] for m in body["messages"] if m["role"] == "user"]
    out.humans_changed += human != [m["content"] for m in sent["messages"] if m["role"] == "user"]
    asked = Counter(c["id"] for m in sent["messages"] for c in m.get("tool_calls") or ())
    given = Counter(m["tool_call_id"] for m in sent["messages"] if m["role"] == "tool")
    out.orphans += asked != given


def _text(body: Body) -> str:
    return "\n".join(
        f"{m.get('content') or ''} {json.dumps(m['tool_calls']) if m.get('tool_calls') else ''}"
        for m in body["messages"]
    )


def _loads(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _leaves(each)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        text = str(value)
        if 3 <= len(text) <= 60:
            yield text


def replay_rows(root: Path, quick: bool, console: Console) -> Iterator[Measured]:
    """tau-bench, 1 and 5 tasks a session, with and without tier switches."""
    steps = {"fold": "on", "dupes": "on", "results": "on"}
    tables = steps | {"fold": {"mode": "on", "tables": True}}
    ways: list[Callable[[], Unpruned]] = [
        lambda: Ours("tier-router, default steps", settings()),
        lambda: Ours("tier-router, with old results", settings(steps=steps)),
        lambda: Ours("tier-router, old results and tables", settings(steps=tables)),
    ]
    others = peers(console)
    for tasks, goal, switching in ((1, 0.88, 0.0), (1, 0.88, 0.1), (5, 0.80, 0.0), (5, 0.80, 0.1),
                                   (5, 0.80, 0.3)):  # fmt: skip
        histories = sessions(root, tasks, 4 if quick else 100)
        plain = replay(Unpruned(), histories, switching)
        for make in [*ways, *(others if not switching else [])]:
            way = make()
            done = replay(way, histories, switching)
            ours = isinstance(way, Ours)
            ratio = done.prefill / plain.prefill
            kept = done.kept / max(done.recoverable, 1)
            clean = not done.orphans and not done.humans_changed
            what = f"tau-bench, {tasks} a session, {switching:.0%} switches: {way.name}"
            value = (
                f"prefill x{ratio:.3f}, {1 - done.sent / plain.sent:.1%} removed, arguments"
                f" {kept:.3f}, orphans {done.orphans}, human turns changed {done.humans_changed},"
                f" CPU p50 {1000 * statistics.median(done.seconds):.2f} ms"
            )
            met = ratio <= goal and kept == 1 and clean if ours else None
            yield Measured(what, value, f"x{goal}, 1.000, 0, 0" if ours else "", "", met)
            if ours and way.failed.keys() - {""}:
                console.print(f"plans that failed: {dict(way.failed)}")
    for tasks, switching in ((1, 0.0), (5, 0.0), (5, 0.1), (5, 0.3)):
        histories = sessions(root, tasks, 4 if quick else 100)
        plain = replay(Unpruned(), histories, switching, answers=True)
        for make in ways[1:]:
            way = make()
            done = replay(way, histories, switching, answers=True)
            what = f"the same, answers cached where written, {tasks} a session, {switching:.0%}"
            yield Measured(f"{what}: {way.name}", f"prefill x{done.prefill / plain.prefill:.3f}",
                           "", "", None)  # fmt: skip


# ---- passages


def prompt_of(question: str, passages: Sequence[tuple[str, str]]) -> str:
    """The prompt that the "lost in the middle" study put its passages in."""
    listed = "\n".join(f"Document [{n}](Title: {t}) {x}" for n, (t, x) in enumerate(passages, 1))
    return (
        "Write a high-quality answer for the given question using only the provided search results"
        f" (some of which might be irrelevant).\n\n{listed}\n\nQuestion: {question}\nAnswer:"
    )


@dataclass(frozen=True, slots=True)
class Case:
    """A question, its passages, and which of them are needed."""

    question: str
    passages: tuple[tuple[str, str], ...]
    gold: frozenset[int]


def natural_questions(root: Path, most: int, size: int, by: str = "") -> Iterator[Case]:
    """Each gold passage among its nearest neighbours: half by words, half by static vectors (the
    scorer's own kinds of evidence: harder for it than another model's neighbours), or by one of
    the two, `words` or `vectors`, alone."""
    rows = [row for row in _rows(root / "nq_oracle.jsonl") if row["has_answer"]]
    texts = [f"{row['title']} {row['text']}" for row in rows]
    found = [terms(text) for text in texts]
    encoder = load_encoder()
    matrix = encoder.matrix(texts)
    chance = random.Random(7)
    for at in chance.sample(range(len(rows)), min(most, len(rows))):
        row = rows[at]
        answers = [answer.lower() for answer in row["answers"]]
        words = np.argsort(-np.array(bm25(query_terms(row["question"]), found)))
        near = np.argsort(-(matrix @ encoder.encode(row["question"]).vector))
        others: list[int] = []
        ways = [each for each, name in ((words, "words"), (near, "vectors")) if by in ("", name)]
        for other in map(int, itertools.chain.from_iterable(zip(*ways, strict=True))):
            text = rows[other]["text"]
            if other in others or text == row["text"] or any(a in text.lower() for a in answers):
                continue
            others.append(other)
            if len(others) == size - 1:
                break
        picked = [*others, at]
        chance.shuffle(picked)
        passages = tuple((rows[one]["title"], rows[one]["text"]) for one in picked)
        yield Case(row["question"], passages, frozenset({picked.index(at)}))


def hotpot(root: Path) -> Iterator[Case]:
    """Questions that need two paragraphs of ten."""
    for row in _rows(root / "hotpot_distractor100.jsonl"):
        gold = {title for title, _ in row["gold"]}
        passages = tuple((p["title"], "".join(p["sentences"])) for p in row["paragraphs"])
        needed = frozenset(at for at, (title, _) in enumerate(passages) if title in gold)
        yield Case(row["question"], passages, needed)


def xquad(root: Path, asked: str, told: str, most: int) -> Iterator[Case]:
    """20 paragraphs in one language, the question's article first among them; questions in
    another or the same."""
    rows = list(_rows(root / "xquad8.jsonl"))
    texts = {(r["article"], r["par"]): r["context"] for r in rows if r["lang"] == told}
    pool = [
        (r["article"], r["par"], question) for r in rows if r["lang"] == asked
        for question, _, _ in r["qas"]
    ]  # fmt: skip
    chance = random.Random(3)
    for article, par, question in chance.sample(pool, min(most, len(pool))):
        own = [key for key in texts if key[0] == article and key[1] != par]
        rest = [key for key in texts if key[0] != article]
        picked = [(article, par), *own, *chance.sample(rest, 19 - len(own))]
        chance.shuffle(picked)
        passages = tuple(("", texts[key]) for key in picked)
        yield Case(question, passages, frozenset({picked.index((article, par))}))


@dataclass(slots=True)
class Judged:
    """Sums over questions; `halves` are (lost, questions) of two halves that the question's hash
    tells apart: what was chosen on one can be looked at on the other."""

    lost: int = 0
    count: int = 0
    abstained: int = 0
    before: int = 0
    after: int = 0
    halves: list[list[int]] = field(default_factory=lambda: [[0, 0], [0, 0]])

    def __str__(self) -> str:
        halves = " and ".join(f"{lost} of {count}" for lost, count in self.halves)
        return (
            f"{1 - self.lost / self.count:.2%} kept (lost {halves}; at most"
            f" {upper(self.lost, self.count):.2%} at 95 %), {self.gone:.1%} removed, abstained"
            f" {self.abstained}"
        )

    @property
    def loss(self) -> float:
        """The share that lost a needed passage."""
        return self.lost / self.count

    @property
    def gone(self) -> float:
        """The share of passage tokens removed."""
        return 1 - self.after / self.before


def judged(cases: Iterator[Case], scorer: Scorer) -> Judged:
    """What the step's default settings keep and remove."""
    out = Judged()
    for case in cases:
        prompt = prompt_of(case.question, case.passages)
        block = block_of(prompt)
        if block is None or len(block.segments) != len(case.passages):
            raise SystemExit(f"a block was not recognised: {case.question}")
        outside = f"{prompt[: block.start]} {prompt[block.end :]}"
        choice = choose(block, outside, Rag(), scorer)
        kept = choice.kept if not choice.reason else frozenset(range(len(case.passages)))
        sizes = [len(ids_of(text)) for _, text in case.passages]
        lost = not case.gold <= kept
        half = out.halves[hashlib.sha256(case.question.encode()).digest()[0] & 1]
        half[0], half[1] = half[0] + lost, half[1] + 1
        out.lost, out.count = out.lost + lost, out.count + 1
        out.abstained += bool(choice.reason)
        out.before += sum(sizes)
        out.after += sum(sizes[at] for at in kept)
    return out


def passage_rows(root: Path, quick: bool, console: Console) -> Iterator[Measured]:
    """Natural Questions, XQuAD in its own language and across languages, HotpotQA."""
    scorer = Scorer(load_encoder())
    for size in (20,) if quick else (10, 20, 50):
        got = judged(natural_questions(root, 150 if quick else 2_000, size), scorer)
        yield Measured(f"NQ, {size} hard passages, {got.count} questions", str(got),
                       "99.5 % kept, 75 % removed" if size == 20 else "",
                       "Provence: about 80 % removed, GPU encoder, English",
                       got.loss <= 0.005 and got.gone >= 0.75 if size == 20 else None)  # fmt: skip
    for kind in () if quick else ("words", "vectors"):
        got = judged(natural_questions(root, 2_000, 20, kind), scorer)
        yield Measured(f"NQ, 20 passages near by {kind} alone, {got.count} questions", str(got),
                       "", "", None)  # fmt: skip
    got = judged(hotpot(root), scorer)
    yield Measured(f"HotpotQA, both paragraphs of 10, {got.count} questions", str(got),
                   "2 % lost, 25 % removed", "", got.loss <= 0.02 and got.gone >= 0.25)  # fmt: skip
    most = 60 if quick else 2_000
    pooled = []
    for lang in ("en", "de", "es", "ru", "zh", "ar", "hi", "th"):
        got = judged(xquad(root, lang, lang, most), scorer)
        pooled.append((got.loss, got.gone))
        yield Measured(f"XQuAD {lang}, 20 paragraphs, {got.count} questions", str(got),
                       "98.5 % kept", "", got.loss <= 0.015)  # fmt: skip
    loss, cut = (statistics.fmean(each) for each in zip(*pooled, strict=True))
    yield Measured("XQuAD, 8 languages pooled", f"{1 - loss:.2%} kept, {cut:.1%} removed",
                   "99 % kept, 45 % removed", "", loss <= 0.01 and cut >= 0.45)  # fmt: skip
    for lang in ("de", "es", "zh", "hi"):
        got = judged(xquad(root, lang, "en", most), scorer)
        yield Measured(f"XQuAD, {lang} asks English paragraphs, {got.count} questions", str(got),
                       "99 % kept", "", got.loss <= 0.01)  # fmt: skip


# ---- tools


def tool_sets(
    root: Path, quick: bool
) -> Iterator[tuple[str, list[tuple[str, list[Any], set[str]]]]]:
    """(name, [(question, tools, needed names)]) of each set."""
    chance = random.Random(11)
    tools = {row["id"]: row for row in _rows(root / "bfcl_tools.jsonl")}
    ids = list(tools)
    cases = []
    for row in _rows(root / "bfcl_queries.jsonl"):
        if not row["gold"]:
            continue
        names = {tools[one]["name"] for one in row["tools"]}
        offered = [tools[one] for one in row["tools"]]
        for one in chance.sample(ids, 80):
            if len(offered) < 50 and tools[one]["name"] not in names:
                offered.append(tools[one])
                names.add(tools[one]["name"])
        chance.shuffle(offered)
        question = next((text for role, text in row["turns"] if role == "user"), "")
        cases.append((question, offered, {tools[one]["name"] for one in row["gold"]}))
    yield "BFCL, 50 tools", cases[: 300 if quick else None]
    listed = list(_rows(root / "metatool_tools.jsonl"))
    asked = list(_rows(root / "metatool_queries.jsonl"))
    yield (
        "MetaTool, 199 tools",
        [(row["query"], listed, set(row["gold"])) for row in asked[:: 8 if quick else 1]],
    )
    live = {row["name"]: row for row in _rows(root / "livemcp_tools.jsonl")}
    yield (
        "LiveMCPBench, 514 tools",
        [
            (row["query"], list(live.values()), set(row["gold"]) & live.keys())
            for row in _rows(root / "livemcp_queries.jsonl")
            if set(row["gold"]) & live.keys()
        ],
    )


def tool_rows(root: Path, quick: bool, console: Console) -> Iterator[Measured]:
    """Whether calibration allows a shorter tool list, and what that would have cost."""
    scorer = Scorer(load_encoder())
    for name, cases in tool_sets(root, quick):
        ranks, sizes, left = [], [], 0
        for question, tools, needed in cases:
            named = tuple(described(tool) for tool in tools)
            order = [named[at][0] for at in ranked(scorer, question, named)]
            if not order:  # the step abstains: the list goes out whole
                left += 1
                continue
            ranks.append(max(order.index(one) + 1 for one in needed))
            sizes.append(len(tools))
        number = enough(ranks, 0.005)
        mean = statistics.fmean(sizes)
        usable = number is not None and number < WORTH * mean
        said = f"keep {number} of {mean:.0f}" if usable else "not ready"
        lost = sum(rank > number for rank in ranks) / len(ranks) if usable and number else 0.0
        top = " / ".join(f"{sum(r <= k for r in ranks) / len(ranks):.3f}" for k in (5, 10, 20))
        yield Measured(f"{name}, {len(ranks)} requests and {left} abstained",
                       f"{said}, loss {lost:.2%}; all needed in the top 5 / 10 / 20: {top}",
                       "prunes" if name.startswith("BFCL") else "not ready",
                       "fixed top 10 ships whatever it loses",
                       (usable and lost <= 0.005) if name.startswith("BFCL") else not usable,
                       )  # fmt: skip


# ---- CPU time


def time_rows(root: Path, quick: bool, console: Console) -> Iterator[Measured]:
    """A request of 32,000 tokens with 50 tools and 50 passages, and one with nothing to do."""
    chance = random.Random(2)
    tools = [
        {"type": "function", "function": {k: row[k] for k in ("name", "description", "parameters")}}
        for row in itertools.islice(_rows(root / "bfcl_tools.jsonl"), 50)
    ]
    history = sessions(root, 5, 1)[0]
    case = next(natural_questions(root, 1, 50))
    big: Body = {"model": "m", "tools": tools, "messages": history[:1]}
    for message in itertools.cycle(history[1:]):
        if len(prompt_ids(big)[0]) >= 25_000:
            break
        big["messages"].append(message)
    big["messages"].append({"role": "user", "content": prompt_of(case.question, case.passages)})
    small: Body = {"model": "m", "messages": [{"role": "user", "content": "What is my balance?"}]}
    way = Ours("", settings(steps={"rag": "on", "results": "on", "tools": "observe"}))
    rounds = 100 if quick else 1_000
    for what, body, p50, p99 in (
        (f"{len(prompt_ids(big)[0])} tokens, 50 tools, 50 passages", big, 3.0, 10.0),
        ("nothing to do", small, 0.2, None),
    ):
        raw = json.dumps(body)
        took = []
        for _ in range(rounds):
            fresh = json.loads(raw)
            view = view_of(fresh)
            way.now += 1
            cached = way.caches.at("a", way.now, 300)
            start = time.thread_time()
            made = plan(fresh, view, TIER, cached, way.config, known=way.known, scorer=way.scorer)
            apply(made, fresh)
            took.append(1000 * (time.thread_time() - start))
            way.caches.planned("a", view.key, made, way.now)
            chance.random()
        took = sorted(took[3:])
        middle, late = statistics.median(took), took[int(0.99 * len(took))]
        met = middle <= p50 and (p99 is None or late <= p99)
        goal = f"p50 {p50} ms" + (f", p99 {p99} ms" if p99 else "")
        yield Measured(f"CPU, warm: {what}", f"p50 {middle:.2f} ms, p99 {late:.2f} ms", goal,
                       "headroom: p50 52 ms, p99 4.2 s", met)  # fmt: skip


# ---- sessions at random


def random_session(
    chance: random.Random, shared: Sequence[str]
) -> Iterator[tuple[Body, str, float]]:
    """(body, place, seconds since the last) of each request of one conversation."""
    system = chance.choice(shared)
    messages: list[Body] = [{"role": "system", "content": system}] if chance.random() < 0.8 else []
    tools = [
        {"type": "function", "function": {
            "name": f"t{n}", "description": _words(chance, 8),
            "parameters": {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object",
                           "title": "T", "properties": {"title": {"type": "string"}}}}}
        for n in range(chance.randrange(4))
    ]  # fmt: skip
    place = "a"
    results = [_result(chance) for _ in range(3)]
    for turn in range(chance.randrange(1, 7)):
        if turn and chance.random() < 0.1 and len(messages) > 4:
            messages = messages[: -chance.randrange(1, 4)]  # the human takes something back
            while messages and messages[-1]["role"] in ("assistant", "tool"):
                messages.pop()
        if not messages or messages[-1]["role"] != "user":
            messages = [*messages, {"role": "user", "content": _human(chance)}]
        for step in range(chance.randrange(4)):
            if chance.random() < 0.15:
                place = "b" if place == "a" else "a"
            yield _request(messages, tools), place, chance.choice((1.0, 5.0, 20.0, 400.0))
            call = {
                "id": f"c{turn}{step}",
                "type": "function",
                "function": {"name": "look", "arguments": chance.choice(('{"n":1}', "{}"))},
            }
            messages = [
                *messages,
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": call["id"],
                 "content": chance.choice([*results, _result(chance)])},
            ]  # fmt: skip
        yield _request(messages, tools), place, chance.choice((1.0, 5.0, 20.0, 400.0))
        messages = [*messages, {"role": "assistant", "content": _words(chance, 20)}]


def _request(messages: list[Body], tools: list[Body]) -> Body:
    body: Body = {"model": "m", "messages": messages}
    return {**body, "tools": tools} if tools else body


def _words(chance: random.Random, count: int) -> str:
    return " ".join(
        "".join(chance.choices(string.ascii_lowercase, k=chance.randrange(2, 9)))
        for _ in range(count)
    )


def _human(chance: random.Random) -> str:
    if chance.random() < 0.3:
        passages = [(_words(chance, 2), _words(chance, 30)) for _ in range(chance.randrange(4, 12))]
        return prompt_of(passages[0][1][:40], passages)
    return _words(chance, chance.randrange(3, 40))


def _result(chance: random.Random) -> str:
    rows = [{"id": chance.randrange(10**6), "name": _words(chance, 2)}
            for _ in range(chance.randrange(1, 30))]  # fmt: skip
    return chance.choice((json.dumps(rows, indent=2), json.dumps(rows), _words(chance, 60)))


def session_rows(root: Path, quick: bool, console: Console) -> Iterator[Measured]:
    """Sessions that prefill more than unpruned: each alone with a cache that forgets after 300 s
    as the book does; blocks of four characters a token."""
    count = SESSIONS or (2_000 if quick else 100_000)
    chance = random.Random(1)
    shared = [_words(chance, n) for n in (5, 60, 400)]
    config = settings(steps={"rag": "on", "results": "on", "fold": "on", "dupes": "on"})
    config = config.model_copy(update={"steps": config.steps.model_copy(update={
        "results": config.steps.results.model_copy(update={"clear_at_least": 100, "keep_last": 1}),
    })})  # fmt: skip
    scorer, known = Scorer(), Known(proven=ALL)
    worse, worst, plain_sum, sent_sum, failed = 0, 0, 0, 0, Counter[str]()
    for number in range(count):
        caches, now = Caches(), 1_000.0
        own: dict[str, _Timed] = {"a": _Timed(), "b": _Timed()}
        other: dict[str, _Timed] = {"a": _Timed(), "b": _Timed()}
        plain = sent = 0
        for body, place, pause in random_session(random.Random(number), shared):
            now += pause
            view = view_of(body)
            made = plan(body, view, TIER, caches.at(place, now, 300.0), config,
                        known=known, scorer=scorer)  # fmt: skip
            caches.planned(place, view.key, made, now)
            failed[made.failed] += 1
            plain += other[place].prefill(_flat(body), now)
            sent += own[place].prefill(_flat(dict(apply(made, body))), now)
        plain_sum, sent_sum = plain_sum + plain, sent_sum + sent
        worst = max(worst, sent - plain)
        worse += sent > plain + BLOCK
    yield Measured(f"sessions worse than unpruned by more than a block, of {count}",
                   f"{worse}; the worst by {worst} tokens; all together x{sent_sum / plain_sum:.3f}"
                   f", plans that failed {sum(failed.values()) - failed['']}",
                   "0", "nobody states it", worse == 0)  # fmt: skip
    yield _interrupted(min(count, 5_000), shared, config, scorer)


def _interrupted(count: int, shared: Sequence[str], config: Pruning, scorer: Scorer) -> Measured:
    """Requests that prefill more than they would have unpruned then and there, in sessions of which
    each third request is sent whole: the client asked for it, or time ran out somewhere."""
    off = Known(header="off", proven=ALL)
    requests, worse, worst = 0, 0, 0
    for number in range(count):
        caches, now, chance = Caches(), 1_000.0, random.Random(-number)
        own: dict[str, _Timed] = {"a": _Timed(), "b": _Timed()}
        for body, place, pause in random_session(random.Random(number), shared):
            now += pause
            view, known, clock = view_of(body), Known(proven=ALL), time.perf_counter
            kind = chance.randrange(6)
            if kind == 0:
                known = off
            elif kind == 1:
                clock = _stopping(chance.randrange(1, 12))
            made = plan(body, view, TIER, caches.at(place, now, 300.0), config, known=known,
                        scorer=scorer, clock=clock)  # fmt: skip
            caches.planned(place, view.key, made, now)
            whole = own[place].copy().prefill(_flat(body), now)
            more = own[place].prefill(_flat(dict(apply(made, body))), now) - whole
            requests, worst, worse = requests + 1, max(worst, more), worse + (more > BLOCK)
    return Measured(f"requests worse than sent whole by more than a block, of {requests} in {count}"
                    " sessions with pruning off or failing now and then",
                    f"{worse}; the worst by {worst} tokens", "0", "nobody states it", worse == 0,
                    )  # fmt: skip


def _stopping(looks: int) -> Callable[[], float]:
    """A clock that is an hour later after so many looks."""
    seen = itertools.count()
    return lambda: 3_600.0 if next(seen) >= looks else 0.0


class _Timed:
    """A block cache whose blocks are gone 300 s after their last use; 4 characters a token."""

    def __init__(self) -> None:
        self.blocks: dict[int, float] = {}

    def copy(self) -> _Timed:
        """Another one, that has the same."""
        other = _Timed()
        other.blocks = dict(self.blocks)
        return other

    def prefill(self, text: str, now: float) -> int:
        """Tokens that are not cached; they are cached after it."""
        link, cached, missed = 0, 0, False
        size = 4 * BLOCK
        for at in range(0, len(text) - size + 1, size):
            link = hash((link, text[at : at + size]))
            missed = missed or now - self.blocks.get(link, -1e9) > 300.0
            cached += 0 if missed else size
            self.blocks[link] = now
        return (len(text) - cached) // 4


def _flat(body: Body) -> str:
    head = json.dumps(body["tools"]) if body.get("tools") else ""
    return head + "".join(
        f"<{m['role']}>{m.get('content') or ''}{m.get('tool_calls') or ''}"
        for m in body["messages"]
    )


# ---- bodies at random


def fuzzed(chance: random.Random, depth: int = 0) -> Any:
    """A value that no client should send, and some that they do."""
    kind = chance.randrange(12 if depth < 4 else 7)
    if kind < 7:
        return (None, True, chance.randrange(-5, 10**6), 1.5, _words(chance, 3), "",
                chance.choice(("\ud800", "漢字" * 40, "[1, 2 ]", '{"a" : 1}', "x" * 5_000))
                )[kind]  # fmt: skip
    if kind < 9:
        return [fuzzed(chance, depth + 1) for _ in range(chance.randrange(4))]
    keys = ("role", "content", "tool_calls", "tool_call_id", "type", "text", "function", "name",
            "arguments", "id", "cache_control", "image_url", "tool_use_id", "input")  # fmt: skip
    return {chance.choice(keys): fuzzed(chance, depth + 1) for _ in range(chance.randrange(5))}


def fuzz_body(chance: random.Random) -> Body:
    """A request body, partly broken."""
    roles = ("system", "developer", "user", "assistant", "tool", "function", "", None, 3)
    messages: list[Any] = []
    for _ in range(chance.randrange(6)):
        call = {
            "id": chance.choice(("a", "b")),
            "type": "function",
            "function": {"name": chance.choice(("f", "g")), "arguments": fuzzed(chance, 3)},
        }
        message: Any = {"role": chance.choice(roles)}
        message["content"] = chance.choice((
            None, _human(chance), _result(chance), fuzzed(chance),
            [{"type": "text", "text": _result(chance)}, {"type": "image_url", "image_url": {}}],
            [{"type": "tool_result", "tool_use_id": "a", "content": _result(chance)}],
        ))  # fmt: skip
        if chance.random() < 0.3:
            message["tool_calls"] = chance.choice(([call], [call, call], fuzzed(chance)))
        if chance.random() < 0.4:
            message["tool_call_id"] = chance.choice(("a", "b", None, 7))
        messages.append(message if chance.random() < 0.95 else fuzzed(chance))
    body: Body = {"model": "m", "messages": messages if chance.random() < 0.95 else fuzzed(chance)}
    for name in ("tools", "chat_template_kwargs", "response_format", "system", "max_tokens"):
        if chance.random() < 0.2:
            body[name] = fuzzed(chance)
    return body


def fuzz_rows(root: Path, quick: bool, console: Console) -> Iterator[Measured]:
    """Broken bodies: no exception, no changed input, no broken invariant; equal when off."""
    count = 3_000 if quick else 50_000
    tables = {"mode": "on", "tables": True}
    on = settings(steps={"rag": "on", "results": "on", "fold": tables})
    off = Pruning.model_validate({"mode": "off"})
    scorer, known = Scorer(), Known(easy=True, proven=ALL)
    view = view_of({"messages": [{"role": "user", "content": "x"}]})
    raised, changed, unequal, failed, pruned = 0, 0, 0, Counter[str](), 0
    long_line = {"messages": [{"role": "tool", "tool_call_id": "a", "content": "[1, " * 250_000}]}
    for number in range(count):
        body = fuzz_body(random.Random(number)) if number else long_line
        before = repr(body)
        try:
            made = plan(body, view, TIER, COLD, on, known=known, scorer=scorer)
            sent = apply(made, body)
            unequal += apply(plan(body, view, TIER, COLD, off), body) is not body
        except Exception as error:  # noqa: BLE001  what is counted
            raised += 1
            console.print(f"body {number}: {type(error).__name__}: {error}")
            continue
        changed += repr(body) != before
        failed[made.failed] += 1
        pruned += sent is not body
    yield Measured(f"fuzz, {count} bodies",
                   f"{raised} exceptions, {changed} inputs changed, {unequal} not equal when off,"
                   f" {pruned} pruned, failed open {dict(failed - Counter({'': failed['']}))}",
                   "0, 0, 0", "litellm and others crash on null content",
                   raised == changed == unequal == 0)  # fmt: skip


def _rows(path: Path) -> Iterator[Any]:
    with path.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small samples: minutes, not an hour")
    parser.add_argument("--only", nargs="*", default=sorted(PARTS), choices=sorted(PARTS))
    parser.add_argument("--sessions", type=int, default=0, help="how many random sessions")
    given = parser.parse_args()
    global SESSIONS
    SESSIONS = given.sessions
    console = Console(width=200)
    data = os.environ.get("TIER_ROUTER_DATA")
    if data is None:
        console.print("skipped: TIER_ROUTER_DATA is not set")
        sys.exit(0)
    root = Path(data) / "pruning"
    for part in given.only:
        table = Printed(title=part, title_justify="left")
        for name in ("what", "measured", "goal", "beside", "met"):
            table.add_column(name, overflow="fold")
        for row in PARTS[part](root, given.quick, console):
            met = "" if row.met is None else "yes" if row.met else "NO"
            table.add_row(row.what, row.value, row.goal, row.beside, met)
        console.print(table)


PARTS: dict[str, Callable[[Path, bool, Console], Iterator[Measured]]] = {
    "passages": passage_rows,
    "replay": replay_rows,
    "tools": tool_rows,
    "time": time_rows,
    "sessions": session_rows,
    "fuzz": fuzz_rows,
}


if __name__ == "__main__":
    main()
