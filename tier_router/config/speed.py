"""How fast a tier's replicas are, for `tier-router simulate` and `report`."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from tier_router.config.base import Model


class Speed(Model):
    """One replica of a tier.  A step of its engine, in which every running request gets a token,
    lasts `step + per_seq * (running - 1) + prompt tokens of the step / prefill` seconds.

    What is left out is what a log's answers teach, else an assumption: see
    `tier_router.simulate.machine`.
    """

    prefill: float | None = Field(None, gt=0)
    """Prompt tokens a second."""
    step: float | None = Field(None, gt=0)
    """Seconds from one token to the next while one request runs alone."""
    per_seq: float | None = Field(None, ge=0)
    """Seconds that each further running request adds."""
    slots: int | None = Field(None, gt=0)
    """Requests that run at once (vLLM's `--max-num-seqs`); others wait."""
    batched_tokens: int | None = Field(None, gt=0)
    """Tokens of one step (vLLM's `--max-num-batched-tokens`)."""
    kv_tokens: int | None = Field(None, gt=0)
    """Tokens that the KV cache holds (vLLM prints it at its start)."""
    prefix_cache: bool = True
    """Whether prefixes are cached, as is vLLM's default."""
    scheduling: Literal["fcfs", "priority"] = "fcfs"
    """vLLM's `--scheduling-policy`."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.batched_tokens and self.slots and self.batched_tokens < self.slots:
            raise ValueError("`batched_tokens` must not be below `slots`: vLLM refuses to start")
        return self

    @property
    def told(self) -> bool:
        """Whether it says how fast prompts are read and answers written."""
        return self.prefill is not None and self.step is not None
