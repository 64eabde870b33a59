"""The types of the `pruning:` section: what may be taken out of a request, and on what proof.

A step's mode is the lowest of four: the section's, the tier's, the step's own, and the client's
header.  A section without a mode is `observe`; without a section nothing is looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

HEADER = "x-tier-router-pruning"
"""The request header by which a client lowers the mode; it never raises it."""


class Mode(StrEnum):
    """What a step does with a request."""

    OFF = "off"
    """It is not looked at."""
    OBSERVE = "observe"
    """What would be taken out is recorded, and checked against the answer; nothing is changed."""
    ON = "on"
    """It is taken out."""


ORDER = (Mode.OFF, Mode.OBSERVE, Mode.ON)


class Step(StrEnum):
    """The steps, in order of value."""

    REASONING = "reasoning"
    CAPS = "caps"
    FOLD = "fold"
    SCHEMA = "schema"
    DUPES = "dupes"
    RAG = "rag"
    RESULTS = "results"
    TOOLS = "tools"
    TURNS = "turns"


class Template(StrEnum):
    """What a tier's chat template does with a thinking switch."""

    NONE = "none"
    """It ignores the switch, or nobody has asked it."""
    TAIL = "tail"
    """The switch shows at the end of the prompt: free to change with each request."""
    HEAD = "head"
    """The switch shows at the start: each change makes the whole prompt uncached."""


LOSSY = frozenset({Step.CAPS, Step.RAG, Step.RESULTS, Step.TOOLS})
"""Steps that take out what an answer might need, and so must prove themselves.  `turns` is not
among them: it acts only on requests that would be refused without it."""


def _mode(value: Any) -> Any:
    """YAML 1.1 reads a bare `on` or `off` as a truth value."""
    if isinstance(value, bool):
        return Mode.ON if value else Mode.OFF
    return value


SomeMode = Annotated[Mode, BeforeValidator(_mode)]
Share = Annotated[float, Field(ge=0, le=1)]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class _Step(_Model):
    """A step's settings; a bare mode stands for `{mode: ...}`."""

    mode: SomeMode = Mode.OBSERVE

    @model_validator(mode="before")
    @classmethod
    def _from_mode(cls, value: Any) -> Any:
        return {"mode": value} if isinstance(value, str | bool) else value


class Thinking(_Model):
    """How much a model is to think, in the fields that vLLM documents."""

    enable_thinking: bool | None = None
    """Sent as `chat_template_kwargs.enable_thinking`."""
    thinking_token_budget: int | None = Field(None, ge=1024)
    """Sent as it is; a tight cap on a thinking model is worse than none, so 1,024 at least."""


class Reasoning(_Step):
    """Thinking off or bounded, only where the client left it unset."""

    mode: SomeMode = Mode.ON
    easy: Thinking = Thinking(enable_thinking=False)
    """For requests that were judged easy."""
    other: Thinking = Thinking()
    """For all others."""


class Caps(_Step):
    """An output limit where the client set none, learned from answers."""

    quantile: float = Field(0.995, ge=0.9, lt=1)
    slack: float = Field(1.5, ge=1)
    """The limit is the quantile times this."""
    need: int = Field(600, ge=100)
    """Answers of a tier and intent to have seen before there is a limit."""


class Fold(_Step):
    """White space between the values of JSON tool results, and blank lines at their ends."""

    mode: SomeMode = Mode.ON
    json_: bool = Field(True, alias="json")
    blanks: bool = True
    tables: bool = False
    """Whether JSON lists of objects with the same keys become `{"columns": [...], "rows": [...]}`.
    All values stay and the list can be made again, but it is another shape than the tool's: whether
    a model reads it as well is for its operator to try."""


class Schema(_Step):
    """Keys of tool schemas that say nothing to a model."""

    mode: SomeMode = Mode.ON
    drop: tuple[str, ...] = ("$schema", "$id", "$comment", "title")


class Dupes(_Step):
    """A tool result that was seen before becomes a pointer to its first copy."""

    mode: SomeMode = Mode.ON
    min_tokens: int = Field(200, ge=50)
    """Size from which an equal result of another call counts; that of the same call always does."""


class Rag(_Step):
    """Retrieved passages that have nothing to do with the question."""

    min_keep: int = Field(1, ge=1)
    relative: Share = 0.7
    """A passage stays from this share of the best one's score (less where the best is doubtful);
    `tests/bench/pruning.py` measures what that keeps and removes."""
    title_links: bool = True
    min_coverage: Share = 0.3
    """Share of the question's words that some passage must hold."""


