"""What `tier-router doctor` says of real servers."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tier_router.cli.app import app


def examined(folder: Path, url: str, more: str = "") -> tuple[int, dict[str, str]]:
    """The exit code, and what was found by level."""
    config = folder / "config.yaml"
    config.write_text(
        f'tiers: [{{name: light, model: light, replicas: ["{url}"], context: 2048{more}}}]\n'
    )
    done = CliRunner().invoke(app, ["doctor", str(config), "--json"])
    told = json.loads(done.stdout)
    return done.exit_code, _by_level(told)


def _by_level(told: Any) -> dict[str, str]:
    out: dict[str, str] = {}

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            if "level" in node:
                out[node["level"]] = out.get(node["level"], "") + json.dumps(node)
            for each in node.values():
                walk(each)
        elif isinstance(node, list):
            for each in node:
                walk(each)

    walk(told)
    return out


def test_a_bare_server_lacks_what_the_router_would_use(bare: Any, tmp_path: Path) -> None:
    code, found = examined(tmp_path, bare.url)
    assert code == 1  # the tier counts as able to do tools, and would get a 400
    assert "--enable-auto-tool-choice" in found["error"]
    assert "--enable-server-load-tracking" in found["warning"]
    assert "--enable-prompt-tokens-details" in found["warning"]


def test_a_server_with_all_flags_has_no_errors(flagged: Any, tmp_path: Path) -> None:
    code, found = examined(tmp_path, flagged.url)
    assert code == 0, found
    assert "error" not in found
    assert "--enable-server-load-tracking" not in found.get("warning", "")


@pytest.mark.parametrize(
    ("more", "told"), [(", model: other", "does not serve"), (", context: 9999", "2,048")]
)
def test_what_does_not_fit_is_an_error(flagged: Any, tmp_path: Path, more: str, told: str) -> None:
    text = f'tiers: [{{name: light, replicas: ["{flagged.url}"]'
    text += (", model: light" if "model" not in more else "") + more + "}]\n"
    (tmp_path / "config.yaml").write_text(text)
    done = CliRunner().invoke(app, ["doctor", str(tmp_path / "config.yaml"), "--json"])
    assert done.exit_code == 1
    assert told in done.stdout.replace("2048", "2,048")
