"""`tier-router calibrate`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec
import yaml

from tier_router.calibrate import Correction, Line, correction_for, level_of, line_for
from tier_router.cli.source import body_of
from tier_router.config import Calibration, Config, Policy, load
from tier_router.decide import decide
from tier_router.errors import ConfigError, RequestError, TierRouterError
from tier_router.request import View
from tier_router.router import TierRouter, ladder_of

HEAD = (
    "# Written by `tier-router calibrate`; config.yaml names it as `policy: {calibration: FILE}`.\n"
)
FEW_PROMPTS = 200
"""Prompts from which a share is within three points of what was asked for, on average."""


@dataclass(frozen=True, slots=True)
class Label:
    """A request and whether it needed more than the lightest tier (0..1)."""

    view: View
    needed: float


def run(
    path: Path, log: Path | None, heavy_share: float | None, labels: Path | None, out: Path
) -> None:
    """Writes the calibration to `out` and tells what it changes; raises TierRouterError."""
    if labels is None and (log is None or heavy_share is None):
        raise RequestError("give a log and --heavy-share, or --labels, or all three")
    if heavy_share is not None and log is None:
        raise RequestError("--heavy-share needs a log of prompts to hold on")
    config = load(path)
    own = config.policy.threshold is not None or config.policy.heavy_share is not None
    config = config.model_copy(update={"policy": Policy()})  # the shipped difficulty, not ours
    router = TierRouter(config)
    views = [] if log is None else _views(router, log)
    points, told = None, {}
    if labels is not None:
        correction = correction_for(*_judged(router, _labels(router, labels)))
        points, told["labels"] = correction.points, _facts(correction)
        _say(_about_labels(correction))
    corrected = TierRouter(_with(config, Calibration(points=points)))
    line = None
    if heavy_share is not None and views:
        line = line_for([_level(corrected, view) for view in views], heavy_share)
        told["prompts"] = {"read": len(views), **_line_facts(line)}
        _say(_about_line(line, len(views), heavy_share))
    found = Calibration(threshold=line and line.threshold.value, points=points, made_from=told)
    if views:
        _say(_about_change(router, TierRouter(_with(config, found)), views))
    _write(found, out)
    _say(f"wrote {out}; config.yaml names it as `policy: {{calibration: {out.name}}}`")
    if own:
        _say(f"{path} sets `policy.threshold` or `heavy_share`, which comes first: take it out")


def _with(config: Config, calibration: Calibration) -> Config:
    return config.model_copy(update={"policy": Policy(calibration=calibration)})


# ---- what people give


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield number, line


def _view(router: TierRouter, path: Path, number: int, line: bytes) -> View:
    try:
        return router.view(body_of(line))
    except TierRouterError as error:
        raise ConfigError(str(error), file=str(path), line=number) from None


def _views(router: TierRouter, path: Path) -> list[View]:
    """The log's requests."""
    views = [_view(router, path, number, line) for number, line in _lines(path)]
    if not views:
        raise ConfigError("no requests in this file", file=str(path))
    return views


def _labels(router: TierRouter, path: Path) -> list[Label]:
    """The labelled requests; raises ConfigError at the line of one that cannot be used."""
    found = []
    for number, line in _lines(path):
        view = _view(router, path, number, line)
        try:
            found.append(Label(view, needed(msgspec.json.decode(line), _rungs(router))))
        except (ValueError, TypeError) as error:
            raise ConfigError(str(error), file=str(path), line=number) from None
    if not found:
        raise ConfigError("no labels in this file", file=str(path))
    return found


def _rungs(router: TierRouter) -> list[str]:
    config = router.config
    return [tier.name for tier in config.tiers[: config.rungs]]


def needed(record: Any, tiers: list[str]) -> float:
    """How far a labelled request needed more than the lightest tier, 0..1.

    `scores` of the lightest and of the heaviest tier that has one give the chance that the heavy
    one is right where the light one is not; `preferred` names the better tier, or `tie`.
    Raises ValueError for anything else.
    """
    known = ", ".join(tiers)
    if not isinstance(record, Mapping):
        raise ValueError("a label is an object with `scores` or `preferred`")
    preferred = record.get("preferred")
    if preferred is not None:
        if preferred == "tie":
            return 0.0
        if preferred not in tiers:
            raise ValueError(f"`preferred` is a tier ({known}) or `tie`, not {preferred!r}")
        return float(preferred != tiers[0])
    scores = record.get("scores", {name: record[name] for name in tiers if name in record})
    if not isinstance(scores, Mapping) or not scores:
        raise ValueError(f"a label has `scores` by tier ({known}) or `preferred`")
    heaviest = next((name for name in reversed(tiers[1:]) if name in scores), None)
    if tiers[0] not in scores or heaviest is None:
        raise ValueError(f"`scores` are of `{tiers[0]}` and of a larger tier ({known})")
    light, heavy = (_score(scores[name], name) for name in (tiers[0], heaviest))
    return heavy * (1 - light)


