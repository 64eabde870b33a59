"""What a `litellm.Router` knows of its deployments; the one place that tells its versions apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tier_router.litellm.groups import Deployment


async def healthy_of(
    router: Any, model: str, messages: Any, input: Any, kwargs: dict[str, Any]
) -> list[Deployment] | Deployment:
    """The healthy deployments of a group or alias; one of them where `model` is its id.

    Raises what LiteLLM raises where there are none.
    """
    if hasattr(router, "select"):  # since 1.109
        found = await router.select(model, kwargs, kind="healthy", messages=messages, input=input)
    else:
        found = await router.async_get_healthy_deployments(
            model=model,
            request_kwargs=kwargs,
            messages=messages,
            input=input,
            specific_deployment=False,
            parent_otel_span=None,
        )
    return found if isinstance(found, Mapping) else list(found)


def all_of(router: Any) -> list[Deployment]:
    """All deployments of all groups."""
    return list(router.registry().all() if hasattr(router, "registry") else router.model_list)


def deployments_of(router: Any, model: str) -> list[Deployment]:
    """All deployments of a group, an alias or an id."""
    target = _alias(router, model)
    known = all_of(router)
    by_id = [each for each in known if each["model_info"]["id"] == target]
    return by_id or [each for each in known if each.get("model_name") == target]


def cooling(router: Any, deployments: Iterable[Deployment]) -> set[str]:
    """The ids of those that LiteLLM leaves alone after failures."""
    cache = router.health().cooldowns if hasattr(router, "health") else router.cooldown_cache
    if callable(cache):  # 1.109
        cache = cache()
    ids = [each["model_info"]["id"] for each in deployments]
    return {str(each[0]) for each in cache.get_active_cooldowns(ids, None)}


def _alias(router: Any, model: str) -> str:
    """The group that an alias stands for."""
    new = hasattr(router, "registry")
    aliases = router.registry().aliases() if new else router.model_group_alias
    target = (aliases or {}).get(model, model)
    return str(target.get("model", model)) if isinstance(target, Mapping) else str(target)
