"""The types of the `log:` section: where decisions are written down."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from tier_router.config.base import Model

REDIS = ("redis://", "rediss://", "unix://")
"""How the URL of a Redis begins that holds a stream."""
HTTP = ("http://", "https://")


class Rotate(Model):
    """When the file is put aside, and how many of those are kept."""

    bytes: int = Field(256 * 1024 * 1024, ge=64 * 1024)
    """Size from which a new file is begun; the old one is renamed to `PATH.1`."""
    keep: int = Field(4, ge=0, le=1_000)
    """Old files that stay."""


class RedisStream(Model):
    """A Redis stream with one entry for each request; a plain URL stands for `{url: ...}`."""

    stands_for = "url"

    url: SecretStr
    """`redis://`, `rediss://` or `unix://`, with the password where there is one."""
    stream: str = Field("tier-router:decisions", min_length=1)
    """The stream's key.  An entry has one field, `record`: the JSON line."""
    keep: int = Field(100_000, ge=1)
    """Entries that stay, or a few more (`MAXLEN ~`): about 0.7 kB each."""

    @field_validator("url")
    @classmethod
    def _known(cls, url: SecretStr) -> SecretStr:
        if not url.get_secret_value().startswith(REDIS):
            raise ValueError(f"a stream's URL starts with {', '.join(REDIS)}")
        return url


class LogCollector(Model):
    """An OpenTelemetry collector (OTLP over HTTP); a plain URL stands for `{endpoint: ...}`."""

    stands_for = "endpoint"

    endpoint: str
    """Its URL, to which `/v1/logs` is added; empty: none.  `OTEL_EXPORTER_OTLP_HEADERS` and
    `OTEL_RESOURCE_ATTRIBUTES` count."""

    @field_validator("endpoint")
    @classmethod
    def _a_url(cls, endpoint: str) -> str:
        if endpoint and not endpoint.startswith(HTTP):
            raise ValueError("a collector's URL starts with http:// or https://")
        return endpoint


class Log(Model):
    """One JSON line for each request, in a file, a Redis stream, at a collector, or in several of
    them; a plain text stands for the one that it looks like: a path, `redis://...` or
    `http://...`."""

    path: str | None = Field(None, min_length=1)
    """The file, relative to this one.  Several processes may share it."""
    redis: RedisStream | None = None
    otel: LogCollector | None = None
    prompts: bool = False
    """Whether the judged text of each request is written too."""
    rotate: Rotate = Rotate()
    salt: SecretStr | None = Field(None, min_length=16)
    """The secret that conversation keys are hashed with.  Left out: what `PATH.salt` beside the
    file holds, which is made where there is none; without a file, one of each process's own, so
    that the same conversation has another key after a restart."""

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        kind = "redis" if value.startswith(REDIS) else "otel" if value.startswith(HTTP) else "path"
        return {kind: value}

    @model_validator(mode="after")
    def _somewhere(self) -> Self:
        if self.path is None and self.redis is None and self.otel is None:
            raise ValueError("a log has a `path`, a `redis` or an `otel`")
        return self
