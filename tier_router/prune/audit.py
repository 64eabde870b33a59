"""After the answer: was anything used that was, or would have been, left out?

No judge and no second request.  A step that is only observed (or whose conversation is held out)
sent everything; so if the answer uses what the plan would have dropped, that is a loss.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import msgspec

from tier_router.config.pruning import LOSSY, Mode, Promote, Pruning, Step
from tier_router.prune.bound import upper
from tier_router.prune.plan import Edit, Plan
from tier_router.prune.score import STOP
from tier_router.prune.steps.reasoning import misfired

GRAM = 6
"""Words in a row that count as a quotation: shorter runs recur by chance in English."""
GROUPS = 4_096
"""Groups that a book counts; later ones are counted without intent and tool."""

_WORD = re.compile(r"[^\W_]+")
_TELLING = re.compile(r"\d[\d.,:/-]*\d|[A-Za-z]+\d\w*|\d+[A-Za-z]\w*|[\w.+-]+@[\w.-]+\w|\w+_\w+")
_NAME = re.compile(r"(?<=[^.!?\s] )[A-Z][a-zà-ÿ]{3,}(?: [A-Z][a-zà-ÿ]{2,})*")
_CITED = re.compile(r"\[(\d{1,3})\]|\b(?:document|passage|source)s? (\d{1,3})\b", re.I)


@dataclass(frozen=True, slots=True)
class Answer:
    """What an audit reads of an answer."""

    text: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    completion_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None
    prompt_tokens: int | None = None
    at_limit: bool = False
    silent: bool = False
    """Whether it says nothing, and all of it was thought."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One audited step: whether it lost something, and a hash of what (never the text)."""

    step: Step
    lost: bool
    tool: str = ""
    evidence: str = ""
    saved: int = 0


@dataclass(frozen=True, slots=True)
class Audit:
    """What one answer says of its plan; `rank` is the place of the last called tool in the
    plan's ranking, 1 for the first."""

    tier: str
    intent: str | None
    findings: tuple[Finding, ...] = ()
    rank: int | None = None
    tools: int = 0
    cached_actual: int | None = None

    @property
    def losses(self) -> int:
        """How many steps lost something."""
        return sum(finding.lost for finding in self.findings)


def answer_of(body: Mapping[str, Any]) -> Answer:
    """The answer in a chat completion (or Anthropic message) body; what is missing stays empty."""
    usage = _dict(body.get("usage"))
    details, output = (
        _dict(usage.get("prompt_tokens_details")),
        _dict(usage.get("completion_tokens_details")),
    )
    text, calls, ends = [], [], []
    for choice in _list(body.get("choices")):
        message = _dict(choice.get("message"))
        text.append(_str(message.get("content")))
        ends.append(choice.get("finish_reason"))
        for call in _list(message.get("tool_calls")):
            function = _dict(call.get("function"))
            calls.append((_str(function.get("name")), _str(function.get("arguments"))))
    for part in _list(body.get("content")):
        text.append(_str(part.get("text")))
        if part.get("type") == "tool_use":
            arguments = msgspec.json.encode(part.get("input")).decode()
            calls.append((_str(part.get("name")), arguments))
    ends.append(body.get("stop_reason"))
    return Answer(
        "\n".join(each for each in text if each), tuple(calls),
        _int(usage.get("completion_tokens", usage.get("output_tokens"))),
        _int(output.get("reasoning_tokens")),
        _int(details.get("cached_tokens", usage.get("cache_read_input_tokens"))),
        _int(usage.get("prompt_tokens", usage.get("input_tokens"))),
        "length" in ends or "max_tokens" in ends,
        misfired(body),
    )  # fmt: skip


def audit(plan: Plan, answer: Answer, sent: str = "") -> Audit:
    """What `answer` says of the steps that were only observed.

    `sent` is the prompt's text; what stands there outside of the dropped parts was not lost.
    """
    findings = []
    for step in (Step.RAG, Step.RESULTS):
        edits = [edit for edit in plan.observed if edit.step is step]
        if edits:
            findings.append(_texts(step, edits, answer, sent))
    for edit in plan.observed:
        if edit.step is Step.TOOLS:
            gone = [name for name, _ in answer.calls if name in edit.labels]
            findings.append(Finding(Step.TOOLS, bool(gone), gone[0] if gone else "",
                                    _hash(gone), edit.saved))  # fmt: skip
        elif edit.step is Step.CAPS and answer.completion_tokens is not None:
            over = answer.completion_tokens > edit.value
            findings.append(Finding(Step.CAPS, over, saved=max(0, edit.value)))
    places = [plan.ranking.index(name) + 1 for name, _ in answer.calls if name in plan.ranking]
    return Audit(plan.tier, plan.intent, tuple(findings), max(places, default=None),
                 len(plan.ranking), answer.cached_tokens)  # fmt: skip


def _texts(step: Step, edits: list[Edit], answer: Answer, sent: str) -> Finding:
    """Whether the answer holds what only the dropped texts hold."""
    dropped = [text for edit in edits for text in edit.dropped]
    used = "\n".join([answer.text, *(arguments for _, arguments in answer.calls)])
    gone = "\n".join(dropped)
    evidence: list[str] = []
    for found, said in ((_telling, used), (_grams, answer.text)):
        told = set() if evidence else found(said)
        shared = told & found(gone) if told else told
        if shared:  # the rest of the prompt is long, and seldom looked at
            evidence = sorted(shared - found(_without(sent, dropped)))
    if not evidence and step is Step.RAG:
        labels = {label for edit in edits for label in edit.labels}
        evidence = sorted({one or two for one, two in _CITED.findall(answer.text)} & labels)
    name = next((edit.name for edit in edits if edit.name), "")
    return Finding(step, bool(evidence), name, _hash(evidence), sum(edit.saved for edit in edits))


