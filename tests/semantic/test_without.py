"""Where the library is not installed, and what needs none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tier_router.config import Intent, load, parse
from tier_router.errors import ConfigError
from tier_router.semantic import save

TWO = """\
tiers:
  - {name: light, model: m8, replicas: [http://a]}
  - {name: heavy, model: m70, replicas: [http://b]}
"""
HIDDEN = "import sys; sys.modules['semantic_router'] = None\n"
INTENTS = {"hours": Intent(tier="light", utterances=("when do you open", "öffnet ihr heute?"))}


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("name", ["SemanticClassifier", "TierEncoder", "TierRouterRoutes"])
def test_the_extra_is_named(name: str) -> None:
    done = python(HIDDEN + f"from tier_router.semantic import {name}")
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ImportError: ")
    assert "pip install 'tier-router[semantic]'" in last


def test_a_configuration_that_wants_it_is_refused() -> None:
    text = TWO + "classifier: {engine: semantic-router}\n"
    done = python(HIDDEN + f"from tier_router import *\nTierRouter(parse({text!r}))")
    last = done.stderr.splitlines()[-1]
    assert last.startswith("tier_router.errors.ConfigError: classifier.engine: ")
    assert "pip install 'tier-router[semantic]'" in last


def test_the_native_engine_does_not_import_it() -> None:
    code = f"from tier_router import *\nTierRouter(parse({TWO!r}))\nimport tier_router.semantic\n"
    done = python(code + "import sys; print('semantic_router' in sys.modules)")
    assert done.stdout.strip() == "False", done.stderr


@pytest.mark.parametrize("line", ["0.x", "1.x"])
@pytest.mark.parametrize("suffix", [".yaml", ".yml", ".json"])
def test_files_of_both_lines_are_written_without_it(tmp_path: Path, line: str, suffix: str) -> None:
    save(INTENTS, tmp_path / f"r{suffix}", line=line, encoder=("fastembed", "bge"))
    path = tmp_path / "config.yaml"
    path.write_text(TWO + f"intent_files: [r{suffix}]\n")
    assert dict(load(path).intents) == INTENTS


def test_another_suffix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"r\.toml: the suffix is none of \.yaml"):
        save(INTENTS, tmp_path / "r.toml", line="1.x", encoder=("fastembed", "bge"))
    assert not (tmp_path / "r.toml").exists()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("classifier: {engine: other}", "c.yaml:4 classifier.engine: input should be 'native'"),
        ("classifier: {file: r.yaml}", "c.yaml:4 classifier: `file` is for `engine: semantic-"),
        ("classifier: {deadline: 0}", "c.yaml:4 classifier.deadline: "),
        ("classifier: {engine: semantic-router, file: no.yaml}", "no.yaml: cannot be read"),
    ],
)
def test_an_error_names_line_and_key(text: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(TWO + text, name="c.yaml")
    assert told in str(caught.value)


def test_routes_that_an_index_holds_are_for_the_library_alone(tmp_path: Path) -> None:
    text = "router_type: indexed\nencoder: {type: openai}\nindex: {type: qdrant, url: http://q}\n"
    (tmp_path / "r.yaml").write_text(text)
    path = tmp_path / "config.yaml"
    path.write_text(TWO + "classifier: {engine: semantic-router, file: r.yaml}\n")
    assert dict(load(path).intents) == {}
    path.write_text(TWO + "intent_files: [r.yaml]\n")
    with pytest.raises(ConfigError, match="no routes in this file"):
        load(path)


def test_a_route_of_several_routers_is_one_intent(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text("""
router_type: chain
routers:
  - router_type: indexed
    routes: [{name: a, utterances: [b, c], metadata: {tier: heavy}}]
  - router_type: indexed
    routes: [{name: a, utterances: [c, d], description: all of it}]
  - router_type: decision
    routes: [{name: a, description: something}, {name: e, description: only said}]
""")
    path = tmp_path / "config.yaml"
    path.write_text(TWO + "intent_files: [{path: r.yaml, tier: light}]\n")
    intents = load(path).intents
    assert intents["a"].utterances == ("b", "c", "d")
    assert (intents["a"].tier, intents["a"].description) == ("heavy", "all of it")
    assert (intents["e"].tier, intents["e"].utterances) == ("light", ("only said",))
