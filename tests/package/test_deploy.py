"""What is shipped for deployment fits the sidecar, and is right by the tools that read it.

What needs a tool that is not installed is skipped with its name; see proxy/deploy/README.md.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tier_router.config import Config, load, parse
from tier_router.prune.report import Tally
from tier_router.testing import FakeVllm
from tier_router_proxy.pruning_metrics import SERIES, PruningMetrics
from tier_router_proxy.serve import reload
from tier_router_proxy.sidecar import Sidecar

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "proxy" / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text("utf-8")
UNIT = DEPLOY / "systemd" / "tier-router.service"
CHART = DEPLOY / "helm" / "tier-router"
ALERTS = DEPLOY / "prometheus" / "alerts.yaml"
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text("utf-8"))
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
KEYS = {"TIER_ROUTER_KEYS": "a,b"}
CLOSING = 5
"""Seconds that a process gets at least, after `server.drain`, before it is killed."""


def tool(name: str) -> str:
    """The path of a program; skips where it is not installed."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.is_file() else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def passes(*command: str | Path) -> str:
    """What a program prints; fails with it where the program does."""
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=60, check=False
    )
    told = done.stdout + done.stderr
    assert done.returncode == 0, told
    return told


def objects(path: Path) -> list[dict[str, Any]]:
    """The objects of a manifest."""
    return [each for each in yaml.safe_load_all(path.read_text("utf-8")) if each]