def _without(sent: str, dropped: Collection[str]) -> str:
    """The prompt without one copy of each dropped text."""
    for text in sorted(dropped, key=len, reverse=True):
        sent = sent.replace(text, " ", 1)
    return sent


def _telling(text: str) -> set[str]:
    """Numbers, identifiers, addresses and names: what is not written by chance."""
    found = set(_TELLING.findall(text))
    return found | {name for name in _NAME.findall(text) if name.lower() not in STOP}


def _grams(text: str) -> set[str]:
    words = _WORD.findall(text.lower())
    return {" ".join(words[at : at + GRAM]) for at in range(len(words) - GRAM + 1)}


def _hash(evidence: Collection[str]) -> str:
    if not evidence:
        return ""
    return blake2b(
        "\0".join(sorted(evidence)).encode("utf-8", "replace"), digest_size=8
    ).hexdigest()


@dataclass(frozen=True, slots=True)
class Count:
    """Audits of one group: how many, how many lost something, prompt tokens they would save."""

    audits: int = 0
    lost: int = 0
    saved: int = 0


Group = tuple[str, str, str, str]
"""Step, tier, intent and tool; "" is any."""


class Audits:
    """Counts audits, and says which steps have proven themselves."""

    def __init__(self) -> None:
        self._counts: dict[Group, Count] = {}
        self.ranks: dict[str, Counter[int]] = {}
        """By tier: how often the last called tool of an answer stood at each place of the
        ranking."""

    def __repr__(self) -> str:
        return f"<Audits {sum(count.audits for _, count in self.totals())}>"

    def add(self, audit: Audit) -> None:
        """Counts one audit."""
        for finding in audit.findings:
            self.count(finding.step, audit.tier, audit.intent or "", finding.tool,
                       Count(1, int(finding.lost), finding.saved))  # fmt: skip
        if audit.rank is not None:
            self.rank(audit.tier, audit.rank)

    def rank(self, tier: str, place: int, times: int = 1) -> None:
        """Counts that a called tool stood at a place of the ranking."""
        self.ranks.setdefault(tier, Counter())[place] += times

    def count(self, step: str, tier: str, intent: str, tool: str, more: Count) -> None:
        """Adds counts to a group."""
        group = (step, tier, intent, tool)
        if group not in self._counts and len(self._counts) >= GROUPS:
            group = (step, tier, "", "")
        had = self._counts.get(group, Count())
        self._counts[group] = Count(
            had.audits + more.audits, had.lost + more.lost, had.saved + more.saved
        )

    def groups(self) -> Iterator[tuple[Group, Count]]:
        """The groups in order."""
        yield from sorted(self._counts.items())

    def totals(self) -> Iterator[tuple[tuple[str, str], Count]]:
        """By step and tier."""
        out: dict[tuple[str, str], Count] = {}
        for (step, tier, _, _), count in self._counts.items():
            had = out.get((step, tier), Count())
            out[step, tier] = Count(
                had.audits + count.audits, had.lost + count.lost, had.saved + count.saved
            )
        yield from sorted(out.items())

    def proven(self, tier: str, needed: Promote) -> frozenset[Step]:
        """The lossy steps that have their proof on `tier`."""
        return frozenset(
            Step(step)
            for (step, where), count in self.totals()
            if where == tier and step in set(LOSSY) and ready(count, needed)
        )


def ready(count: Count, needed: Promote) -> bool:
    """Whether a group's audits are proof enough."""
    loss = upper(count.lost, count.audits, needed.confidence)
    return count.audits >= needed.need_audits and loss <= needed.max_loss


def refusals(config: Pruning, tiers: Iterable[str], audits: Audits) -> list[str]:
    """What stands against a start: a line for each lossy step that is `on` without its proof."""
    out = []
    for tier in tiers:
        missing = LOSSY - audits.proven(tier, config.promote) - config.promote.unproven
        counts = {step: count for (step, where), count in audits.totals() if where == tier}
        for step, mode in config.modes(tier).items():
            if mode is Mode.ON and step in missing:
                count = counts.get(step, Count())
                loss = upper(count.lost, count.audits, config.promote.confidence)
                out.append(
                    f"pruning.steps.{step}: `on` for tier `{tier}` needs"
                    f" {config.promote.need_audits} audits with a loss of at most"
                    f" {config.promote.max_loss:.1%}; there are {count.audits}, loss up to"
                    f" {loss:.1%} (`observe` gathers them; `promote.unproven: [{step}]` overrides)"
                )
    return out


def overrides(config: Pruning, tiers: Iterable[str], audits: Audits) -> list[str]:
    """A line for the log for each step that is `on` by `promote.unproven` alone."""
    return [
        f"pruning step `{step}` is on for tier `{tier}` without proof, by promote.unproven"
        for tier in tiers
        for step, mode in config.modes(tier).items()
        if mode is Mode.ON
        and step in LOSSY & config.promote.unproven
        and step not in audits.proven(tier, config.promote)
    ]


def _dict(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def _str(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _int(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
