"""The shape of the house: imports point down, and `import tier_router` stays light."""

import ast
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import tier_router

ROOT = Path(tier_router.__file__).parent
PROXY = ROOT.parent / "proxy" / "tier_router_proxy"

# A module may import from its own layer and from those below it.
LAYERS: list[set[str]] = [
    {"errors"},
    {"request", "config", "pressure", "turn"},
    {"view", "classify", "ledger", "pace", "decide", "prune", "dispatch", "explain", "questions"},
    {"encoder", "exchange", "data", "scrape", "semantic", "decisionlog", "pruner"},
    {"router"},
    {"testing", "litellm", "langchain"},
    {"train", "calibrate", "simulate", "evidence"},
    {"tier_router_proxy"},
    {"cli", "__main__"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
# `classify` holds the pure types at its top and the native engine, which uses the encoder, below.
ENGINE = {"native", "intents", "head", "difficulty", "features", "lexicon"}


def _modules() -> list[tuple[str, Path]]:
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts == ("__init__",):
            continue
        unit = "encoder" if parts[0] == "classify" and parts[-1] in ENGINE else parts[0]
        found.append((unit, path))
    if PROXY.is_dir():
        found += [("tier_router_proxy", path) for path in sorted(PROXY.rglob("*.py"))]
    return found


def _imports(path: Path) -> set[str]:
    """The units of this project that a module imports, `if TYPE_CHECKING` and functions too."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            full = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            full = [alias.name for alias in node.names]
        else:
            continue
        for name in full:
            parts = name.split(".")
            if parts[0] == "tier_router_proxy":
                names.add("tier_router_proxy")
            elif parts[0] == "tier_router" and len(parts) > 1 and parts[1] in LEVEL:
                engine = parts[1] == "classify" and len(parts) > 2 and parts[2] in ENGINE
                names.add("encoder" if engine else parts[1])
    return names


@pytest.mark.parametrize(("unit", "path"), _modules(), ids=lambda value: str(value)[-40:])
def test_imports_point_down(unit: str, path: Path) -> None:
    assert unit in LEVEL, f"{path}: say in LAYERS where `{unit}` belongs"
    above = {name for name in _imports(path) if LEVEL[name] > LEVEL[unit]}
    assert not above, f"{path} imports from above: {above}"


def _loaded(statement: str) -> set[str]:
    code = f"{statement}; import sys; print('\\n'.join(m.partition('.')[0] for m in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return set(done.stdout.split())


def test_importing_the_package_is_light() -> None:
    heavy = {"litellm", "langchain_core", "semantic_router", "redis", "numpy", "tokenizers",
             "httptools", "uvloop", "prometheus_client", "typer", "rich", "openai"}  # fmt: skip
    assert not _loaded("import tier_router") & heavy


def test_public_names_are_sorted_complete_and_there() -> None:
    assert sorted(tier_router.__all__) == tier_router.__all__
    for name in tier_router.__all__:
        assert not isinstance(getattr(tier_router, name), ModuleType), f"{name} is hidden"


def test_the_types_are_shipped() -> None:
    assert (ROOT / "py.typed").is_file()
    assert (PROXY / "py.typed").is_file() or not PROXY.is_dir()