def rendered(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The objects that Helm's engine makes of the chart."""
    helm = pytest.importorskip("helm_python", reason="helm-python-sdk is not installed")
    chart = helm.Chart.load(str(CHART))
    chart.validate_schema(dict(values))
    files = chart.render(dict(values), name="r", namespace="n")
    texts = [text for name, text in sorted(files.items()) if name.endswith(".yaml")]
    return [each for text in texts for each in yaml.safe_load_all(text) if each]


WAYS: dict[str, dict[str, Any]] = {
    "chart plain": {"keys": {"values": ["a", "b"]}},
    "chart full": {
        "keys": {"existingSecret": "mine"},
        "autoscaling": {"enabled": False},
        "networkPolicy": {
            "enabled": True,
            "from": [{"podSelector": {"matchLabels": {"calls": "yes"}}}],
            "to": [{"podSelector": {"matchLabels": {"app": "vllm"}}}],
        },
        "imagePullSecrets": [{"name": "pull"}],
        "env": [{"name": "TIER_ROUTER_STATE", "value": "redis://redis:6379/0"}],
        "podLabels": {"team": "ml"},
        "podAnnotations": {"a": "b"},
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "drainSeconds": 120,
        "config": {"server": {"attempts": 2}, "state": "${TIER_ROUTER_STATE}"},
    },
    "chart sidecar": {"mode": "sidecar"},
}


@pytest.fixture(params=[*(path.stem for path in MANIFESTS if path.stem != "secret"), *WAYS])
def shipped(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    """The objects of one way to run it on Kubernetes."""
    name = request.param
    if name in WAYS:
        return rendered(WAYS[name])
    return objects(DEPLOY / "kubernetes" / f"{name}.yaml")


def of_kind(found: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [each for each in found if each["kind"] == kind]


def config_in(found: list[dict[str, Any]]) -> Config:
    """The configuration in the ConfigMap, as the container reads it."""
    (one,) = of_kind(found, "ConfigMap")
    env = KEYS | {"TIER_ROUTER_STATE": "redis://redis:6379/0"}
    return parse(one["data"]["config.yaml"], name="ConfigMap", env=env)


def containers(found: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """(Pod, container) of each Tier Router."""
    for deployment in of_kind(found, "Deployment"):
        pod = deployment["spec"]["template"]["spec"]
        for container in [*pod.get("initContainers", []), *pod["containers"]]:
            if container["name"] == "tier-router":
                yield pod, container


@cache
def answers() -> frozenset[str]:
    """GET paths that need no key, by asking a sidecar that has one."""

    async def ask() -> frozenset[str]:
        config = load(ROOT / "config.yaml", env=KEYS)
        server = config.server.model_copy(update={"port": 0})
        async with Sidecar(config.model_copy(update={"server": server})) as sidecar:
            asked = ("/health", "/ready", "/metrics", "/v1/models", "/healthz")
            async with httpx.AsyncClient(base_url=sidecar.url, trust_env=False) as http:
                answered = {path: await http.get(path) for path in asked}
        return frozenset(path for path, told in answered.items() if told.status_code == 200)

    return asyncio.run(ask())


# ---- what fits the sidecar; needs no tool


def test_the_configuration_of_a_config_map_is_one(shipped: list[dict[str, Any]]) -> None:
    config = config_in(shipped)
    assert [tier.name for tier in config.tiers] == ["light", "heavy"]
    assert not config.server.exposed


def test_without_keys_no_manifest_serves_other_hosts() -> None:
    (secret,) = objects(DEPLOY / "kubernetes" / "secret.yaml")
    (told,) = of_kind(objects(DEPLOY / "kubernetes" / "deployment.yaml"), "ConfigMap")
    empty = parse(told["data"]["config.yaml"], env=secret["stringData"])
    assert secret["stringData"] == {"TIER_ROUTER_KEYS": ""}
    assert empty.server.exposed  # which `tier-router serve` refuses


def test_probes_and_ports_are_the_servers(shipped: list[dict[str, Any]]) -> None:
    server = config_in(shipped).server
    open_paths = answers()
    for _, container in containers(shipped):
        ports = {port["name"]: port["containerPort"] for port in container.get("ports", [])}
        probes = [value for key, value in container.items() if key.endswith("Probe")]
        assert {"startupProbe", "livenessProbe"} <= container.keys()
        for probe in probes:
            if "httpGet" in probe:
                assert not server.host.startswith("127."), "the kubelet does not reach loopback"
                assert probe["httpGet"]["path"] in open_paths
                assert ports[probe["httpGet"]["port"]] == server.port
            else:
                code = probe["exec"]["command"][2]
                assert f"'127.0.0.1', {server.port}," in code
                assert "'/health'" in code
        if "readinessProbe" in container:
            assert container["readinessProbe"]["httpGet"]["path"] == "/ready"
    for service in of_kind(shipped, "Service"):
        assert service["spec"]["ports"][0]["targetPort"] == "http"


def test_a_pod_that_ends_has_time_to_drain(shipped: list[dict[str, Any]]) -> None:
    drain = config_in(shipped).server.drain
    for pod, container in containers(shipped):
        before = container.get("lifecycle", {}).get("preStop")
        waits = 0 if before is None else int(before["exec"]["command"][1])
        assert pod["terminationGracePeriodSeconds"] >= waits + drain + CLOSING


def test_containers_are_locked_down(shipped: list[dict[str, Any]]) -> None:
    for pod, container in containers(shipped):
        own = pod.get("securityContext", {}) | container["securityContext"]
        assert own["runAsNonRoot"] is True
        assert own["readOnlyRootFilesystem"] is True
        assert own["allowPrivilegeEscalation"] is False
        assert own["capabilities"] == {"drop": ["ALL"]}
        assert own["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
        assert mounts["/etc/tier-router"]["readOnly"] is True
        assert "subPath" not in mounts["/etc/tier-router"], "changes would never arrive"
        assert {mount["name"] for mount in mounts.values()} <= {v["name"] for v in pod["volumes"]}


def test_selectors_select_the_pods(shipped: list[dict[str, Any]]) -> None:
    for deployment in of_kind(shipped, "Deployment"):
        labels = deployment["spec"]["template"]["metadata"]["labels"].items()
        wanted = [deployment["spec"]["selector"]["matchLabels"]]
        wanted += [each["spec"]["selector"] for each in of_kind(shipped, "Service")]
        for kind, key in (("PodDisruptionBudget", "selector"), ("NetworkPolicy", "podSelector")):
            wanted += [each["spec"][key]["matchLabels"] for each in of_kind(shipped, kind)]
        for selector in wanted:
            assert selector.items() <= labels
        for scaler in of_kind(shipped, "HorizontalPodAutoscaler"):
            assert scaler["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
            assert "replicas" not in deployment["spec"]


async def test_health_checks_tell_a_server_from_none() -> None:
    match = re.search(r"HEALTHCHECK .*CMD (\[.*\])$", DOCKERFILE, re.M)
    assert match
    commands = [json.loads(match[1])]
    (_, container), *_ = containers(objects(DEPLOY / "kubernetes" / "sidecar.yaml"))
    commands.append(container["livenessProbe"]["exec"]["command"])
    config = load(ROOT / "config.yaml", env={})
    server = config.server.model_copy(update={"port": 0})

    async def ended(command: list[str], port: str) -> int:
        code = command[2].replace("8080", port)
        process = await asyncio.create_subprocess_exec(
            sys.executable, *command[1:2], code, stderr=asyncio.subprocess.DEVNULL
        )
        return await process.wait()

    async with Sidecar(config.model_copy(update={"server": server})) as sidecar:
        port = sidecar.url.rpartition(":")[2]
        assert [await ended(command, port) for command in commands] == [0, 0]
    assert [await ended(command, port) for command in commands] == [1, 1]


def test_the_image_copies_what_the_wheel_needs_and_runs_as_nobody() -> None:
    copied = set(" ".join(re.findall(r"^COPY (?!--)(.*)$", DOCKERFILE, re.M)).split())
    assert {"pyproject.toml", "README.md", "LICENSE", "config.yaml"} < copied
    assert all((ROOT / name).exists() for name in copied - {"./"})
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text("utf-8")
    allowed = {line[1:] for line in ignored.splitlines() if line.startswith("!")}
    assert allowed == copied - {"./"}
    assert re.search(r"^USER [1-9]\d*:[1-9]\d*$", DOCKERFILE, re.M)


def test_the_image_serves_other_hosts_only_with_keys() -> None:
    command = json.loads(re.findall(r"^CMD (\[.*\])$", DOCKERFILE, re.M)[0])
    path = ROOT / "config.yaml"
    given = [str(path) if part.endswith("config.yaml") else part for part in command]
    env = {"PYTHONPATH": f"{ROOT}:{ROOT / 'proxy'}"}
    done = subprocess.run(
        [sys.executable, "-m", "tier_router", *given],
        env=env, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "is open to other hosts" in done.stderr


def test_the_unit_gives_time_to_drain_and_tells_one_process() -> None:
    text = UNIT.read_text("utf-8")
    told = dict(re.findall(r"^(\w+)=(.*)$", text, re.M))
    drain = load(ROOT / "config.yaml", env={}).server.drain
    assert float(told["TimeoutStopSec"]) >= drain + CLOSING
    assert told["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert told["KillMode"] == "mixed"  # two signals to a worker would cut its answers


# ---- metrics


def pruned() -> str:
    """What pruning shows once everything that it counts has happened."""
    registry, tally = CollectorRegistry(), Tally()
    PruningMetrics(registry, tally)
    assert tally.listener is not None
    for name in SERIES:
        tally.listener(name, "light", "rag", 1)
    return generate_latest(registry).decode()


@pytest.fixture(scope="module")
def counted() -> dict[str, set[str]]:
    """{name: labels} of all that a sidecar which has met everything shows."""

    async def meet() -> str:
        async with AsyncExitStack() as stack:
            light = await stack.enter_async_context(FakeVllm("m8"))
            heavy = await stack.enter_async_context(FakeVllm("m70"))
            tiers = [
                {"name": name, "model": fake.model, "replicas": [fake.url]}
                for name, fake in (("light", light), ("heavy", heavy))
            ]
            polls = {"poll": {"load": 0.1, "metrics": 0.1, "models": 1.0}}
            written = {"tiers": tiers, "server": {"port": 0}, "load": polls}
            sidecar = await stack.enter_async_context(Sidecar(parse(yaml.safe_dump(written))))
            http = await stack.enter_async_context(
                httpx.AsyncClient(base_url=sidecar.url, trust_env=False)
            )
            body = {"model": "m8", "messages": [{"role": "user", "content": "hi"}]}
            await http.post("/v1/chat/completions", json=body | {"stream": True})
            await http.post("/v1/chat/completions", json={})
            await reload(sidecar, lambda: sidecar.router.config)
            awaited = ('page="metrics"', 'page="load"', "server_requests{")
            long = body | {"stream": True, "max_tokens": 5_000, "ignore_eos": True}
            # a client that knows no router: zero requests might be a replica that does not count
            async with http.stream("POST", f"{light.url}/v1/chat/completions", json=long):
                for _ in range(250):
                    text = (await http.get("/metrics")).text
                    if all(told in text for told in awaited):
                        break
                    await asyncio.sleep(0.02)
            return text

    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(asyncio.run(meet()) + pruned()):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def expressions() -> list[tuple[str, str]]:
    """(where, PromQL) of the dashboard and of the alerts."""
    found = [
        (panel["title"], target["expr"])
        for panel in DASHBOARD["panels"]
        for target in panel.get("targets", [])
    ]
    found += [
        (f"variable {each['name']}", each["definition"])
        for each in DASHBOARD["templating"]["list"]
        if "definition" in each
    ]
    for group in yaml.safe_load(ALERTS.read_text("utf-8"))["groups"]:
        found += [(rule["alert"], rule["expr"]) for rule in group["rules"]]
    return found


def test_dashboard_and_alerts_ask_for_what_is_counted(counted: dict[str, set[str]]) -> None:
    for where, expression in expressions():
        names = re.findall(r"tier_router_\w+", expression)
        assert names, where
        assert set(names) <= counted.keys(), where
        # what Prometheus itself adds
        labels = set.union(*(counted[name] for name in names)) | {"instance"}
        matched = {
            label
            for braces in re.findall(r"\{(.*?)\}", expression)
            for label in re.findall(r"(\w+)\s*[=!]~?", braces)
        }
        grouped = {
            label.strip()
            for inner in re.findall(r"(?:by|ignoring) \((.*?)\)", expression)
            for label in inner.split(",")
        }
        assert matched | grouped <= labels, where


def test_what_is_counted_is_shown(counted: dict[str, set[str]]) -> None:
    asked = " ".join(expression for _, expression in expressions())
    kept = {name for name in counted if not name.endswith(("_created", "_sum", "_count"))}
    assert {name for name in kept if name not in asked} == set()


def test_panels_have_numbers_of_their_own_and_do_not_overlap() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert at["x"] + at["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells


# ---- what tools say


def test_promtool_accepts_the_alerts_and_every_query_of_the_dashboard(tmp_path: Path) -> None:
    promtool = tool("promtool")
    passes(promtool, "check", "rules", ALERTS)
    rules = [
        {"record": f"panel:{number}", "expr": expr.replace("$__rate_interval", "5m")}
        for number, (where, expr) in enumerate(expressions())
        if not where.startswith("variable")
    ]
    path = tmp_path / "dashboard.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    passes(promtool, "check", "rules", path)


def test_alerts_ring_when_they_should() -> None:
    passes(tool("promtool"), "test", "rules", ALERTS.parent / "alerts_test.yaml")


def test_hadolint_accepts_the_dockerfile() -> None:
    passes(tool("hadolint"), DEPLOY / "Dockerfile")


def test_yamllint_accepts_what_is_plain_yaml() -> None:
    paths = [*MANIFESTS, CHART / "Chart.yaml", CHART / "values.yaml", *ALERTS.parent.glob("*.yaml")]
    passes(tool("yamllint"), "--strict", "-c", DEPLOY / "yamllint.yaml", *paths)


def test_kubernetes_knows_every_field_of_the_manifests() -> None:
    passes(tool("kubernetes-validate"), "--strict", *MANIFESTS)


def test_kubernetes_knows_every_field_of_the_chart(tmp_path: Path) -> None:
    paths = []
    for name, values in WAYS.items():
        paths.append(tmp_path / f"{name}.yaml")
        paths[-1].write_text(yaml.safe_dump_all(rendered(values)))
    passes(tool("kubernetes-validate"), "--strict", *paths)


def test_helm_lints_the_chart() -> None:
    helm = pytest.importorskip("helm_python", reason="helm-python-sdk is not installed")
    for values in WAYS.values():
        report = helm.lint(str(CHART), values, strict=True)
        bad = [each for each in report["messages"] if each["severity"] >= 2]
        assert (bad, report["errors"]) == ([], [])


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({}, "give keys.existingSecret or keys.values"),
        ({"mode": "daemon"}, "mode"),
        ({"keys": {"values": ["a,b"]}}, "keys/values/0"),
        ({"keys": {"values": ["a"]}, "config": {"server": {"port": 1}}}, "config/server"),
        ({"keys": {"values": ["a"]}, "replica": 3}, "replica"),
    ],
)
def test_the_chart_refuses_wrong_values(values: dict[str, Any], told: str) -> None:
    helm = pytest.importorskip("helm_python", reason="helm-python-sdk is not installed")
    with pytest.raises(helm.HelmError, match=told):
        rendered(values)


def test_a_chart_that_depends_on_this_one_gets_a_sidecar(tmp_path: Path) -> None:
    helm = pytest.importorskip("helm_python", reason="helm-python-sdk is not installed")
    app = tmp_path / "app"
    (app / "templates").mkdir(parents=True)
    shutil.copytree(CHART, app / "charts" / "tier-router")
    (app / "Chart.yaml").write_text("apiVersion: v2\nname: app\nversion: 1.0.0\n")
    (app / "values.yaml").write_text("tier-router: {mode: sidecar, port: 9090}\n")
    (app / "templates" / "pod.yaml").write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: app}\nspec:\n  initContainers:\n"
        '    {{- include "tier-router.sidecar" (index .Subcharts "tier-router") | nindent 4 }}\n'
        "  containers: [{name: app, image: app}]\n  volumes:\n"
        '    {{- include "tier-router.volumes" (index .Subcharts "tier-router") | nindent 4 }}\n'
    )
    files = helm.Chart.load(str(app)).render({}, name="r", namespace="n")
    pod = yaml.safe_load(files["app/templates/pod.yaml"])["spec"]
    (router,) = pod["initContainers"]
    told = yaml.safe_load(files["app/charts/tier-router/templates/configmap.yaml"])
    server = parse(told["data"]["config.yaml"]).server
    assert (server.host, server.port) == ("127.0.0.1", 9090)
    assert router["restartPolicy"] == "Always"
    assert "'127.0.0.1', 9090," in router["startupProbe"]["exec"]["command"][2]
    assert pod["volumes"][0]["configMap"]["name"] == told["metadata"]["name"]


def test_the_schema_of_values_is_a_schema_and_holds_the_defaults() -> None:
    check = tool("check-jsonschema")
    passes(check, "--check-metaschema", CHART / "values.schema.json")
    passes(check, "--schemafile", CHART / "values.schema.json", CHART / "values.yaml")


def test_systemd_accepts_the_unit_and_finds_it_locked_down(tmp_path: Path) -> None:
    analyze = tool("systemd-analyze")
    path = tmp_path / UNIT.name
    text = UNIT.read_text("utf-8")
    path.write_text(text.replace("/opt/tier-router/bin/tier-router", sys.executable))
    told = passes(analyze, "verify", "--man=no", path)
    assert UNIT.name not in told
    # tenths of ten; below 2.0 systemd calls it safe
    passes(analyze, "security", "--offline=true", "--threshold=20", path)
