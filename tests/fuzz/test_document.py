"""The OpenAPI document: it is valid, and names what is answered and nothing else."""

import json
from typing import Any

import httpx
import pytest

from tier_router_proxy.openapi import document
from tier_router_proxy.paths import OPEN, PATHS, TEMPLATES
from tier_router_proxy.sidecar import Sidecar

validator = pytest.importorskip("openapi_spec_validator", reason="the extra `test`")

KEY = {"authorization": "Bearer ours"}
METHODS = ("get", "post", "put", "patch", "delete")


@pytest.fixture(scope="module")
def http(running: Sidecar) -> Any:
    with httpx.Client(base_url=running.url, trust_env=False, timeout=10) as client:
        yield client


@pytest.fixture(scope="module")
def served(http: httpx.Client) -> dict[str, Any]:
    answer = http.get("/openapi.json")
    assert answer.status_code == 200, "nobody needs a key to read it"
    assert answer.headers["content-type"] == "application/json"
    told: dict[str, Any] = answer.json()
    return told


def test_it_is_a_valid_document_of_openapi_3_1(served: dict[str, Any]) -> None:
    validator.OpenAPIV31SpecValidator(served).validate()
    assert served == json.loads(json.dumps(document()))


def test_each_operation_has_a_name_of_its_own(served: dict[str, Any]) -> None:
    names = [each["operationId"] for path in served["paths"].values()
             for method, each in path.items() if method in METHODS]  # fmt: skip
    assert len(set(names)) == len(names) > 20


def test_nothing_is_described_that_is_not_referred_to(served: dict[str, Any]) -> None:
    text = json.dumps(served)
    for kind in ("schemas", "headers", "parameters"):
        for name in served["components"][kind]:
            assert f'"#/components/{kind}/{name}"' in text, f"{kind}/{name}"


def test_each_path_takes_the_methods_that_are_named_and_no_other(
    http: httpx.Client, served: dict[str, Any]
) -> None:
    assert set(served["paths"]) == {*(path.decode() for path in PATHS), *TEMPLATES}
    for path, item in served["paths"].items():
        named = {method for method in METHODS if method in item}
        real = path.replace("{response_id}", "resp_1").replace("{model}", "light")
        allowed = http.options(real).headers["allow"].lower().split(", ")
        assert named == set(allowed) - {"head", "options"}, path
        for method in METHODS:
            answer = http.request(method, real, headers=KEY)
            assert (answer.status_code == 405) == (method not in named), (method, path)
            keyless = http.request(method, real).status_code
            keyed = method in named and path.encode() not in OPEN
            assert (keyless == 401) == keyed, (method, path)


@pytest.mark.parametrize("path", ["big%2Fone", "big/one", "gpt-4o", "auto", "heavy"])
def test_each_model_is_found_by_its_name_however_the_client_writes_it(
    http: httpx.Client, path: str
) -> None:
    answer = http.get(f"/v1/models/{path}", headers=KEY)
    assert answer.json()["id"] == path.replace("%2F", "/")


@pytest.mark.parametrize("path", ["/docs", "/v1", "/v1/responses/x/y", "/v1/tier", "/openapi.yaml"])
def test_a_path_that_it_does_not_name_is_not_there(http: httpx.Client, path: str) -> None:
    assert http.get(path, headers=KEY).status_code == 404
