"""Whom to ask, and what was said last."""

from __future__ import annotations

from dataclasses import dataclass, field

from tier_router.config.model import Poll


@dataclass(frozen=True, slots=True)
class Target:
    """A replica, and what is asked of it."""

    name: str
    model: str
    url: str
    """What is dialled."""
    poll: Poll
    api_key: str | None = field(default=None, repr=False)
    asks: bool = False
    """Whether its abilities are to be found out."""
    vllm: bool = True
    """Else it is another host of OpenAI's API, of which `url` is the base: asked for its models
    alone, which say what it can do."""
    chats: bool = True
    """Whether it answers chats; one that makes embeddings does not."""

    def page(self, path: str) -> str:
        """The URL of one of vLLM's paths."""
        return self.url + (path if self.vllm else path.removeprefix("/v1"))


@dataclass(slots=True)
class Said:
    """What a replica said last, and when, by the watch's clock; None for what it never said."""

    requests: float | None = None
    waiting: float | None = None
    kv: float | None = None
    load_at: float | None = None
    metrics_at: float | None = None
