"""Files of the library's own shape: it loads what we write, and we route by what it writes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.semantic.conftest import Ollama
from tests.semantic.tools import ROUTES, settled
from tier_router import TierRouter
from tier_router.config import Intent, load
from tier_router.errors import ConfigError
from tier_router.request import Turn
from tier_router.semantic import SemanticClassifier, library, save
from tier_router.semantic.library import V1

INTENTS = {
    route.name: Intent(
        tier="heavy" if route.name == "contract" else "light",
        utterances=route.utterances,
        description=f"about {route.name} – “{route.name}”",
        threshold=0.7,
    )
    for route in ROUTES
}
LINE = "1.x" if V1 else "0.x"
OURS = ("ollama", "nomic-embed-text")
WRITTEN = Path(__file__).parents[1] / "unit" / "routes"
"""Files that the library wrote itself."""

TIERS = """
tiers:
  - {name: light, model: m8, replicas: [http://a]}
  - {name: heavy, model: m70, replicas: [http://b]}
"""


def theirs(path: Path) -> object:
    """The router that the library's own loader makes of a file."""
    if V1:
        return library.load_router(path)
    kind = library.SemanticRouter
    return (kind.from_json if path.suffix == ".json" else kind.from_yaml)(str(path))


@pytest.mark.parametrize("suffix", [".yaml", ".yml", ".json"])
def test_the_library_loads_what_we_write(ollama: Ollama, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"routes{suffix}"
    save(INTENTS, path, line=LINE, encoder=OURS)
    router = theirs(path)
    assert {route.name: tuple(route.utterances) for route in router.routes} == {
        name: intent.utterances for name, intent in INTENTS.items()
    }
    assert {r.name: r.metadata["tier"] for r in router.routes} == {
        name: intent.tier for name, intent in INTENTS.items()
    }
    assert {route.description for route in router.routes} == {
        intent.description for intent in INTENTS.values()
    }
    assert (router.encoder.type, router.encoder.name) == OURS


@pytest.mark.parametrize("suffix", [".yaml", ".json"])
def test_what_the_library_saves_again_we_read(ollama: Ollama, tmp_path: Path, suffix: str) -> None:
    first, again = tmp_path / f"first{suffix}", tmp_path / f"again{suffix}"
    save(INTENTS, first, line=LINE, encoder=OURS)
    router = theirs(first)
    (router.to_json if suffix == ".json" else router.to_yaml)(str(again))
    (tmp_path / "config.yaml").write_text(TIERS + f"intent_files: [again{suffix}]\n")
    read = load(tmp_path / "config.yaml").intents
    expected = {n: i.model_copy(update={"threshold": None}) for n, i in INTENTS.items()}
    assert dict(read) == expected


def test_a_file_of_ours_routes_by_its_encoder(ollama: Ollama, tmp_path: Path) -> None:
    path = tmp_path / "routes.yaml"
    save(INTENTS, path, line=LINE, encoder=OURS)
    engine = SemanticClassifier.of_file(path)
    router: Any = theirs(path)
    if not V1:
        router.sync("local", force=True)
    for route in ROUTES:
        for utterance in (*route.utterances, f"{route.utterances[0]} today"):
            found, choice = settled(engine, utterance), router(utterance)
            score = choice.confidence if V1 else choice.similarity_score
            assert found.intent == choice.name
            assert choice.name is None or found.confidence == pytest.approx(score)
    assert ROUTES[0].utterances[0] in ollama.asked


@pytest.mark.parametrize(
    "name", sorted(path.name for path in WRITTEN.iterdir() if path.name.startswith(f"v{int(V1)}"))
)
def test_files_of_the_library_itself(ollama: Ollama, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    shutil.copy(WRITTEN / name, path)
    path.write_text(path.read_text().replace("http://127.0.0.1:8080", ollama.url))
    engine = SemanticClassifier.of_file(path)
    assert settled(engine, "i want my money back").intent == "refund"
    assert settled(engine, "review the contract").intent == "legal"
    assert "failed" not in engine.counts, engine


def test_a_configuration_routes_by_a_file(ollama: Ollama, tmp_path: Path) -> None:
    save(INTENTS, tmp_path / "routes.json", line=LINE, encoder=OURS)
    path = tmp_path / "config.yaml"
    path.write_text(
        TIERS + "classifier: {engine: semantic-router, file: routes.json, deadline: 5}\n"
    )
    config = load(path)
    assert config.sources == (path, tmp_path / "routes.json")
    router = TierRouter(config)
    view = router.view({"messages": [{"role": "user", "content": "is this clause enforceable"}]})
    decision = router.decide(view)
    assert (decision.intent, decision.tier) == ("contract", "heavy")
    ollama.delay = 10.0
    view = router.view({"messages": [{"role": "user", "content": "when do you close on Monday"}]})
    assert router.decide(view).intent is None, "late: by difficulty"


def test_a_tier_for_the_routes_of_the_classifiers_file(ollama: Ollama, tmp_path: Path) -> None:
    save({"a": Intent(utterances=("b",))}, tmp_path / "r.json", line=LINE, encoder=OURS)
    path = tmp_path / "config.yaml"
    path.write_text(
        TIERS
        + "classifier: {engine: semantic-router, file: r.json}\n"
        + "intent_files: [{path: r.json, tiers: {a: heavy}}]\n"
    )
    config = load(path)
    assert config.intents["a"].tier == "heavy"
    assert config.sources == (path, tmp_path / "r.json")


@pytest.mark.parametrize("text", ["routes: 1", "[1, 2]", "router_type: nothing\nroutes: []", "{"])
def test_a_file_that_the_library_refuses_is_a_configuration_error(
    tmp_path: Path, text: str
) -> None:
    path = tmp_path / "routes.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"routes\.yaml: semantic-router .* does not load it"):
        SemanticClassifier.of_file(path)


def test_a_file_of_the_other_line_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "routes.yaml"
    save(INTENTS, path, line="0.x" if V1 else "1.x", encoder=OURS)
    with pytest.raises(ConfigError, match="does not load it"):
        SemanticClassifier.of_file(path)


def test_an_encoder_that_is_gone_at_the_start_is_a_configuration_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ollama: Ollama
) -> None:
    monkeypatch.setenv("OLLAMA_BASE_URL", "http://127.0.0.1:9")  # the discard port
    path = tmp_path / "routes.yaml"
    save(INTENTS, path, line=LINE, encoder=OURS)
    with pytest.raises(ConfigError, match="does not load it"):
        SemanticClassifier.of_file(path)


def test_functions_of_a_route_are_not_called(ollama: Ollama, tmp_path: Path) -> None:
    if V1:
        pytest.skip("1.x has no dynamic routes")
    router = library.SemanticRouter.from_json(str(WRITTEN / "v0_semantic.json"))
    router.routes[0].function_schemas = [{"name": "pay", "description": "", "signature": "()"}]
    router.to_json(str(tmp_path / "routes.json"))
    engine = SemanticClassifier.of_file(tmp_path / "routes.json")
    assert settled(engine, "i want my money back").intent == "refund"


def test_the_verdict_is_that_of_any_engine(ollama: Ollama, tmp_path: Path) -> None:
    path = tmp_path / "routes.yaml"
    save(INTENTS, path, line=LINE, encoder=OURS)
    engine = SemanticClassifier.of_file(path)
    for text in ("", "👍", "  "):
        assert not engine.classify(Turn(text)).pending
        assert engine.classify(Turn(text)).intent is None
    assert engine.counts == {}
