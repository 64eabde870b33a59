"""Retrieved passages that have nothing to do with the question; whole passages or nothing.

The question is what the same message says outside its passages, for a tool's result the call that
asked for it.  So the same message gives the same bytes whatever comes later.
"""

from __future__ import annotations

import html
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from tier_router.config.pruning import Rag, Step
from tier_router.prune.draft import Draft
from tier_router.prune.language import language
from tier_router.prune.plan import Edit
from tier_router.prune.recognise import LEFT_OUT, Block, block_of, is_code
from tier_router.prune.score import Scorer, Weighed, coverage, query_terms, terms
from tier_router.prune.units import TOOL, USER, Text
from tier_router.view import tokens_of

SURE = 0.8
"""A best score from which the scorer is sure; below it passages stay from a lower share of it."""
DOUBT = 6
"""How fast that share falls: (best / SURE) to this power."""
CLEAR = 2.1
"""Evidence for the best passage from which it is clear that it answers; below it the share falls as
the square root: the lower quartile of half the questions of Natural Questions."""
BLIND = 0.8
"""What the share is multiplied by without vectors, which know words that mean the same: words alone
lose 2.7 % of Natural Questions so."""
LONG, EASED, MORE = 7, 0.65, 2
"""Content words from which a question may have more than one hop, what the share is then multiplied
by, and how many passages more stay."""
MOST = 0.8
"""Share of the passages; where more would stay they were hardly told apart, and all do.  With it
one of 66 questions of HotpotQA loses a paragraph, without it two."""
WORTH = 100
"""Tokens that must go from a block, about the price of the note on them five times."""
SPOKEN = 8
"""Passages that tell which language a block is in."""
CHOICES = 512
"""Choices that are kept: about 10 MB of 20 passages each."""
QUESTION_CHARS = 2_000
"""Of a longer question the end counts, where the asking is done."""

_WIDE = re.compile(
    r"\b(?:all|each|every|compare|comparison|contrast|difference|summari[sz]e|summary|overview|list"
    r"|enumerate|how many of|total|overall|across|throughout|outline|in order"
    r"|chronological|timeline|translate|rewrite|extract|classify)\b"
    r"|\b(?:alle|jede[rsn]?|vergleich\w*|fasse|zusammenfass\w*|todos|todas|cada|compara\w*|resume"
    r"|resumen|tous|toutes|chaque|comparez|résume\w*)\b|所有|每个|比较|总结|概括|все\b|сравни|кажд",
    re.I,
)


@dataclass(frozen=True, slots=True)
class Choice:
    """Which passages of a block stay; `reason` says why all do."""

    kept: frozenset[int] = frozenset()
    scores: tuple[float, ...] = ()
    reason: str = ""


def _idle() -> None:
    """Nothing to do between passages."""


def run(draft: Draft) -> None:
    """Adds an edit for each text with passages to leave out."""
    for text in draft.prompt.texts:
        if text.role not in (USER, TOOL) or not draft.free(text):
            continue
        draft.in_time()
        whole = draft.text(text)
        block = block_of(whole)
        if block is None:
            continue
        chosen = _chosen(draft, block, _question(text, whole, block))
        if chosen.reason:
            draft.abstain(Step.RAG, chosen.reason, text.message)
            continue
        edit = _edit(text, whole, block, chosen, draft.on(Step.RAG))
        if edit.saved < WORTH:
            draft.abstain(Step.RAG, "little", text.message)
        else:
            draft.add(edit)


def _chosen(draft: Draft, block: Block, question: str) -> Choice:
    """The choice for a block, made once: a message comes again with every turn after it."""
    settings = draft.config.steps.rag
    kept = draft.scorer.kept
    key = (block, question, settings)
    choice = kept.pop(key, None)
    if not isinstance(choice, Choice):
        choice = choose(block, question, settings, draft.scorer, draft.in_time)
    kept[key] = choice
    while len(kept) > CHOICES:
        kept.pop(next(iter(kept)))
    return choice


def _question(text: Text, whole: str, block: Block) -> str:
    if text.role == TOOL:
        return f"{text.call.name} {text.call.arguments}" if text.call else ""
    return f"{whole[: block.start]} {whole[block.end :]}"


def choose(
    block: Block, question: str, settings: Rag, scorer: Scorer, tick: Callable[[], None] = _idle
) -> Choice:
    """The passages that stay, or the reason why all do; `tick` may end it by raising."""
    question = _asked(question)
    query = query_terms(question)
    texts = [f"{each.title}\n{each.text}" for each in block.segments]
    if not query or not question.strip():
        return Choice(reason="no question")
    if _WIDE.search(question):
        return Choice(reason="asks for all")
    if sum(is_code(text) or "```" in text for text in texts) > 0.6 * len(texts):
        return Choice(reason="code")
    if _foreign(question, texts):
        return Choice(reason="language")
    found = [terms(text) for text in texts]
    if coverage(query, found) < settings.min_coverage:
        return Choice(reason="coverage")
    weighed = scorer.weighed(question, [(each.title, each.text) for each in block.segments], tick)
    kept = _best(weighed, settings, long=len(query) >= LONG)
    kept |= {at for at, text in enumerate(texts) if "```" in text or "<!--" in text}
    if settings.title_links:
        kept = _linked(block, question, kept)
    if len(kept) > MOST * len(texts):
        return Choice(reason="flat")
    return Choice(frozenset(kept), weighed.scores)


