"""What the LiteLLM proxy loads for the table: our callback, with the table's classifier."""

import os

from tests.conformance.conftest import judge
from tier_router.config import load
from tier_router.litellm import TierCallback
from tier_router.router import TierRouter

callback = TierCallback(TierRouter(load(os.environ["TIER_ROUTER_CONFIG"]), judge))
