"""Verdicts on earlier answers, kept as labels for `tier-router calibrate --labels`."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import msgspec

from tier_router.config import Config
from tier_router.decide import Decision
from tier_router.errors import RequestError, TierRouterError
from tier_router.request import View

log = logging.getLogger("tier_router_proxy")

ANSWERS, BYTES = 10_000, 32 * 1024 * 1024
"""How many of the latest answers a verdict may be on, and how much their requests may take up."""

WHOLE_BYTES = 32 * 1024
"""Up to here a request is kept as it was sent; of a longer one only the turns that were judged."""

REMARK_CHARS = 2_000


class UnknownAnswer(RequestError):
    """The verdict is on no answer that is remembered."""

    status = 404
    code = "unknown_request_id"


class NoFeedback(RequestError):
    """The configuration names no file for verdicts."""

    status = 404
    code = "feedback_not_configured"


class Fit(StrEnum):
    """How a tier suited a request."""

    GOOD = "good"
    UNDERPOWERED = "underpowered"
    OVERKILL = "overkill"


@dataclass(frozen=True, slots=True)
class _Answer:
    decision: Decision
    request: bytes
    """JSON of a body, from which the same turns are judged again."""


class Feedback:
    """The latest answers by request id, and the verdicts on them."""

    def __init__(self) -> None:
        self._answers: OrderedDict[str, _Answer] = OrderedDict()
        self._bytes = 0

    def __repr__(self) -> str:
        return f"<Feedback on {len(self._answers)} answers, {self._bytes} bytes>"

    def answered(self, request_id: str, decision: Decision, raw: bytes, view: View) -> None:
        """Remembers an answer."""
        self._forget(request_id)
        request = raw if len(raw) <= WHOLE_BYTES else _turns(view)
        self._answers[request_id] = _Answer(decision, request)
        self._bytes += len(request)
        while len(self._answers) > ANSWERS or self._bytes > BYTES:
            self._forget(next(iter(self._answers)))

    def label(self, body: Mapping[str, Any], config: Config) -> tuple[str, bytes]:
        """(request id, the line that is to be kept) of a verdict; raises RequestError.

        `preferred` is the tier that would have been right: the one that answered where it was
        good, else its neighbour on the ladder.
        """
        request_id = body.get("request_id")
        if not isinstance(request_id, str):
            raise RequestError("`request_id` must be a string", param="request_id")
        known = ", ".join(Fit)
        try:
            verdict = Fit(str(body.get("verdict")))
        except ValueError:
            raise RequestError(f"`verdict` must be one of {known}", param="verdict") from None
        remark = body.get("remark")
        if remark is not None and not isinstance(remark, str):
            raise RequestError("`remark` must be a string", param="remark")
        answer = self._answers.get(request_id)
        if answer is None or answer.decision.tier not in config.ladder:
            raise UnknownAnswer(
                f"no answer with the id `{request_id[:100]}` is remembered here: give the "
                "`x-request-id` of one of the latest, each of which takes one verdict",
                param="request_id",
            )
        return request_id, _line(request_id, answer, verdict, remark, config)

    async def take(self, body: Mapping[str, Any], config: Config) -> str:
        """Keeps a verdict, one for each answer; the request id.  Raises RequestError, and
        TierRouterError where the file cannot be written."""
        file = config.feedback
        if file is None:
            raise NoFeedback("no verdicts are taken: the configuration has no `feedback`")
        request_id, line = self.label(body, config)
        try:
            await asyncio.to_thread(keep, file, line)
        except OSError as error:
            log.error("a verdict could not be written to %s: %s", file, error)
            raise TierRouterError("the verdict could not be written") from None
        self._forget(request_id)
        return request_id

    def _forget(self, request_id: str) -> None:
        gone = self._answers.pop(request_id, None)
        if gone is not None:
            self._bytes -= len(gone.request)


def keep(path: str, line: bytes) -> None:
    """Appends a line to the file, which only its owner may read; raises OSError."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line)  # in one call, so that lines of several processes do not mix
    finally:
        os.close(file)


def _line(
    request_id: str, answer: _Answer, verdict: Fit, remark: str | None, config: Config
) -> bytes:
    decision = answer.decision
    steps = {Fit.GOOD: 0, Fit.UNDERPOWERED: 1, Fit.OVERKILL: -1}[verdict]
    place = min(max(config.ladder[decision.tier] + steps, 0), config.rungs - 1)
    record = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "request_id": request_id,
        "verdict": verdict.value,
        "preferred": config.tiers[place].name,
        "tier": decision.tier,
        "replica": decision.replica,
        "reasons": [reason.value for reason in decision.reasons],
        "difficulty": decision.difficulty,
        **({} if remark is None else {"remark": remark[:REMARK_CHARS]}),
        "request": msgspec.Raw(answer.request),
    }
    # a body may hold line breaks between its tokens; in its strings they are escaped
    return msgspec.json.encode(record).replace(b"\r", b" ").replace(b"\n", b" ") + b"\n"


def _turns(view: View) -> bytes:
    """A body with the turns that were judged, and nothing else of the request."""
    turns = [turn.text for turn in (*view.earlier, view.turn) if turn.text]
    messages = [{"role": "user", "content": text} for text in turns]
    return msgspec.json.encode({"messages": messages or [{"role": "user", "content": ""}]})
