"""The router: one configuration, one classifier, one ledger, behind the calls that doors make."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from tier_router.classify import Classifier, Signal, Verdict
from tier_router.classify.corrected import Corrected
from tier_router.config import Config, Tier, load
from tier_router.decide import EXPECTED_OUTPUT, Decision, Judged, decide, nothing
from tier_router.dispatch import Dispatch, RetryBudget
from tier_router.errors import ConfigError, Overloaded
from tier_router.exchange.ticking import TickingThread
from tier_router.ledger import Lease, Ledger
from tier_router.pace import Paces, Usage
from tier_router.pruner import Pruner, Trimming
from tier_router.pruner.pruner import Ready
from tier_router.questions import Known, answer
from tier_router.request import Turn, View
from tier_router.scrape.findings import Found, effective
from tier_router.view import view_of

CACHED_TURNS = 4_096
"""Verdicts that are kept by turn, so that only a conversation's new turn costs: at most 8 MB of
text."""

STEP_ODDS = 2.0
"""By how much the odds grow from one step of a ladder of three or more tiers to the next, where
the policy gives one threshold for all: a choice, not a measurement; give a list to set your own."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A configuration, compiled."""

    config: Config
    classifier: Classifier
    thresholds: tuple[float, ...]
    pruning: Ready | None


