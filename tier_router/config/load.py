"""Reads a `config.yaml`: syntax, types, then what refers to what; each error names its line."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from tier_router.config.model import AUTO, Calibration, Config, IntentFile
from tier_router.config.routes import intents_of
from tier_router.config.server import ClientTls, ServerTls
from tier_router.config.source import Key, Source, parse_text, read
from tier_router.errors import ConfigError

_Tls = TypeVar("_Tls", ClientTls, ServerTls)


def load(path: str | Path, env: Mapping[str, str] | None = None) -> Config:
    """The configuration in the file at `path`.

    `${NAME}` and `${NAME:-default}` are taken from `env` (the process's environment where left
    out).  Raises ConfigError, which names the file, the line and the key.
    """
    path = Path(path)
    return _build(read(path, os.environ if env is None else env), path.parent, (path,))


def parse(text: str, *, name: str = "config", env: Mapping[str, str] | None = None) -> Config:
    """The configuration in `text`; relative paths in it start at the working directory."""
    return _build(parse_text(text, name, os.environ if env is None else env), Path(), ())


def _build(source: Source, base: Path, files: tuple[Path, ...]) -> Config:
    if not isinstance(source.data, Mapping):
        raise source.error("a configuration is a mapping with `tiers`")
    named, calibration = _calibration(source, base)
    files = (*files, *named)
    try:
        config = Config.model_validate(_without_path(source.data) if named else source.data)
    except ValidationError as error:
        raise _first(source, error) from None
    intents = dict(config.intents)
    origins: dict[str, tuple[Source, Key]] = {name: (source, ("intents", name)) for name in intents}
    chosen = config.classifier
    for key, entry in _entries(config):
        own = entry.path == chosen.file
        file, routes, found = intents_of(entry, base, elsewhere=own)
        files = (*files, file)
        for name, intent in found.items():
            if name in intents:
                raise source.error(f"a second intent named `{name}`", key)
            intents[name] = intent
            origins[name] = (routes, ("routes",))
    if chosen.file is not None:
        chosen = chosen.model_copy(update={"file": str(base / chosen.file)})
    config = config.model_copy(update={"intents": intents, "classifier": chosen})
    if config.feedback is not None:
        config = config.model_copy(update={"feedback": str(base / config.feedback)})
    if config.log is not None and config.log.path is not None:
        log = config.log.model_copy(update={"path": str(base / config.log.path)})
        config = config.model_copy(update={"log": log})
    if config.pruning.proofs is not None:
        pruning = config.pruning.model_copy(update={"proofs": str(base / config.pruning.proofs)})
        config = config.model_copy(update={"pruning": pruning})
    config, certificates = _placed(config, base)
    files = (*files, *certificates)
    if calibration is not None:
        policy = config.policy.model_copy(update={"calibration": calibration})
        config = config.model_copy(update={"policy": policy})
    for problem in _dangling(config, source, origins):
        raise problem
    config._sources = files
    return config


def _placed(config: Config, base: Path) -> tuple[Config, tuple[Path, ...]]:
    """`config` with the paths of its certificates placed at `base`; and the server's files."""
    tiers = tuple(
        tier if tier.tls is None else tier.model_copy(update={"tls": _rebased(tier.tls, base)})
        for tier in config.tiers
    )
    config = config.model_copy(update={"tiers": tiers})
    if config.server.tls is None:
        return config, ()
    tls = _rebased(config.server.tls, base)
    server = config.server.model_copy(update={"tls": tls})
    named = (tls.cert, tls.key, tls.client_ca)
    return config.model_copy(update={"server": server}), tuple(Path(p) for p in named if p)


def _rebased(tls: _Tls, base: Path) -> _Tls:
    named = {name: str(base / path) for name, path in tls if path is not None}
    return tls.model_copy(update=named)


def _entries(config: Config) -> Iterator[tuple[Key, IntentFile]]:
    """The intent files with their keys, and the classifier's file where it is none of them."""
    for index, entry in enumerate(config.intent_files):
        yield ("intent_files", index), entry
    file = config.classifier.file
    if file is not None and file not in {entry.path for entry in config.intent_files}:
        yield ("classifier", "file"), IntentFile(path=file)


def _calibration(source: Source, base: Path) -> tuple[tuple[Path, ...], Calibration | None]:
    """The file that `policy.calibration` names, if it names one, and what is in it."""
    policy = source.data.get("policy")
    name = policy.get("calibration") if isinstance(policy, Mapping) else None
    if not isinstance(name, str):
        return (), None
    path = base / name
    file = read(path)
    try:
        return (path,), Calibration.model_validate(file.data)
    except ValidationError as error:
        raise _first(file, error) from None


