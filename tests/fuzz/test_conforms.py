"""What the sidecar answers is what its OpenAPI document says, whatever it is sent.

Requests are made by schemathesis, some as the document wants them and some not.  TIER_ROUTER_FUZZ
says how many times as many as usual.
"""

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tier_router_proxy.openapi import document
from tier_router_proxy.sidecar import Sidecar

schemathesis = pytest.importorskip("schemathesis", reason="the extra `test`")
from schemathesis import checks  # noqa: E402

EXAMPLES = 5 * int(os.environ.get("TIER_ROUTER_FUZZ", "1"))
CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
    checks.response_headers_conformance,
    checks.negative_data_rejection,
    checks.unsupported_method,
]
DOCUMENT = document()
schema = schemathesis.openapi.from_dict(DOCUMENT)


@schema.parametrize()
@settings(
    max_examples=EXAMPLES, deadline=None, derandomize=True, database=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
def test_answers_are_as_the_document_says(case: Any, running: Sidecar) -> None:
    answer = case.call_and_validate(
        base_url=running.url, checks=CHECKS, headers={"authorization": "Bearer ours"}, timeout=10
    )
    if answer.request.method.lower() == case.operation.method:  # else it must be a 405: `checks`
        told = DOCUMENT["paths"][case.operation.path][case.operation.method]
        assert str(answer.status_code) in told["responses"], "by itself, not only as a 4XX"
