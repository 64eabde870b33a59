"""HTTP/1.1 on both sides of the proxy: a server towards clients, pools towards upstreams."""

from tier_router_proxy.http.calls import Call, Listener, Reason, UpstreamFailure
from tier_router_proxy.http.exchange import Exchange, Handler
from tier_router_proxy.http.framing import FramingError, Walker
from tier_router_proxy.http.messages import (
    CHUNKED,
    CLOSE,
    LENGTH,
    NONE,
    Framing,
    FramingKind,
    Head,
    Headers,
    Request,
    client_headers,
    upstream_headers,
)
from tier_router_proxy.http.requests import Limits, Refusal
from tier_router_proxy.http.server import Server
from tier_router_proxy.http.timers import Timer, Wheel
from tier_router_proxy.http.upstream import Pool

__all__ = [
    "CHUNKED",
    "CLOSE",
    "LENGTH",
    "NONE",
    "Call",
    "Exchange",
    "Framing",
    "FramingError",
    "FramingKind",
    "Handler",
    "Head",
    "Headers",
    "Limits",
    "Listener",
    "Pool",
    "Reason",
    "Refusal",
    "Request",
    "Server",
    "Timer",
    "UpstreamFailure",
    "Walker",
    "Wheel",
    "client_headers",
    "upstream_headers",
]
