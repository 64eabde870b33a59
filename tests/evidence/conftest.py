"""Configurations and logs for the evidence."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tier_router.config import Config, parse

YAML = """
tiers:
  - name: light
    model: m8
    replicas: ["sim://a?slots=16&step=8ms&prefill=16000", "sim://b?slots=16&step=8ms&prefill=16000"]
    cost: {gpu_hour: 2, gpus: 1}
    context: 8000
  - name: heavy
    model: m70
    replicas: ["sim://c?slots=16&step=30ms&prefill=4000"]
    cost: {gpu_hour: 2, gpus: 4}
    context: 32000
intents:
  hours: {tier: light, utterances: [when do you open, what are your opening hours, are you open]}
policy: {threshold: 0.5}
"""


@pytest.fixture
def config() -> Config:
    return parse(YAML)


Written = Callable[[Iterable[Any]], Path]


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """Writes values as JSON lines; gives the path."""

    def write(values: Iterable[Any]) -> Path:
        path = tmp_path / "log.jsonl"
        path.write_bytes(b"".join(msgspec.json.encode(value) + b"\n" for value in values))
        return path

    return write


def record(place: int, **fields: Any) -> dict[str, Any]:
    """A decision record; easy, and a second after the one before."""
    return {
        "v": 1, "at": 1000.0 + place, "id": f"r{place}", "door": "sidecar", "tier": "light",
        "replica": "light-0", "reasons": ["easy"], "difficulty": 0.1, "threshold": 0.5,
        "tokens": 160, "usage": {"prompt": 160, "completion": 100}, **fields,
    }  # fmt: skip
