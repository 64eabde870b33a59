"""TLS on both sides: towards clients, and towards replicas that have a certificate of their own."""

import asyncio
import ssl
from pathlib import Path
from typing import Any

import httpx
import pytest

from tier_router.config import Config, load
from tier_router.errors import ConfigError
from tier_router.testing import FakeVllm, FixedClassifier
from tier_router_proxy.sidecar import Sidecar

BODY = {"model": "auto", "messages": [{"role": "user", "content": "hello"}]}
CHAT = "/v1/chat/completions"


def fixed(_: Config) -> FixedClassifier:
    """A classifier that needs no artefact."""
    return FixedClassifier(0.1)


def written(folder: Path, url: str, more: str) -> Path:
    path = folder / "config.yaml"
    path.write_text(f"""
tiers: [{{name: light, model: m8, replicas: ["{url}"]{more}}}]
load: {{poll: false}}
server: {{port: 0, tls: {{cert: server.pem, client_ca: server.pem}}}}
""")
    return path


def trusting(certificate: Path, *, showing: bool) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(certificate))
    if showing:
        context.load_cert_chain(certificate)
    return context


async def test_clients_are_met_with_tls_and_must_show_their_own(
    certificate: Path, tmp_path: Path
) -> None:
    (tmp_path / "server.pem").write_bytes(certificate.read_bytes())
    async with FakeVllm("m8") as fake:
        config = load(written(tmp_path, fake.url, ""))
        assert tmp_path / "server.pem" in config.sources
        async with Sidecar(config, fixed) as sidecar:
            assert sidecar.url.startswith("https://127.0.0.1:")
            url = sidecar.url.replace("127.0.0.1", "localhost")
            known = trusting(certificate, showing=True)
            async with httpx.AsyncClient(base_url=url, verify=known, trust_env=False) as http:
                assert (await http.post(CHAT, json=BODY)).status_code == 200
                streamed = await http.post(CHAT, json=BODY | {"stream": True})
                assert streamed.content.endswith(b"data: [DONE]\n\n")
                await sidecar.reload(config)
                assert (await http.post(CHAT, json=BODY)).status_code == 200
            unknown = trusting(certificate, showing=False)
            async with httpx.AsyncClient(base_url=url, verify=unknown, trust_env=False) as http:
                with pytest.raises(httpx.TransportError):
                    await http.post(CHAT, json=BODY)


async def test_a_client_that_leaves_is_noticed_under_tls_too(
    certificate: Path, tmp_path: Path, eventually: Any
) -> None:
    (tmp_path / "server.pem").write_bytes(certificate.read_bytes())
    async with (
        FakeVllm("m8") as fake,
        Sidecar(load(written(tmp_path, fake.url, "")), fixed) as sidecar,
    ):
        url = sidecar.url.replace("127.0.0.1", "localhost")
        known = trusting(certificate, showing=True)
        body = BODY | {"stream": True, "max_tokens": 20_000, "ignore_eos": True}
        async with (
            httpx.AsyncClient(base_url=url, verify=known, trust_env=False) as http,
            http.stream("POST", CHAT, json=body) as answer,
        ):
            async for _ in answer.aiter_raw():
                break
        await eventually(lambda: fake.requests[-1].aborted)
        assert all(load == 0 for load in sidecar.router.pressures().values())


async def test_replicas_with_a_certificate_of_their_own(certificate: Path, tmp_path: Path) -> None:
    (tmp_path / "server.pem").write_bytes(certificate.read_bytes())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    context.load_verify_locations(certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    async with FakeVllm("m8") as fake, secured(fake, context) as url:
        for more, status in (("", 502), (", tls: {ca: server.pem, cert: server.pem}", 200)):
            path = written(tmp_path, url, more)
            path.write_text(path.read_text().replace(", tls: {cert: server.pem, client_ca: "
                                                     "server.pem}", ""))  # fmt: skip
            async with (
                Sidecar(load(path), fixed) as sidecar,
                httpx.AsyncClient(base_url=sidecar.url, trust_env=False) as http,
            ):
                answer = await http.post(CHAT, json=BODY)
            assert answer.status_code == status, answer.text


@pytest.mark.parametrize(
    ("tls", "told"),
    [
        ("{cert: nowhere.pem}", "server.tls.cert: no certificate and key in"),
        ("{cert: config.yaml}", "server.tls.cert: no certificate and key in"),
    ],
)
async def test_what_is_no_certificate_is_said(tls: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        f"tiers: [{{name: t, model: m, replicas: [http://a]}}]\nserver: {{port: 0, tls: {tls}}}\n"
    )
    with pytest.raises(ConfigError) as caught:
        await Sidecar(load(path), fixed).start()
    assert told in str(caught.value)


class secured:  # noqa: N801  reads as a function
    """TLS in front of a fake; the URL of it."""

    def __init__(self, fake: FakeVllm, context: ssl.SSLContext) -> None:
        self._fake, self._context = fake, context

    async def __aenter__(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context)
        return f"https://localhost:{self._server.sockets[0].getsockname()[1]}"

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner, outer = await asyncio.open_connection(self._fake.host, self._fake.port)
        await asyncio.gather(_carry(reader, outer), _carry(inner, writer), return_exceptions=True)


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
    writer.close()
