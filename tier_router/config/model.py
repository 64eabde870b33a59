"""The types of `config.yaml`, as frozen pydantic models: what people write is validated.

Unknown keys are refused.  The JSON schema that editors use comes from `Config.model_json_schema()`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    SecretStr,
    field_validator,
    model_validator,
)

from tier_router.config.base import Model, Name, Positive, Seconds, Share, split
from tier_router.config.log import Log
from tier_router.config.pruning import Mode, Pruning
from tier_router.config.server import ClientTls, Server
from tier_router.config.speed import Speed
from tier_router.request import Need

AUTO = "auto"
"""The model name by which a client leaves the choice to the router."""


STORES = ("memory", "redis", "rediss", "unix", "redis+sentinel", "redis+cluster")
"""What `state` may name."""


def _or_auto(schema: dict[str, Any]) -> None:
    """Lets editors know that the word `auto` is allowed too."""
    kinds = {key: schema.pop(key) for key in ("type", "items", "uniqueItems") if key in schema}
    schema["anyOf"] = [*schema.get("anyOf", [kinds]), {"const": AUTO}]


Context = Annotated[
    int | None,
    BeforeValidator(lambda value: None if value == AUTO else value),
    Field(json_schema_extra=_or_auto),
]
Abilities = Annotated[frozenset[Need], Field(json_schema_extra=_or_auto)]


def _period(value: float) -> float:
    if 0 < value < 0.05:
        raise ValueError("0 (never), or 0.05 seconds and more")
    return value


Period = Annotated[float, Field(ge=0, le=86_400), AfterValidator(_period)]


class Replica(Model):
    """One vLLM server of a tier; a plain URL stands for `{url: ...}`."""

    stands_for = "url"

    url: str
    """`http://host:port`, `https://...`, or `sim://...` for a simulated one."""
    weight: Positive = 1.0
    """Capacity relative to the tier's other replicas."""
    name: Name | None = None
    """What logs, metrics and headers call it; `TIER-INDEX` where left out."""

    @field_validator("url")
    @classmethod
    def _usable(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https", "sim"):
            raise ValueError("a replica's URL starts with http://, https:// or sim://")
        if not parts.hostname:
            raise ValueError("a replica's URL names a host")
        if parts.scheme != "sim" and (parts.query or parts.fragment):
            raise ValueError("a replica's URL has no query")
        _ = parts.port  # raises ValueError for a port that is none
        return url.rstrip("/")


def _base(url: str, kind: str) -> str:
    """What paths are appended to: for vLLM the server's root, for others the base of their API."""
    if kind == "vllm":
        return url.removesuffix("/v1")
    parts = urlsplit(url)
    return url if parts.path or parts.scheme == "sim" else f"{url}/v1"


class Limits(Model):
    """What one replica of weight 1 carries; pressure 1.0 is reached at the first limit."""

    requests: Positive = 64
    """Requests in flight (vLLM's `--max-num-seqs` or what you measured to be too many)."""
    tokens: Positive = 200_000
    """Prompt and expected output tokens in flight."""
    waiting: Positive = 16
    """Requests queued inside vLLM, by whomever; read from its `/metrics` and answers."""
    kv: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Share of the KV cache in use."""


class Cost(Model):
    """What a tier costs: per GPU hour, or per million tokens."""

    gpu_hour: float | None = Field(None, ge=0)
    gpus: float = Field(1, gt=0)
    """GPUs of one replica."""
    input: float | None = Field(None, ge=0)
    output: float | None = Field(None, ge=0)


class Tier(Model):
    """One rung of the ladder: a model, and the replicas that serve it."""

    name: Name
    model: str = Field(min_length=1)
    """The model name sent upstream."""
    replicas: tuple[Replica, ...] = Field(min_length=1)
    kind: Literal["vllm", "openai"] = "vllm"
    """`openai` is any other host that speaks OpenAI's API: its URL is the base that such clients
    are given (`https://host/v1`), it is not asked for its load, and gets nothing that only vLLM
    knows.  `context: auto`, `can: auto` and `cost` come from its list of models, where given."""
    context: Context = Field(None, gt=0)
    """Tokens of prompt and answer that fit; `auto`, or left out, is what the replicas tell (the
    least `max_model_len` of `/v1/models`), unchecked until they do."""
    can: Abilities = frozenset({Need.TOOLS, Need.JSON, Need.LOGPROBS, Need.REASONING})
    """Abilities; a request that needs another one is not sent here.  `auto` finds tools, json,
    vision and reasoning out, by a request of one token each to every replica.  `[embeddings]` is
    for a server of vectors: it stands after the ladder and gets `/v1/embeddings`, `/v1/rerank` and
    `/v1/score`, nothing else."""
    limits: Limits = Limits()
    cost: Cost | None = None
    speed: Speed = Speed()
    """How fast one replica is, for `simulate` and `report`."""
    tls: ClientTls | None = None
    """For replicas at `https://` with a certificate of one's own, or that want to see one."""
    api_key: SecretStr | None = None
    """Sent upstream as `Authorization: Bearer`."""
    defaults: Mapping[str, Any] = Field(default_factory=dict)
    """Body fields that are set only where the client left them unset."""

    _asks: bool = PrivateAttr(False)

    @model_validator(mode="wrap")
    @classmethod
    def _can_auto(cls, data: Any, handler: ModelWrapValidatorHandler[Tier]) -> Tier:
        """Keeps what was written apart from what it stands for until the replicas were asked."""
        asks = isinstance(data, Mapping) and data.get("can") == AUTO
        tier = handler({key: data[key] for key in data if key != "can"} if asks else data)
        if asks:
            tier._asks = True
        return tier

    @property
    def asks(self) -> bool:
        """Whether the abilities are to be found out (`can: auto`)."""
        return self._asks

    @property
    def pools(self) -> bool:
        """Whether it makes embeddings, and so is no rung of the ladder."""
        return Need.EMBEDDINGS in self.can

    def openai_base(self, replica: Replica) -> str:
        """What an OpenAI client is given as base URL for one of its replicas."""
        return replica.url if self.kind == "openai" else f"{replica.url}/v1"

    @field_validator("can")
    @classmethod
    def _nothing_else(cls, can: frozenset[Need]) -> frozenset[Need]:
        if Need.EMBEDDINGS in can and len(can) > 1:
            raise ValueError("a tier that makes embeddings can do nothing else: [embeddings]")
        return can

    @field_validator("name")
    @classmethod
    def _not_auto(cls, name: str) -> str:
        if name == AUTO:
            raise ValueError("`auto` is the name by which clients leave the choice to the router")
        return name

    @model_validator(mode="after")
    def _named(self) -> Self:
        """Gives each replica its name, and its URL the form that its kind has."""
        named = tuple(
            replica.model_copy(
                update={
                    "name": replica.name or f"{self.name}-{index}",
                    "url": _base(replica.url, self.kind),
                }
            )
            for index, replica in enumerate(self.replicas)
        )
        object.__setattr__(self, "replicas", named)
        return self

    @cached_property
    def names(self) -> tuple[str, ...]:
        """What its replicas are called, in their order."""
        return tuple(replica.name or replica.url for replica in self.replicas)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """As pydantic's, which would keep the names of the old replicas."""
        copied = super().model_copy(update=update, deep=deep)
        copied.__dict__.pop("names", None)
        return copied


class Intent(Model):
    """A route of semantic-router, and the tier that its requests go to."""

    tier: str | None = None
    """Where requests of this intent go; without it the intent is only a label."""
    utterances: tuple[str, ...] = Field(min_length=1)
    description: str | None = None
    threshold: Share | None = None
    """Confidence from which a request counts as this intent."""


class IntentFile(Model):
    """A routes file of semantic-router (0.x or 1.x, YAML or JSON); a plain path stands for it."""

    stands_for = "path"

    path: str
    tier: str | None = None
    """The tier of every route that has none of its own."""
    tiers: Mapping[str, str] = Field(default_factory=dict)
    """Tier by route name."""


class ClassifierChoice(Model):
    """Who says which intent a request belongs to; its difficulty is always our own model's."""

    engine: Literal["native", "semantic-router"] = "native"
    """`semantic-router` is the library: `pip install 'tier-router[semantic]'`."""
    file: str | None = None
    """A router file of the installed library, with its own encoder and index; without it the
    library compares `intents` by our vectors.  Its routes are intents too: list it under
    `intent_files` to give them tiers."""
    deadline: Seconds = 0.05
    """How long a request waits for the file's encoder; what comes later serves the next one."""

    @model_validator(mode="after")
    def _has_use_of_the_file(self) -> Self:
        if self.file is not None and self.engine == "native":
            raise ValueError("`file` is for `engine: semantic-router`; see `intent_files`")
        return self


class When(Model):
    """The condition of a rule; everything that is given must hold."""

    header: Mapping[str, str] = Field(default_factory=dict)
    """Header name to value; `*` is any value."""
    keyword: Annotated[tuple[str, ...], BeforeValidator(split)] = ()
    """Words or phrases, any of which the judged text contains (whole words, any case)."""
    regex: str | None = None
    """A Python regular expression that is searched in the judged text, at most 2,000 characters."""

    @model_validator(mode="after")
    def _something(self) -> Self:
        if not (self.header or self.keyword or self.regex):
            raise ValueError("a rule needs a `header`, a `keyword` or a `regex`")
        return self

    @field_validator("header")
    @classmethod
    def _lower(cls, header: Mapping[str, str]) -> Mapping[str, str]:
        return {name.lower(): value for name, value in header.items()}

    @field_validator("regex")
    @classmethod
    def _compiles(cls, regex: str | None) -> str | None:
        if regex is not None:
            try:
                re.compile(regex)
            except re.error as error:
                raise ValueError(f"not a regular expression: {error}") from None
        return regex

    @cached_property
    def pattern(self) -> re.Pattern[str] | None:
        """`keyword` as one expression; a border that is not a word character needs none."""
        if not self.keyword:
            return None
        words = (
            ("(?<!\\w)" if word[0].isascii() and word[0].isalnum() else "")
            + re.escape(word)
            + ("(?!\\w)" if word[-1].isascii() and word[-1].isalnum() else "")
            for word in self.keyword
        )
        return re.compile("|".join(words), re.I)

    @cached_property
    def compiled(self) -> re.Pattern[str] | None:
        """`regex`, compiled."""
        return None if self.regex is None else re.compile(self.regex)


class Rule(Model):
    """Sends what fits `when` to `tier`; the first rule that fits wins."""

    when: When
    tier: str
    name: str | None = None


class Calibration(Model):
    """What `tier-router calibrate` found in the operator's own traffic."""

    threshold: Share | None = None
    """As in the policy, whose own comes first."""
    points: tuple[tuple[Share, Share], ...] | None = None
    """(difficulty, corrected difficulty) pairs, both rising: a piecewise linear map."""
    made_from: Mapping[str, Any] = Field(default_factory=dict)
    """For people: what was read, and how sure the result is."""

    @field_validator("points")
    @classmethod
    def _rising(
        cls, points: tuple[tuple[float, float], ...] | None
    ) -> tuple[tuple[float, float], ...] | None:
        for (x, y), (next_x, next_y) in pairwise(points or ()):
            if next_x <= x or next_y < y:
                raise ValueError("points rise")
        if points is not None and len(points) < 2:
            raise ValueError("a map has two points or more")
        return points


class Policy(Model):
    """Where the line between tiers is drawn."""

    threshold: float | tuple[float, ...] | None = None
    """Difficulty (0..1) from which the next tier up is wanted: one number, or one for each step
    of the ladder."""
    heavy_share: Share | None = None
    """Share of the reference traffic that goes above the lightest tier."""
    calibration: Calibration | None = None
    """The file that `tier-router calibrate` wrote, relative to this one, or what is in it."""

    @model_validator(mode="after")
    def _one_of(self) -> Self:
        if self.threshold is not None and self.heavy_share is not None:
            raise ValueError("give `threshold` or `heavy_share`, not both")
        steps = self.threshold if isinstance(self.threshold, tuple) else (self.threshold or 0.0,)
        if not all(0 <= step <= 1 for step in steps) or list(steps) != sorted(steps):
            raise ValueError("thresholds are between 0 and 1 and do not fall")
        return self


class Poll(Model):
    """How many seconds apart a replica is asked what it says of itself; 0 is never.  `true` stands
    for these, `false` for never."""

    load: Period = 0.25
    """`/load`, the requests of all clients: 0.7 ms for vLLM, and right within 35 ms.  Where this is
    not written, more than 25 replicas are asked less often: 100 times a second all together."""
    metrics: Period = 2.0
    """`/metrics`, queue and KV cache: 4 to 46 ms of vLLM's own event loop, so not more often."""
    models: Period = 30.0
    """`/v1/models` and `/version`; also at the start and when a replica comes back."""

    @model_validator(mode="before")
    @classmethod
    def _from_bool(cls, value: Any) -> Any:
        if isinstance(value, bool):
            return {} if value else {"load": 0, "metrics": 0, "models": 0}
        return value


class LoadPolicy(Model):
    """How far load may move a request, and how it is learned."""

    poll: Poll = Poll()
    """How often replicas are asked for their load and their models."""

    price: float = Field(0.5, ge=0, le=5)
    """Log-odds by which the threshold moves when one tier is full and its neighbour idle."""
    shed: float | None = Field(4.0, ge=1)
    """Pressure of every replica that may answer from which a request is refused (503, with
    Retry-After): 4 is 256 requests on each where `limits.requests` is 64.  Half of it for what has
    a priority number above 0 (it can wait), twice for below 0.  `null`: nothing is refused."""
    hedge: bool = False
    """Whether a stream whose first token is later than 19 of 20 have been is sent to a second
    replica of its tier as well, within `server.retry_share`; whoever comes first answers, the
    other is cut off at once."""
    stamp: int = Field(-1, le=0)
    """vLLM priority (lower goes first) of requests that are easy, sent as `X-Vllm-Priority` where
    the client set none; housekeeping gets its opposite.  It helps where vLLM runs with
    `--scheduling-policy priority` and is ignored elsewhere.  0 stamps nothing."""


class Config(Model):
    """A whole `config.yaml`."""

    tiers: tuple[Tier, ...] = Field(min_length=1)
    """The ladder, smallest model first."""
    intents: Mapping[str, Intent] = Field(default_factory=dict)
    """Routes by name."""
    intent_files: tuple[IntentFile, ...] = ()
    """Routes in semantic-router's own files, relative to this one."""
    classifier: ClassifierChoice = ClassifierChoice()
    rules: tuple[Rule, ...] = ()
    aliases: Mapping[str, str] = Field(default_factory=dict)
    """Model names that clients use, to a tier or to `auto`."""
    policy: Policy = Policy()
    load: LoadPolicy = LoadPolicy()
    pruning: Pruning = Pruning(mode=Mode.OFF)
    """What may be taken out of a request before it is sent; a bare mode stands for
    `{mode: ...}`."""
    state: str = "memory://"
    """Where routers share what they have in flight: `memory://` (this process alone), `redis://`,
    `rediss://`, `unix://`, `redis+sentinel://HOST,HOST/MASTER/DB` or `redis+cluster://`."""
    feedback: str | None = None
    """File that verdicts on answers (`POST /v1/tier/feedback`) are appended to, each with the text
    of its request, as labels for `tier-router calibrate`; without it none are taken.  Relative to
    this file."""
    log: Log | None = None
    """Where each decision is written down, one JSON line a request; without it nothing is."""
    server: Server = Server()

    _sources: tuple[Path, ...] = PrivateAttr(())

    @field_validator("state")
    @classmethod
    def _known_state(cls, state: str) -> str:
        scheme, found, _ = state.partition("://")
        if not found or scheme not in STORES:
            raise ValueError(f"one of {', '.join(f'{store}://' for store in STORES)}")
        return state

    @field_validator("tiers")
    @classmethod
    def _ladder_first(cls, tiers: tuple[Tier, ...]) -> tuple[Tier, ...]:
        pools = [tier.pools for tier in tiers]
        if all(pools):
            raise ValueError("at least one tier answers chats: not all of them make embeddings")
        if pools != sorted(pools):
            raise ValueError("tiers that make embeddings come after the ladder")
        return tiers

    @cached_property
    def rungs(self) -> int:
        """How many of the tiers are the ladder; those after them make embeddings."""
        return sum(not tier.pools for tier in self.tiers)

    @property
    def sources(self) -> tuple[Path, ...]:
        """The files that this configuration was read from."""
        return self._sources

    @cached_property
    def ladder(self) -> Mapping[str, int]:
        """Tier name to its place, 0 for the lightest."""
        return {tier.name: place for place, tier in enumerate(self.tiers)}

    @cached_property
    def pins(self) -> Mapping[str, str]:
        """What a client may name as model, to a tier's name or `auto`."""
        models = {tier.model: tier.name for tier in self.tiers}
        names = {tier.name: tier.name for tier in self.tiers}
        return {**models, **self.aliases, **names, AUTO: AUTO}