class Results(_Step):
    """Old tool results, when the tier is cold or the context nearly full."""

    keep_last: int = Field(5, ge=1)
    clear_at_least: int = Field(2000, ge=0)
    """Tokens that must go at once."""
    pressure: Share = 0.8
    """Share of the tier's context from which it is nearly full."""


class Tools(_Step):
    """A shorter tool list, from the catalogue's servers, frozen with the conversation."""

    max_untouched: int = Field(12, ge=1)
    keep: int = Field(0, ge=0)
    """Tools that stay, as `tier-router pruning-report` calibrated it; 0: no cut."""
    always_keep: tuple[str, ...] = ()
    """Names, `*` stands for anything."""


class Turns(_Step):
    """Old turns with their tool calls, only where a request would not fit its tier."""

    mode: SomeMode = Mode.OFF


class Steps(_Model):
    """The steps' settings."""

    reasoning: Reasoning = Reasoning()
    caps: Caps = Caps()
    fold: Fold = Fold()
    schema_: Schema = Field(Schema(), alias="schema")
    dupes: Dupes = Dupes()
    rag: Rag = Rag()
    results: Results = Results()
    tools: Tools = Tools()
    turns: Turns = Turns()

    def of(self, step: Step) -> _Step:
        """A step's own settings."""
        own: _Step = getattr(self, "schema_" if step is Step.SCHEMA else step.value)
        return own

    def mode(self, step: Step) -> Mode:
        """The mode that a step's own settings give it."""
        return self.of(step).mode


class TierPruning(_Model):
    """What is different for one tier."""

    mode: SomeMode = Mode.ON
    steps: Mapping[Step, SomeMode] = Field(default_factory=dict)
    """Lower modes of single steps."""
    prefill_tps: float | None = Field(None, gt=0)
    """Prompt tokens a second; learned where left out."""
    itl_ms: float | None = Field(None, gt=0)
    """Milliseconds for each output token; learned where left out."""
    kv_bytes: float | None = Field(None, gt=0)
    """KV cache bytes of one token."""
    template: Template | None = None
    """What the model's chat template does with a thinking switch; the sidecar asks a replica where
    it is left out, other doors then send none."""
    cache_ttl: float = Field(300.0, gt=0)
    """Seconds after which a prefix counts as gone from the tier's cache."""


class Protect(_Model):
    """What no step touches; system and developer messages never are."""

    tools: tuple[str, ...] = ()
    """Tools whose results stay as they are, `*` stands for anything."""
    marker: str = Field("<!-- keep -->", min_length=4)
    """Everything up to the message that holds this text stays as it is."""


class Promote(_Model):
    """The proof that a lossy step needs before it may be `on`."""

    need_audits: int = Field(600, ge=1)
    max_loss: float = Field(0.005, gt=0, lt=1)
    confidence: float = Field(0.95, gt=0.5, lt=1)
    unproven: frozenset[Step] = frozenset()
    """Steps that are `on` without it; this is logged."""


class Pruning(_Model):
    """What may be taken out of a request before it is sent: of chat completions; what comes to
    other paths goes on as it is."""

    mode: SomeMode = Mode.OBSERVE
    budget_ms: float = Field(10.0, gt=0)
    """Milliseconds after which the original is sent."""
    steps: Steps = Steps()
    tiers: Mapping[str, TierPruning] = Field(default_factory=dict)
    protect: Protect = Protect()
    promote: Promote = Promote()
    holdout: Share = 0.05
    """Share of conversations that are sent unpruned, for a measured difference."""
    proofs: str | None = None
    """File in which the audits are kept, relative to this one; without it they are lost with the
    process, and a lossy step can be `on` by `promote.unproven` only.  Processes may share it."""

    @model_validator(mode="before")
    @classmethod
    def _from_mode(cls, value: Any) -> Any:
        return {"mode": value} if isinstance(value, str | bool) else value

    @model_validator(mode="after")
    def _tools_have_a_number(self) -> Self:
        tools = self.steps.tools
        if tools.mode is Mode.ON and not tools.keep:
            raise ValueError("`steps.tools` is `on` and `keep` is not calibrated")
        return self

    def of_tier(self, tier: str) -> TierPruning:
        """A tier's own settings."""
        return self.tiers.get(tier) or _PLAIN

    def modes(self, tier: str, header: str | None = None) -> dict[Step, Mode]:
        """The mode of each step on a tier, before any proof is asked for.

        An unknown `header` lowers nothing."""
        own = self.of_tier(tier)
        asked = Mode(header) if header in set(Mode) else Mode.ON
        limit = min(self.mode, own.mode, asked, key=ORDER.index)
        return {
            step: min(limit, self.steps.mode(step), own.steps.get(step, Mode.ON), key=ORDER.index)
            for step in Step
        }


_PLAIN = TierPruning()
