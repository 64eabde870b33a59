"""Follows a prompt through what is cached, message by message, and picks how each one is sent.

Each message may be sent as the client wrote it or pruned.  While the prompt so far is cached, the
way that leaves fewer tokens to prefill is taken: so a prefix that went out pruned stays pruned, one
that went out whole stays whole, and no edit ever costs the prefix cache.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tier_router.prune.units import Message, Path, Prompt, pieces
from tier_router.prune.warm import Cached
from tier_router.view import tokens_of

BLOCK = 16
"""Tokens of a KV block in vLLM's default."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to send a piece of the prompt: texts by path that differ from the client's."""

    texts: Mapping[Path, str]
    query_bound: bool = False
    """Whether the texts depend on the question, so that another question gives other ones."""
    first_cut: int = 0
    """The character of the message from which the texts differ."""
    only_warm: bool = False
    """Whether it is taken only where it is cached already."""
    always: bool = False
    """Whether it is taken whatever is cached."""


@dataclass(slots=True)
class Walked:
    """A prompt's way through the cache.

    `picked` maps a message's index to the way taken (absent: as the client wrote it); `chain` are
    the links of what is sent, `links` those of each message; `warm_to` is the first message that is
    not cached whole.
    """

    chain: list[int] = field(default_factory=list)
    links: list[tuple[int, ...]] = field(default_factory=list)
    picked: dict[int, Way] = field(default_factory=dict)
    tokens: int = 0
    cached: int = 0
    warm_to: int = 0
    shared: list[int] = field(default_factory=list)
    forks: list[int] = field(default_factory=list)

    @property
    def uncached(self) -> int:
        """Tokens to prefill: at least the last one always is."""
        return max(self.tokens - self.cached, 1 if self.tokens else 0)


Links = dict[tuple[int, int], tuple[tuple[int, ...], list[int]]]
"""(links, tokens by link) of a message by (link before it, its index)."""


@dataclass(frozen=True, slots=True)
class _Step:
    """A message appended to a chain."""

    links: tuple[int, ...]
    tokens: int
    cached: int
    whole: bool


def head_of(prompt: Prompt, tools: bytes, switch: object) -> tuple[int, int]:
    """(link, tokens) of what stands before the messages."""
    return hash((prompt.head, tools, switch)), prompt.head_tokens + len(tools) // 4


def walk(
    prompt: Prompt,
    heads: Sequence[tuple[int, int]],
    ways: Mapping[int, Sequence[Way]],
    cached: Cached,
    plain: Links,
    asked: Sequence[Sequence[int]] = (),
    tick: Callable[[], None] | None = None,
) -> Walked:
    """The cheapest way to send `prompt`; `heads` are the ways to send what comes before the
    messages, the pruned one last; `plain` keeps what was computed of messages as the client wrote
    them, and `asked` are their links in a prompt that is all the client's.  `tick` is called
    between messages, and may raise.
    """
    out = Walked()
    warm = [head for head in heads if cached.has(head[0])]
    link, size = (warm or heads)[-1]
    out.chain.append(link)
    out.tokens, out.cached = size, size if warm else 0
    is_warm = bool(warm)
    for message in prompt.messages:
        if tick is not None:
            tick()
        key = link, message.index
        if key not in plain:
            plain[key] = _links(link, message, {})
        own = _step(*plain[key], cached, is_warm)
        best, way = own, None
        for option in ways.get(message.index, ()):
            step = _step(*_links(link, message, option.texts), cached, is_warm)
            if option.always:
                best, way = step, option
                break
            if option.only_warm and not step.whole:
                continue
            if option.query_bound and asked and not step.whole:
                at = _fork(asked[message.index], option, cached)
                if at is not None:
                    if (cached.forked(at) + 1) * step.tokens >= own.tokens:
                        out.shared.append(message.index)
                        continue
                    out.forks.append(at)
            if _order(step) <= _order(best):
                best, way = step, option
        if way is not None:
            out.picked[message.index] = way
        out.chain += best.links
        out.links.append(best.links)
        out.tokens += best.tokens
        out.cached += best.cached
        link = best.links[-1]
        if is_warm and best.whole:
            out.warm_to = message.index + 1
        is_warm = is_warm and best.whole
    return out


def _order(step: _Step) -> tuple[int, int]:
    """Fewer tokens to prefill first; then fewer to attend to."""
    return step.tokens - step.cached, step.tokens


def _fork(asked: Sequence[int], way: Way, cached: Cached) -> int | None:
    """The link of the client's own message just after the first cut, if others asked with it."""
    place = 1 + way.first_cut // 512
    if place < len(asked) and cached.lately(asked[place]):
        return asked[place]
    return None


def _links(
    link: int, message: Message, texts: Mapping[Path, str]
) -> tuple[tuple[int, ...], list[int]]:
    """(links, tokens by link) of a message after `link`."""
    links = [hash((link, message.rest))]
    sizes = [message.rest_tokens]
    for text in message.texts:
        for piece in pieces([texts.get(text.path, text.text)]):
            links.append(hash((links[-1], piece)))
            sizes.append(tokens_of(piece))
    return tuple(links), sizes


def _step(links: tuple[int, ...], sizes: list[int], cached: Cached, warm: bool) -> _Step:
    known, count = 0, 0
    if warm:
        for each, size in zip(links, sizes, strict=True):
            if not cached.has(each):
                break
            known += size
            count += 1
    return _Step(links, sum(sizes), known, count == len(links))
