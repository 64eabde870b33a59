"""One vLLM replica as a LangChain chat model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx
import openai
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_openai import ChatOpenAI

from tier_router.config import Replica, Tier, Timeouts
from tier_router.langchain.transport import PerLoopTransport

REASONING = ("reasoning", "reasoning_content")
"""Where vLLM puts the text of its thinking: today's name, and the one before 0.10."""


class ChatVllm(ChatOpenAI):
    """`ChatOpenAI` that keeps vLLM's reasoning text, in `additional_kwargs["reasoning_content"]`
    (where LangChain's content blocks look for it)."""

    @property
    def _llm_type(self) -> str:
        return "tier-router-vllm"

    def _create_chat_result(
        self,
        response: dict[str, Any] | openai.BaseModel,
        generation_info: dict[str, Any] | None = None,
    ) -> ChatResult:
        result = super()._create_chat_result(response, generation_info)
        raw = response if isinstance(response, dict) else response.model_dump()
        for generation, choice in zip(result.generations, raw.get("choices") or (), strict=False):
            _keep(generation.message.additional_kwargs, choice.get("message"))
        return result

    def _convert_chunk_to_generation_chunk(
        self,
        chunk: dict[str, Any],
        default_chunk_class: type,
        base_generation_info: dict[str, Any] | None,
    ) -> ChatGenerationChunk | None:
        made = super()._convert_chunk_to_generation_chunk(
            chunk, default_chunk_class, base_generation_info
        )
        choices = chunk.get("choices")
        if made is not None and choices:
            _keep(made.message.additional_kwargs, choices[0].get("delta"))
        return made


def _keep(kwargs: dict[str, Any], message: Mapping[str, Any] | None) -> None:
    """Takes the reasoning text of an answer's message along."""
    for name in REASONING:
        text = (message or {}).get(name)
        if isinstance(text, str) and text:
            kwargs["reasoning_content"] = text
            return


def chat_vllm(tier: Tier, replica: Replica, timeouts: Timeouts) -> ChatVllm:
    """The chat model of one replica.  It does not retry: the router goes on to the next one."""
    return ChatVllm(
        model=tier.model,
        base_url=tier.openai_base(replica),
        api_key=tier.api_key or "none",
        max_retries=0,
        timeout=timeouts.answer,
        stream_usage=True,
        http_async_client=httpx.AsyncClient(transport=PerLoopTransport()),
    )
