"""`/ui` as a real Chromium shows it, in the light and in the dark."""

from __future__ import annotations

import asyncio
import re
import shutil
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

pytest.importorskip("selenium", reason="selenium is not installed")
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.keys import Keys as Press

from tier_router.classify import Verdict
from tier_router.config import Config
from tier_router.testing import FakeVllm, FixedClassifier
from tier_router_proxy.sidecar import Sidecar

FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync "
    "--disable-dev-shm-usage --window-size=1200,1400"
)
HOSTILE = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"
SECONDS = 15


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    """One Chromium for all tests, with a profile of its own."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("chromium and chromedriver are not installed")
    options = ChromeOptions()
    options.binary_location = program
    for flag in (*FLAGS.split(), f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    found = Chrome(options=options, service=Service(driver))
    yield found
    found.quit()


class Seen:
    """The page in a browser, whose calls run in threads so that the sidecar can answer."""

    def __init__(self, browser: Chrome, url: str) -> None:
        self._browser, self._url = browser, url

    async def open(self, scheme: str = "light") -> None:
        await asyncio.to_thread(self._open, scheme)

    def _open(self, scheme: str) -> None:
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        self._browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        self._browser.get_log("browser")  # what earlier pages said
        self._browser.get(f"{self._url}/ui")

    async def run(self, script: str) -> Any:
        """What a script returns."""
        return await asyncio.to_thread(self._browser.execute_script, script)

    async def text(self, name: str) -> str:
        """The text of the element with an id."""
        told: str = await self.run(f"return document.getElementById({name!r}).innerText")
        return told

    async def type(self, name: str, text: str) -> None:
        field = self._browser.find_element("id", name)
        await asyncio.to_thread(field.send_keys, text)

    async def until(self, condition: Callable[[str], bool], name: str) -> str:
        """The text of an element once it is as it should be."""
        end = time.monotonic() + SECONDS
        while not condition(told := await self.text(name)):
            assert time.monotonic() < end, (name, told)
            await asyncio.sleep(0.05)
        return told

    async def complaints(self, but: str = "\0") -> list[str]:
        """What the console says, but for what is expected."""
        lines = await asyncio.to_thread(self._browser.get_log, "browser")
        return [line["message"] for line in lines if but not in line["message"]]


@pytest.fixture
async def seen(stage: Any, browser: Chrome) -> Callable[..., Any]:
    """Starts the sidecar with the page on; gives the page."""

    async def serve(server: dict[str, Any] | None = None, **settings: Any) -> Seen:
        await stage.serve(server={"ui": True} | (server or {}), **settings)
        return Seen(browser, stage.sidecar.url)

    return serve


def luminance(colour: str) -> float:
    """Of `rgb(r, g, b)`, 0 to 1 (WCAG 2.2, "relative luminance")."""
    parts = [int(part) / 255 for part in colour[4:-1].split(",")]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


CONTRASTS = """
const opaque = (node) => {
  while (getComputedStyle(node).backgroundColor === "rgba(0, 0, 0, 0)") node = node.parentElement;
  return getComputedStyle(node).backgroundColor;
};
return [...document.querySelectorAll("#page *:not(.new *):not(.new), header *")]
  .filter((node) => node.offsetParent)
  .filter((node) => [...node.childNodes].some((n) => n.nodeType === 3 && n.data.trim()))
  .map((node) => [node.textContent.trim(), getComputedStyle(node).color, opaque(node)]);
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_it_shows_what_happens_readably_and_without_a_complaint(
    seen: Any, stage: Any, scheme: str
) -> None:
    page = await seen()
    await page.open(scheme)
    await page.until(lambda told: told == "No requests yet", "headline")
    await stage.ask("hello", stream=True)
    await stage.ask("prove it")
    await page.until(lambda told: told == "50% of the requests went to heavy", "headline")
    await stage.ask("prove it again")
    await page.until(lambda told: told == "67% of the requests went to heavy", "headline")
    assert await page.text("legend") == "light 33%\nheavy 67%"
    assert await page.run("return document.querySelectorAll('#share rect').length") >= 2
    rows = await page.text("last")
    assert "difficulty 0.90, over the line at" in rows
    assert rows.count("heavy-0") == 2
    replicas = await page.text("replicas")
    assert [name for name in ("light-0", "light-1", "heavy-0") if name in replicas] == [
        "light-0", "light-1", "heavy-0",
    ]  # fmt: skip
    assert replicas.count("up\n") == 3
    assert "easy" in await page.text("classes")
    back = await page.run("return getComputedStyle(document.body).backgroundColor")
    assert luminance(back) < 0.05 if scheme == "dark" else luminance(back) > 0.8
    for told, colour, behind in await page.run(CONTRASTS):
        low, high = sorted((luminance(colour), luminance(behind)))
        assert (high + 0.05) / (low + 0.05) >= 4.5, (told, colour, behind)
    assert await page.complaints() == []


