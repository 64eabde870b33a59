"""How fast a tier's replicas are, for `tier-router simulate` and `report`."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from tier_router.config.base import Model, Positive


class Speed(Model):
    """One replica of a tier.  A step of its engine, in which every running request gets a token,
    lasts `step + per_seq * (running - 1) + prompt tokens of the step / prefill` seconds."""

    prefill: Positive
    """Prompt tokens a second."""
    step: Positive
    """Seconds from one token to the next while one request runs alone."""
    per_seq: float = Field(0.0, ge=0)
    """Seconds that each further running request adds."""
    slots: int = Field(64, gt=0)
    """Requests that run at once (vLLM's `--max-num-seqs`); others wait."""
    batched_tokens: int = Field(8_192, gt=0)
    """Tokens of one step (vLLM's `--max-num-batched-tokens`)."""
    kv_tokens: int = Field(400_000, gt=0)
    """Tokens that the KV cache holds (vLLM prints it at its start)."""
    prefix_cache: bool = True
    """Whether prefixes are cached, as is vLLM's default."""
    scheduling: Literal["fcfs", "priority"] = "fcfs"
    """vLLM's `--scheduling-policy`."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.batched_tokens < self.slots:  # vLLM refuses to start with that
            raise ValueError("`batched_tokens` must not be below `slots`")
        return self
