"""Test doubles that are part of the product: a fake vLLM, faults, a clock, a classifier.

async with FakeVllm("light", speed=Speed(slots=2)) as fake:
    fake.faults.add(BUSY)
    ...                      # requests to fake.url
    assert fake.requests[0].status == 503
"""

from tier_router.testing.classifier import FixedClassifier
from tier_router.testing.clock import ManualClock
from tier_router.testing.engine import FAST, Engine, Gauges, QueueFull, Speed
from tier_router.testing.fake_vllm import FakeVllm, Flags
from tier_router.testing.faults import (
    BAD_GATEWAY,
    BUSY,
    DEAD,
    DRAINING,
    TOO_MANY,
    BadChunks,
    CloseBeforeAnswer,
    CloseIdle,
    ErrorInStream,
    ErrorMidStream,
    Garbage,
    Hang,
    Reset,
    SlowChunks,
    SlowFirstToken,
    Status,
    TruncatedBody,
)
from tier_router.testing.job import Job, State
from tier_router.testing.pacing import Pacer
from tier_router.testing.plan import Fault, Faults, anything, generating
from tier_router.testing.recorded import Recorded
from tier_router.testing.sim import SimHost, speed_of
from tier_router.testing.thread import running

__all__ = [
    "BAD_GATEWAY",
    "BUSY",
    "DEAD",
    "DRAINING",
    "FAST",
    "TOO_MANY",
    "BadChunks",
    "CloseBeforeAnswer",
    "CloseIdle",
    "Engine",
    "ErrorInStream",
    "ErrorMidStream",
    "FakeVllm",
    "Fault",
    "Faults",
    "FixedClassifier",
    "Flags",
    "Garbage",
    "Gauges",
    "Hang",
    "Job",
    "ManualClock",
    "Pacer",
    "QueueFull",
    "Recorded",
    "Reset",
    "SimHost",
    "SlowChunks",
    "SlowFirstToken",
    "Speed",
    "State",
    "Status",
    "TruncatedBody",
    "anything",
    "generating",
    "running",
    "speed_of",
]
