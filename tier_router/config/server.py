"""The types of the `server:` section: the sidecar, and who may use it."""

from __future__ import annotations

import hashlib
from ipaddress import ip_address
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    ByteSize,
    Field,
    SecretStr,
    field_validator,
    model_validator,
)

from tier_router.config.base import Model, Name, Positive, Seconds, Share, split


class ApiKey(Model):
    """A key that clients may send, and what it allows; a plain text stands for `{key: ...}`."""

    key: SecretStr | None = None
    sha256: str | None = None
    """The key's SHA-256 in hexadecimal, in place of the key: `printf %s KEY | sha256sum`."""
    name: Name | None = None
    """What metrics and logs call it; `key-INDEX` where left out."""
    tiers: tuple[str, ...] = ()
    """The tiers that it may use; none: all."""
    concurrency: int | None = Field(None, gt=0)
    """Requests that may be open at once."""
    rate: Positive | None = None
    """Requests a second on average; as many as in one second (at least one) may come at once."""
    priority: int | None = None
    """vLLM priority of its requests that set none: above 0 they are refused first under load."""

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        return {"key": value} if isinstance(value, str | SecretStr) else value

    @field_validator("sha256")
    @classmethod
    def _hexadecimal(cls, digest: str | None) -> str | None:
        if digest is not None:
            try:
                size = len(bytes.fromhex(digest))
            except ValueError:
                size = 0
            if size != 32:
                raise ValueError("a SHA-256 is 64 hexadecimal digits")
        return digest

    @model_validator(mode="after")
    def _one_of(self) -> Self:
        if (self.key is None) == (self.sha256 is None):
            raise ValueError("a key has either `key` or `sha256`")
        if self.key is not None and not self.key.get_secret_value():
            raise ValueError("a key is not empty")
        return self

    @property
    def digest(self) -> bytes:
        """SHA-256 of the key."""
        if self.sha256 is not None:
            return bytes.fromhex(self.sha256)
        assert self.key is not None
        return hashlib.sha256(self.key.get_secret_value().encode()).digest()


class Timeouts(Model):
    """Deadlines towards a replica, in seconds."""

    connect: Seconds = 5.0
    first_token: Seconds = 120.0
    """From the request to the first `data:` line of a stream."""
    between: Seconds = 60.0
    """Between two pieces of an answer that has begun."""
    answer: Seconds = 600.0
    """From the request to an answer that is not streamed."""


class ServerTls(Model):
    """TLS towards clients; paths start at the configuration's folder, files that change are read
    anew."""

    cert: str
    """The certificate, and what it was signed with, as PEM."""
    key: str | None = None
    """Its key, where that is not in the same file."""
    client_ca: str | None = None
    """Only clients with a certificate signed by this one are served (mTLS)."""


class ClientTls(Model):
    """TLS towards the replicas of a tier; paths start at the configuration's folder."""

    ca: str | None = None
    """Whom to trust besides the system's authorities."""
    cert: str | None = None
    """The certificate to show (mTLS), as PEM."""
    key: str | None = None

    @model_validator(mode="after")
    def _key_of_something(self) -> Self:
        if self.key is not None and self.cert is None:
            raise ValueError("`key` goes with a `cert`")
        return self


class Otel(Model):
    """OpenTelemetry."""

    endpoint: str
    """The collector's URL, to which `/v1/traces` is added; empty: no spans."""

    @field_validator("endpoint")
    @classmethod
    def _a_url(cls, endpoint: str) -> str:
        if endpoint and not endpoint.startswith(("http://", "https://")):
            raise ValueError("a collector's URL starts with http:// or https://")
        return endpoint


class Server(Model):
    """The sidecar."""

    host: str = "127.0.0.1"
    port: int = Field(8080, ge=0, le=65_535)
    api_keys: Annotated[tuple[ApiKey, ...], BeforeValidator(split)] = ()
    """Keys of which clients must send one as `Authorization: Bearer` or `x-api-key`; none: open."""
    workers: int = Field(1, ge=1, le=256)
    """Processes that serve the port, each on a core of its own."""
    open: bool = False
    """Whether to serve other hosts (`host` is not loopback) without any `api_keys`."""
    cors: Annotated[tuple[str, ...], BeforeValidator(split)] = ()
    """Origins whose pages may call from a browser (`https://app.example.com`, or `*` for all);
    none: browsers refuse."""
    ui: bool = False
    """Whether `/ui` shows a page of what happens, without any text of requests; whoever has one
    of `api_keys` may look."""
    tls: ServerTls | None = None
    body_limit: ByteSize = ByteSize(32 * 1024 * 1024)
    header_limit: ByteSize = ByteSize(64 * 1024)
    attempts: int = Field(3, ge=1, le=10)
    """Replicas that one request is tried on before the client is told."""
    retry_share: Share = 0.3
    """Attempts after a failure that all requests together may make, as a share of the requests of
    the last ten seconds; a hundred are always free."""
    drain: float = Field(30.0, ge=0)
    """Seconds that running answers have after SIGTERM."""
    timeouts: Timeouts = Timeouts()
    otel: Otel | None = None
    """Where spans go, one a request; from start to end."""
    log_format: Literal["text", "json"] = "text"
    """How lines on standard error look, from start to end; `json`: one object a line."""

    @model_validator(mode="after")
    def _keys_are_named(self) -> Self:
        keys = tuple(
            key if key.name else key.model_copy(update={"name": f"key-{index}"})
            for index, key in enumerate(self.api_keys)
        )
        object.__setattr__(self, "api_keys", keys)
        return self

    @property
    def exposed(self) -> bool:
        """Whether anybody who reaches `host` may use it, other hosts included."""
        return not self.api_keys and not self.open and not _is_loopback(self.host)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