def _score(value: Any, name: str) -> float:
    if isinstance(value, bool | int | float) and 0 <= value <= 1:
        return float(value)
    raise ValueError(f"the score of `{name}` is a number between 0 and 1, not {value!r}")


# ---- what the router says


def _judged(router: TierRouter, labels: list[Label]) -> tuple[list[float], list[float]]:
    """(difficulties, needs) of the labels that a difficulty can be given to."""
    judged = [(router.judge(label.view).now, label.needed) for label in labels]
    kept = [(v.difficulty, need) for v, need in judged if v.abstain is None and not v.continues]
    if len(kept) < len(judged):
        _say(f"{len(judged) - len(kept)} labels cannot be judged and are left out")
    return [difficulty for difficulty, _ in kept], [need for _, need in kept]


def _level(router: TierRouter, view: View) -> float:
    """The highest first threshold at which the idle router sends `view` above the lightest tier."""
    judged, config = router.judge(view), router.config
    steps = config.rungs - 1

    def goes_up(threshold: float) -> bool:
        try:
            decision = decide(view, judged, config, ladder_of(threshold, steps), {})
        except TierRouterError:  # no tier takes it
            return False
        return config.ladder[decision.tier] > 0

    return level_of(goes_up)


def _share(router: TierRouter, views: list[View]) -> float:
    """The share of `views` that goes above the lightest tier."""
    up = [router.config.ladder[d.tier] > 0 for d in _decisions(router, views)]
    return sum(up) / len(up) if up else 0.0


def _decisions(router: TierRouter, views: list[View]) -> Iterator[Any]:
    for view in views:
        try:
            yield router.decide(view)
        except TierRouterError:
            continue


# ---- what is told and written


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _about_line(line: Line, read: int, share: float) -> str:
    """The threshold, its share and how sure both are."""
    lines = [
        f"threshold {line.threshold}: {line.share.value:.1%} of {read} requests go up; expect "
        f"{line.share.low:.1%} to {line.share.high:.1%} of others like them (90%)"
    ]
    if line.fixed_up > 0:
        lines.append(f"{line.fixed_up:.1%} go up whatever the threshold is (guards, pins, unsure)")
    if abs(line.share.value - share) > 0.03:
        lines.append(f"{share:.0%} cannot be had more nearly: too many requests are alike or fixed")
    if read < FEW_PROMPTS:
        lines.append(f"{FEW_PROMPTS} requests or more would make it surer")
    return "\n".join(lines)


KINDS: Mapping[str, str] = {
    "logistic": "the difficulty is corrected by a logistic map",
    "pooled": "the difficulty is corrected by a logistic map and pooled bins",
    "prior": "the shipped difficulty is as good as any correction: nothing is changed",
    "chance": "on labels not seen, nothing is better than a constant guess: nothing is changed",
    "few": "too few labels to check anything: nothing is changed",
}


def _about_labels(found: Correction) -> str:
    """What the labels changed, and what they say of the difficulty."""
    lines = [f"{found.labels} labels, {found.needed:.1%} needed a larger tier: {KINDS[found.kind]}"]
    if found.kind == "few":
        return lines[0]
    lines += [
        f"order: a request that needed it is called harder with probability {found.auc} (0.5 is "
        "chance)",
        "held-out log loss: "
        + ", ".join(f"{name} {loss:.4f}" for name, loss in found.losses.items()),
        f"held-out calibration error {found.ece_before:.3f} before, {found.ece_after:.3f} after; "
        f"so few labels show {found.noise:.3f} where nothing is wrong",
    ]
    return "\n".join(lines)


def _about_change(before: TierRouter, after: TierRouter, views: list[View]) -> str:
    moved = [
        a.tier != b.tier
        for a, b in zip(_decisions(before, views), _decisions(after, views), strict=True)
    ]
    return (
        f"above the lightest tier: {_share(before, views):.1%} before, {_share(after, views):.1%} "
        f"after; {sum(moved)} of {len(moved)} decisions change"
    )


def _facts(found: Correction) -> dict[str, Any]:
    rounded = {name: round(loss, 4) for name, loss in found.losses.items()}
    return {"read": found.labels, "kind": found.kind, "needed": round(found.needed, 4),
            "held_out_loss": rounded, "auc": str(found.auc),
            "calibration_error": round(found.ece_after, 4)}  # fmt: skip


def _line_facts(line: Line) -> dict[str, Any]:
    facts = asdict(line)
    return {"share": str(line.share), "threshold": str(line.threshold),
            "fixed_up": round(facts["fixed_up"], 4)}  # fmt: skip


def _write(found: Calibration, out: Path) -> None:
    data = found.model_dump(mode="json", exclude_none=True)
    out.write_text(HEAD + yaml.safe_dump(data, sort_keys=False, default_flow_style=None), "utf-8")