def _without_path(data: Mapping[str, Any]) -> dict[str, Any]:
    """`data` without `policy.calibration`, which is read by itself."""
    policy = {key: value for key, value in data["policy"].items() if key != "calibration"}
    return {**data, "policy": policy}


def _first(source: Source, error: ValidationError) -> ConfigError:
    """The first validation error, at its line, in plain words."""
    details = error.errors(include_url=False, include_context=False)
    first = next((each for each in details if each["type"] == "extra_forbidden"), details[0])
    key = tuple(part for part in first["loc"] if part != "[key]")
    key = _known(source.data, key)
    if first["type"] == "extra_forbidden":
        return source.error(f"unknown key{_meant(source.data, key)}", key)
    message = first["msg"].removeprefix("Value error, ")
    return source.error(message[0].lower() + message[1:], key)


def _known(data: Any, key: Key) -> Key:
    """`key` without the parts that pydantic adds for unions and that the file does not have."""
    known: list[str | int] = []
    for index, part in enumerate(key):
        if isinstance(data, Mapping) and part in data:
            data = data[part]
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            data = data[part]
        elif index == len(key) - 1 and isinstance(data, Mapping) and isinstance(part, str):
            known.append(part)  # a key that is missing
            break
        else:
            continue
        known.append(part)
    return tuple(known)


def _meant(data: Any, key: Key) -> str:
    """What the key next to an unknown one may have been meant to be."""
    import difflib  # only on the way to an error

    beside: Any = data
    for part in key[:-1]:
        beside = beside[part]
    if not isinstance(beside, Mapping):
        return ""
    # of the types of the configuration, those that have most of the keys beside it
    shared = [(len(names & beside.keys()), names) for names in _models()]
    most = max(count for count, _ in shared)
    names = {name for count, model in shared if count == most for name in model}
    close = difflib.get_close_matches(str(key[-1]), names, n=1)
    return f"; did you mean `{close[0]}`?" if close else ""


def _models() -> Iterator[set[str]]:
    schema = Config.model_json_schema()
    for definition in (schema, *schema.get("$defs", {}).values()):
        yield set(definition.get("properties", {}))


def _dangling(
    config: Config, source: Source, origins: Mapping[str, tuple[Source, Key]]
) -> Iterator[ConfigError]:
    """Names that are given twice or that nothing has."""
    tiers = list(config.ladder)[: config.rungs]
    known = ", ".join(tiers)
    for name, count in Counter(tier.name for tier in config.tiers).items():
        if count > 1:
            yield source.error(f"two tiers named `{name}`", ("tiers",))
    replicas = [(t, r) for t, tier in enumerate(config.tiers) for r in range(len(tier.replicas))]
    names = [config.tiers[t].replicas[r].name for t, r in replicas]
    for place, (t, r) in enumerate(replicas):
        if names[place] in names[:place]:
            yield source.error(f"two replicas named `{names[place]}`", ("tiers", t, "replicas", r))
    for name, intent in config.intents.items():
        if intent.tier is not None and intent.tier not in tiers:
            where, key = origins[name]
            yield where.error(
                f"intent `{name}`: no tier named `{intent.tier}` (there are: {known})", key
            )
    for index, rule in enumerate(config.rules):
        if rule.tier not in tiers:
            yield source.error(
                f"no tier named `{rule.tier}` (there are: {known})", ("rules", index, "tier")
            )
    for index, holder in enumerate(config.server.api_keys):
        for place, tier_name in enumerate(holder.tiers):
            if tier_name not in tiers:
                yield source.error(
                    f"no tier named `{tier_name}` (there are: {known})",
                    ("server", "api_keys", index, "tiers", place),
                )
    for alias, target in config.aliases.items():
        if target not in config.ladder and target != AUTO:
            known_too = ", ".join([*config.ladder, AUTO])
            yield source.error(
                f"no tier named `{target}` (there are: {known_too})", ("aliases", alias)
            )
    for name in config.pruning.tiers:
        if name not in tiers:
            yield source.error(
                f"no tier named `{name}` (there are: {known})", ("pruning", "tiers", name)
            )
    steps = config.policy.threshold
    if isinstance(steps, tuple) and len(steps) != config.rungs - 1:
        yield source.error(
            f"{config.rungs} tiers need {config.rungs - 1} thresholds",
            ("policy", "threshold"),
        )