async def test_a_prompt_that_is_tried_gets_a_verdict_and_goes_nowhere(
    seen: Any, stage: Any
) -> None:
    page = await seen({"workers": 3})
    await page.open()
    told = await page.until(bool, "worker")
    assert re.match(r"Process \d+, one of 3 workers: shares, times and decisions are its own", told)
    await page.type("prompt", "prove that it works" + Press.CONTROL + Press.ENTER)
    verdict = await page.until(bool, "verdict")
    assert verdict.startswith("heavy\n\nthe light tier is likely not enough (difficulty 0.90")
    assert "heavy-0" in verdict
    assert "hard" in verdict
    assert sum(stage.served().values()) == 0
    assert await page.complaints() == []


async def test_a_key_is_asked_for_kept_in_the_tab_and_forgotten(seen: Any, stage: Any) -> None:
    page = await seen({"api_keys": "s3cret"})
    await page.open()
    await page.run("sessionStorage.clear()")
    await page.until(lambda told: "An API key, please" in told, "login")
    assert await page.run("return document.getElementById('page').offsetParent") is None
    await page.type("key", "wrong" + Press.ENTER)
    await page.until(lambda told: told == "The router does not know this key.", "login-error")
    await page.type("key", "s3cret" + Press.ENTER)
    await page.until(lambda told: told == "live", "status")
    await page.type("prompt", "hello" + Press.CONTROL + Press.ENTER)
    assert (await page.until(bool, "verdict")).startswith("light\n")
    await page.open()  # a reload of the tab
    await page.until(lambda told: told == "live", "status")
    assert await page.run("return document.cookie + Object.keys(localStorage)") == ""
    await page.run("document.getElementById('leave').click()")
    await page.until(lambda told: "An API key, please" in told, "login")
    assert await page.run("return sessionStorage.length") == 0
    assert await page.complaints(but="401 (Unauthorized)") == []


async def test_the_page_can_be_paused_and_goes_on(seen: Any, stage: Any) -> None:
    page = await seen()
    await page.open()
    await page.until(lambda told: told == "live", "status")
    await page.run("document.getElementById('pause').click()")
    await page.until(lambda told: told == "paused", "status")
    await stage.ask()
    await asyncio.sleep(1.5)
    assert await page.text("headline") == "No requests yet"
    await page.run("document.getElementById('pause').click()")
    await page.until(lambda told: told == "0% of the requests went to heavy", "headline")


async def test_a_sidecar_that_goes_away_is_said(seen: Any, stage: Any) -> None:
    page = await seen()
    await page.open()
    await page.until(lambda told: told == "live", "status")
    await stage.sidecar.stop(0.0)
    await page.until(lambda told: told.startswith("no answer"), "status")


async def test_names_and_texts_that_are_markup_stay_text(
    seen: Any, stage: Any, browser: Chrome
) -> None:
    def knows(_: Config) -> FixedClassifier:
        return FixedClassifier(0.1, {"img": Verdict(0.1, intent=HOSTILE, nearest=HOSTILE)})

    async with FakeVllm(HOSTILE) as light:
        tiers = [
            {"name": "light", "model": HOSTILE, "replicas": [light.url]},
            {"name": "heavy", "model": "m70", "replicas": [stage.heavy.url]},
        ]
        stage.settings = {"server": {"ui": True}}
        intents = {HOSTILE: {"tier": "light", "utterances": [HOSTILE]}}
        config = stage.config(tiers=tiers, intents=intents)
        async with Sidecar(config, knows) as sidecar:
            page = Seen(browser, sidecar.url)
            await page.open()
            await page.until(lambda told: told == "live", "status")
            await page.type("prompt", HOSTILE + Press.CONTROL + Press.ENTER)
            verdict = await page.until(bool, "verdict")
            assert verdict.count(HOSTILE) == 4  # sentence (intent, nearest), intent, model
            async with httpx.AsyncClient(base_url=sidecar.url, trust_env=False) as http:
                asked = {"messages": [{"role": "user", "content": HOSTILE}], "model": "auto"}
                answer = await http.post("/v1/chat/completions", json=asked)
                assert answer.status_code == 200, answer.text
            rows = await page.until(lambda told: HOSTILE in told, "last")
            assert rows.count(HOSTILE) == 2  # intent and nearest
            nodes = "return document.querySelectorAll('main img, main script').length"
            assert await page.run(nodes) == 0
            assert await page.run("return document.title") == "Tier Router"
            assert await page.complaints() == []
