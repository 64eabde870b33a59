"""TLS towards clients and towards replicas, from what the configuration says."""

from __future__ import annotations

import ssl

from tier_router.config.server import ClientTls, ServerTls
from tier_router.errors import ConfigError


def server_context(tls: ServerTls) -> ssl.SSLContext:
    """What clients are met with; with `client_ca` only those with a certificate of it (mTLS).

    Raises ConfigError for files that are missing or hold no certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    renew(context, tls)
    if tls.client_ca is not None:
        _trust(context, tls.client_ca, "server.tls.client_ca")
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def renew(context: ssl.SSLContext, tls: ServerTls) -> None:
    """Reads the certificate anew, for the connections from now on; raises ConfigError."""
    _load(context, tls.cert, tls.key, "server.tls.cert")


def client_context(tls: ClientTls, tier: str) -> ssl.SSLContext:
    """How the replicas of a tier are met: whom to trust, and which certificate to show (mTLS).

    Raises ConfigError for files that are missing or hold no certificate.
    """
    context = ssl.create_default_context()
    where = f"tiers[{tier}].tls"
    if tls.ca is not None:
        _trust(context, tls.ca, f"{where}.ca")
    if tls.cert is not None:
        _load(context, tls.cert, tls.key, f"{where}.cert")
    return context


def _load(context: ssl.SSLContext, cert: str, key: str | None, where: str) -> None:
    try:
        context.load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"no certificate and key in {cert}: {_words(error)}", key=where
        ) from error


def _trust(context: ssl.SSLContext, path: str, where: str) -> None:
    try:
        context.load_verify_locations(path)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"no certificate in {path}: {_words(error)}", key=where) from error


def _words(error: OSError) -> str:
    return str(getattr(error, "reason", None) or error.strerror or error).lower()
