"""The sidecar's own small requests, over its pools."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tier_router.testing import BadChunks, FakeVllm, Hang, Reset, Status, anything
from tier_router_proxy.fetch import LONGEST


async def test_a_page_and_a_post(client: Any, fake: FakeVllm) -> None:
    fetch = client.meet([fake.url])
    status, content = await fetch(f"{fake.url}/version", {"x-a": "b"})
    assert (status, content) == (200, b'{"version":"0.32.0"}')
    assert fake.requests[0].header("x-a") == "b"
    body = b'{"model":"m8","messages":[{"role":"user","content":"hi"}],"stream":true}'
    status, content = await fetch(
        f"{fake.url}/v1/chat/completions", {"content-type": "application/json"}, body
    )
    assert status == 200
    assert content.endswith(b"data: [DONE]\n\n"), "chunks are taken apart"
    assert (await fetch(f"{fake.url}/nothing", {}))[0] == 404


async def test_the_path_of_a_base_url_is_kept(client: Any, fake: FakeVllm) -> None:
    fetch = client.meet([f"{fake.url}/team/a", f"{fake.url}/team"])
    await fetch(f"{fake.url}/team/a/load", {})
    await fetch(f"{fake.url}/team/load", {})
    assert [request.path for request in fake.requests] == ["/team/a/load", "/team/load"]


@pytest.mark.parametrize("fault", [Reset(), Reset(after_bytes=40), BadChunks()], ids=repr)
async def test_half_an_answer_is_none(client: Any, fake: FakeVllm, fault: Any) -> None:
    fake.faults.add(fault, times=None, when=anything)
    body = b'{"model":"m8","messages":[{"role":"user","content":"hi"}],"stream":true}'
    with pytest.raises(OSError):
        await client.meet([fake.url])(f"{fake.url}/v1/chat/completions", {}, body)


async def test_an_endless_answer_is_given_up(client: Any, fake: FakeVllm) -> None:
    fake.faults.add(Status(200, b"x" * (LONGEST + 1)), when=anything)
    with pytest.raises(OSError, match="more than"):
        await client.meet([fake.url])(f"{fake.url}/metrics", {})


async def test_who_gives_up_hangs_up(client: Any, fake: FakeVllm, eventually: Any) -> None:
    fake.faults.add(Hang(), when=anything)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await client.meet([fake.url])(f"{fake.url}/load", {})
    await eventually(lambda: fake.requests[0].aborted)


async def test_a_url_that_nobody_dials(client: Any, fake: FakeVllm) -> None:
    with pytest.raises(OSError, match="nothing is dialled at http://other/load"):
        await client.meet([fake.url])("http://other/load", {})


async def test_a_header_with_a_line_break(client: Any, fake: FakeVllm) -> None:
    with pytest.raises(OSError, match="line break"):
        await client.meet([fake.url])(f"{fake.url}/load", {"authorization": "Bearer a\r\nb: c"})
    assert fake.requests == []
