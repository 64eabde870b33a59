"""The LiteLLM door: one line in the proxy's YAML, or one call on a `litellm.Router`.

litellm_settings: {callbacks: [tier_router.litellm.callback]}
"""

from tier_router.litellm.complexity import TierClassifier
from tier_router.litellm.logger import TierCallback
from tier_router.litellm.strategy import TierStrategy, install

callback = TierCallback()
"""For `litellm_settings.callbacks`; finds its configuration when the proxy starts, else at the
first request."""
callback.check_at_start()

classifier = TierClassifier(callback)
"""For `complexity_router_config.classifier_plugin`."""

__all__ = ["TierCallback", "TierClassifier", "TierStrategy", "callback", "classifier", "install"]