class TierRouter:
    """Routes requests by one configuration; safe to use from one event loop or thread."""

    def __init__(
        self,
        config: Config,
        classifier: Callable[[Config], Classifier] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make = classifier or _configured
        self._clock = clock
        self.ledger = Ledger(config)
        self.paces = Paces()
        self.pruner = Pruner(self.paces, clock)
        self._budget = RetryBudget(config.server.retry_share)
        self._sharing: int | None = None
        self._written = config
        self._found: dict[str, Found] = {}
        self.reload(config)

    @classmethod
    def from_file(cls, path: str | Path, **options: Any) -> TierRouter:
        """The router of the configuration at `path`; raises ConfigError."""
        return cls(load(path), **options)

    @property
    def config(self) -> Config:
        """The configuration in force: what was written, and what was found of the replicas where
        that leaves it to them."""
        return self._config

    @property
    def thresholds(self) -> tuple[float, ...]:
        """The difficulty from which each tier but the last is not enough; of a single tier, the
        one that tells easy from hard."""
        return self._thresholds

    def prepare(self, config: Config) -> Prepared:
        """What `config` is compiled to; may take long, and may run in another thread."""
        classifier = self._make(config)
        calibration = config.policy.calibration
        if calibration is not None and calibration.points is not None:
            classifier = Corrected(classifier, calibration.points)
        pruning = self.pruner.prepare(config)
        return Prepared(config, classifier, _thresholds(config, classifier), pruning)

    def adopt(self, prepared: Prepared) -> None:
        """Routes by `prepared` from now on; requests under way end as they began."""
        classifier = prepared.classifier

        @lru_cache(maxsize=CACHED_TURNS)
        def kept(turn: Turn) -> Verdict:
            try:
                verdict = classifier.classify(turn)
            except Exception:  # noqa: BLE001  a plug-in's fault never fails a request
                return Verdict(difficulty=1.0, confidence=0.0, abstain="classifier failed")
            if verdict.pending:
                raise _Pending(verdict)  # what is raised is not cached
            return verdict

        def classify(turn: Turn) -> Verdict:
            try:
                return kept(turn)
            except _Pending as pending:
                return pending.verdict

        old, new = _urls(self._written), _urls(prepared.config)
        self._written = prepared.config
        self._found = {name: f for name, f in self._found.items() if old[name] == new.get(name)}
        self._config = effective(prepared.config, self._found)
        self._thresholds = prepared.thresholds
        self._classifier, self._classify = classifier, classify
        self.ledger.adopt(prepared.config)
        self.pruner.adopt(prepared.pruning)
        self._budget.share = prepared.config.server.retry_share

    def reload(self, config: Config) -> None:
        """Prepares and adopts `config`."""
        self.adopt(self.prepare(config))

    def found(self, replica: str, found: Found) -> None:
        """Takes over what was learned of a replica, by name: contexts and abilities that the
        configuration leaves open follow from it."""
        if replica in _urls(self._written) and self._found.get(replica) != found:
            self._found[replica] = found
            self._config = effective(self._written, self._found)

    def share(self) -> None:
        """Tells other processes what is in flight here, and hears of them, from now on and from a
        thread of its own; once for each process, and not where `state` is memory.

        Raises ConfigError where what `state` names is not installed.
        """
        if self._config.state != "memory://" and self._sharing != os.getpid():
            self._sharing = os.getpid()
            TickingThread(self._config.state, self.ledger)

    def pressures(self) -> Mapping[str, float]:
        """The present pressure of each replica, by name."""
        return self.ledger.pressures(self._clock())

    def view(self, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> View:
        """What routing may know of a request; raises RequestError."""
        return view_of(body) if headers is None else view_of(body, headers)

    @property
    def waits(self) -> bool:
        """Whether judging may have to wait for others; then `ahead` is worth its call."""
        return self._config.classifier.engine != "native"

    async def ahead(self, view: View) -> None:
        """Returns when judging `view` need not wait: at once, but for a classifier that asks
        others; then at its deadline at the latest, and the event loop is free meanwhile."""
        wait = getattr(self._classifier, "ahead", None)
        if wait is not None:
            await wait((view.turn, *view.earlier))

    def judge(self, view: View) -> Judged:
        """The verdicts on the view's turn and on the human turns before it."""
        classify = self._classify
        return Judged(classify(view.turn), tuple(map(classify, view.earlier)))

    def decide(
        self,
        view: View,
        exclude: frozenset[str] = frozenset(),
        trimming: Trimming | None = None,
    ) -> Decision:
        """The decision for `view` under the present load; raises what `decide` raises."""
        return self._decide(view, self.judge(view), exclude, trimming)

    def trimming(self, view: View, body: Mapping[str, Any]) -> Trimming | None:
        """What is taken out of `body` on its way; None where pruning is off."""
        if not self.pruner.active:
            return None
        return Trimming(self.pruner, body, view, self._tier, self.changes)

    def _tier(self, name: str) -> Tier:
        return self._config.tiers[self._config.ladder[name]]

    def dispatch(self, view: View, trimming: Trimming | None = None) -> Dispatch:
        """The attempts of one request, judged once; `trimming` is what pruning makes of it."""
        judged = self.judge(view)
        tokens = view.tokens + (view.max_tokens or EXPECTED_OUTPUT) * view.n

        def learn(decision: Decision, lease: Lease, usage: Usage | None, now: float) -> None:
            self.paces.of(decision.tier).answered(view, lease, usage, now)

        return Dispatch(
            lambda exclude: self._decide(view, judged, exclude, trimming),
            self.ledger,
            tokens,
            self._config.server.attempts,
            self._budget,
            learn,
        )

    def changes(self, decision: Decision, body: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of `body` that forwarding sets: the model, and defaults left unset."""
        tier = self._config.tiers[self._config.ladder[decision.tier]]
        unset = {name: value for name, value in tier.defaults.items() if body.get(name) is None}
        if "max_tokens" in unset and body.get("max_completion_tokens") is not None:
            del unset["max_tokens"]  # the client set the same limit by its newer name
        if "max_tokens" in unset and "input" in body:  # the responses' name for it
            unset.setdefault("max_output_tokens", unset.pop("max_tokens"))
            if body.get("max_output_tokens") is not None:
                del unset["max_output_tokens"]
        return {**unset, "model": decision.model}

    def answers(self, view: View, questions: Mapping[str, Any]) -> dict[str, Any]:
        """The answers to typed questions about `view`, by name; raises RequestError."""
        decision = self.decide(view)
        config = self._config
        known = Known(list(config.ladder)[: config.rungs], self._thresholds, list(config.intents))
        return {name: answer(name, each, decision, known) for name, each in questions.items()}

    def signals(self, view: View) -> list[Signal]:
        """What spoke for and against the heavy tier, strongest first."""
        return self._classifier.explain(view.turn)

    def _decide(
        self, view: View, judged: Judged, exclude: frozenset[str], trimming: Trimming | None
    ) -> Decision:
        scales = self.paces.scales(view)
        spare = nothing if trimming is None else trimming.spare
        try:
            return decide(
                view, judged, self._config, self._thresholds, self.pressures(), exclude, scales,
                spare,
            )  # fmt: skip
        except Overloaded as error:
            # as long as it takes until enough of what is in flight has ended
            whole = self.paces.of(error.tier).whole or 1.0
            error.retry_after = max(1.0, whole * error.excess)
            raise


class _Pending(Exception):
    """No error: a verdict that is not to be kept."""

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict


def _configured(config: Config) -> Classifier:
    """The classifier that the configuration asks for, with its intents."""
    from tier_router.classify.intents import Route
    from tier_router.classify.native import NativeClassifier  # numpy and tokenizers come with it

    routes = [
        Route(name, intent.utterances, intent.threshold) for name, intent in config.intents.items()
    ]
    chosen = config.classifier
    if chosen.engine == "native":
        return NativeClassifier(routes)
    try:
        from tier_router.semantic.engine import SemanticClassifier  # takes seconds to import
    except ImportError as error:
        raise ConfigError(str(error), key="classifier.engine") from error
    if chosen.file is None:
        return SemanticClassifier.of_routes(routes, chosen.deadline)
    return SemanticClassifier.of_file(chosen.file, chosen.deadline)


def _urls(config: Config) -> dict[str, str]:
    """{name: URL} of all replicas."""
    return {each.name or each.url: each.url for tier in config.tiers for each in tier.replicas}


def _thresholds(config: Config, classifier: Classifier) -> tuple[float, ...]:
    """One threshold for each step of the ladder; one for a ladder without steps."""
    steps = max(1, config.rungs - 1)
    policy = config.policy
    if isinstance(policy.threshold, tuple):
        return policy.threshold
    if policy.heavy_share is not None:
        first = classifier.reference_quantile(policy.heavy_share)
    elif policy.threshold is not None:
        first = policy.threshold
    elif policy.calibration is not None and policy.calibration.threshold is not None:
        first = policy.calibration.threshold
    else:
        first = classifier.default_threshold
    return ladder_of(first, steps)


def ladder_of(first: float, steps: int) -> tuple[float, ...]:
    """The thresholds of `steps` steps of a ladder, of which the lowest is `first`."""
    return tuple(_harder(first, step) for step in range(steps))


def _harder(threshold: float, step: int) -> float:
    """`threshold`, `step` steps up the ladder; 0 and 1 stay: always and never."""
    if not 0 < threshold < 1:
        return threshold
    odds = threshold / (1 - threshold) * STEP_ODDS**step
    return odds / (1 + odds)
