"""LangChain's own standard tests, against the fake vLLM."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

pytest.importorskip("langchain_tests", reason="langchain-tests is not installed")

from langchain_core.language_models import BaseChatModel
from langchain_tests.integration_tests import ChatModelIntegrationTests
from langchain_tests.unit_tests import ChatModelUnitTests

from tier_router.config import Config, parse
from tier_router.langchain import ChatTierRouter

# each test closes its event loop, with connections that are kept for the next request still open
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

TWO = parse("""
tiers:
  - {name: light, model: m8, replicas: [http://127.0.0.1:1]}
  - {name: heavy, model: m70, replicas: [http://127.0.0.1:2]}
""")


class TestUnit(ChatModelUnitTests):
    """Skipped: initialisation from the environment (there are no such variables), the `model`
    override (the tier is the router's to choose; `tier=` forces one), serialisation (the
    configuration is not part of the object's state)."""

    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return ChatTierRouter

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"config": TWO}

    @property
    def supports_model_override(self) -> bool:
        return False


class TestIntegration(ChatModelIntegrationTests):
    """Skipped: recorded answers (VCR), media (the tests download them) and Anthropic's
    inputs, the `model` override."""

    config: ClassVar[Config]

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _tiers(cls, running: Any) -> None:
        cls.config = running.config()

    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return ChatTierRouter

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"config": self.config}

    @property
    def supports_json_mode(self) -> bool:
        return True

    @property
    def supports_model_override(self) -> bool:
        return False