def _best(weighed: Weighed, settings: Rag, *, long: bool) -> set[int]:
    scores = weighed.scores
    order = sorted(range(len(scores)), key=lambda at: (-scores[at], at))
    best = scores[order[0]]
    line = settings.relative * best * min(1.0, best / SURE) ** DOUBT * (EASED if long else 1.0)
    if weighed.evidence:
        line *= math.sqrt(min(1.0, max(0.0, weighed.evidence[order[0]]) / CLEAR))
    else:
        line *= BLIND
    least = settings.min_keep + (MORE if long else 0)
    return {at for place, at in enumerate(order) if place < least or scores[at] >= line}


@lru_cache(1_024)
def _asked(question: str) -> str:
    """The question itself: the last line that asks, else the end of the text."""
    question = question.strip()[-QUESTION_CHARS:]
    lines = [line.strip() for line in question.split("\n") if line.strip()]
    asking = [line for line in lines if re.search(r"[?？؟]|^(?:question|query|q)\s*:", line, re.I)]
    text = asking[-1] if asking else question
    return re.sub(r"^(?:question|query|q|answer)\s*:\s*", "", text, flags=re.I)


def _foreign(question: str, texts: Sequence[str]) -> bool:
    """Whether the passages are in another language than the question, as far as one can tell."""
    asked = language(question)
    spoken = Counter(language(text) for text in texts[:SPOKEN]).most_common(1)[0][0]
    return bool(asked and spoken) and asked != spoken


def _linked(block: Block, question: str, kept: set[int]) -> set[int]:
    """The kept passages, those whose title the question or a kept passage names, and those that
    name the title of a kept one: two rounds."""
    titles = [_plain(each.title) for each in block.segments]
    texts = [html.unescape(each.text).lower() for each in block.segments]
    asked = question.lower()
    kept = kept | _named(titles, [texts[at] for at in kept])
    kept = kept | {at for at, title in enumerate(titles) if title and title in asked}
    for _ in range(2):
        more = {
            at
            for at, title in enumerate(titles)
            if at not in kept
            and any(
                (title and title in texts[other]) or (titles[other] and titles[other] in texts[at])
                for other in kept
            )
        }
        if not more:
            break
        kept = kept | more
    return kept


def _named(titles: Sequence[str], kept: Sequence[str]) -> set[int]:
    """Passages whose title's words, two or more, all stand in one kept passage, wherever."""
    words = [terms(text).counts.keys() for text in kept]
    found = set()
    for at, title in enumerate(titles):
        named = terms(title).counts.keys()
        if len(named) >= 2 and any(named <= each for each in words):
            found.add(at)
    return found


def _plain(title: str) -> str:
    """A title as prose writes it: without what stands in brackets; too short ones name nothing."""
    title = re.sub(r"\s*\([^)]*\)", "", html.unescape(title)).strip().lower()
    return title if len(title) >= 3 else ""


def _edit(text: Text, whole: str, block: Block, chosen: Choice, on: bool) -> Edit:
    gone = [each for at, each in enumerate(block.segments) if at not in chosen.kept]
    tokens = sum(tokens_of(whole[each.start : each.end]) for each in gone)
    labels = ", ".join(each.label for each in gone)
    note = (
        f"{LEFT_OUT}{len(gone)} of {len(block.segments)} passages ({labels}),"
        f" about {tokens} tokens]\n"
    )
    if whole[block.end - 1] != "\n" and block.segments[-1] not in gone:
        note = "\n" + note
    cuts = tuple((each.start, each.end) for each in gone)
    return Edit(
        Step.RAG, "leave out", text.path, without(whole, cuts, block.end, note),
        tokens_of(whole), tokens_of(whole) - tokens + tokens_of(note), on, text.message,
        text.call.name if text.call else "", cuts, note,
        tuple(whole[each.start : each.end] for each in gone),
        tuple(each.label for each in gone), tuple(round(score, 3) for score in chosen.scores),
    )  # fmt: skip


def without(whole: str, cuts: Sequence[tuple[int, int]], at: int, note: str) -> str:
    """`whole` without its cuts, and the note at the place `at`."""
    out, last = [], 0
    for start, end in cuts:
        out.append(whole[last:start])
        last = end
    out.append(whole[last:at])
    out.append(note)
    out.append(whole[max(at, last) :])
    return "".join(out)
