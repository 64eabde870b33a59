"""What people write, and what they are told when it is wrong."""

import hashlib
from pathlib import Path

import pytest

from tier_router.config import Config, load, parse
from tier_router.errors import ConfigError
from tier_router.request import Need

TWO = """\
tiers:
  - name: light
    model: small
    replicas: [http://a:8000]
  - name: heavy
    model: big
    replicas:
      - http://b:8000
      - {url: http://c:8000/v1, weight: 2}
"""


def test_the_shortest_useful_file() -> None:
    config = parse(TWO)
    assert [tier.name for tier in config.tiers] == ["light", "heavy"]
    names = [replica.name for tier in config.tiers for replica in tier.replicas]
    assert names == ["light-0", "heavy-0", "heavy-1"]
    assert config.tiers[1].replicas[1].url == "http://c:8000"
    assert config.tiers[1].replicas[1].weight == 2
    assert config.ladder == {"light": 0, "heavy": 1}
    assert config.server.port == 8080


def test_what_clients_may_name() -> None:
    config = parse(TWO + "aliases: {gpt-4o: auto, tiny: light}\n")
    assert config.pins == {
        "small": "light",
        "big": "heavy",
        "gpt-4o": "auto",
        "tiny": "light",
        "light": "light",
        "heavy": "heavy",
        "auto": "auto",
    }


# ---- errors: file, line, key, and what to do


@pytest.mark.parametrize(
    ("text", "line", "key", "told"),
    [
        ("", None, "", "a configuration is a mapping"),
        ("- a\n", None, "", "a configuration is a mapping"),
        ("policy: {}\n", None, "tiers", "required"),
        (TWO + "polices: {}\n", 10, "polices", "did you mean `policy`?"),
        (TWO.replace("model: big", "modle: big"), 6, "tiers[1].modle", "did you mean `model`?"),
        (TWO.replace("http://a:8000", "a:8000"), 4, "tiers[0].replicas[0]", "starts with http://"),
        (TWO.replace("http://b:8000", "http://b:port"), 8, "tiers[1].replicas[0]", "ort"),
        (TWO.replace("http://b:8000", "http://b:8000?x=1"), 8, "tiers[1].replicas[0]", "no query"),
        (
            TWO.replace("weight: 2", "weight: -1"),
            9,
            "tiers[1].replicas[1].weight",
            "greater than 0",
        ),
        (TWO.replace("name: heavy", "name: light"), 1, "tiers", "two tiers named `light`"),
        (TWO.replace("name: heavy", "name: auto"), 5, "tiers[1].name", "`auto`"),
        (TWO.replace("name: heavy", "name: a b"), 5, "tiers[1].name", "letters, digits"),
        (TWO + "policy: {threshold: 2}\n", 10, "policy", "between 0 and 1"),
        (TWO + "policy: {threshold: .5, heavy_share: .5}\n", 10, "policy", "not both"),
        (TWO + "policy:\n  threshold: [.1, .2]\n", 11, "policy.threshold", "2 tiers need 1"),
        (TWO + "aliases:\n  gpt: larg\n", 11, "aliases.gpt", "no tier named `larg` (there are: li"),
        (TWO + "rules:\n  - {when: {keyword: x}, tier: x}\n", 11, "rules[0].tier", "no tier named"),
        (TWO + "rules:\n  - {when: {}, tier: light}\n", 11, "rules[0].when", "needs a `header`"),
        (
            TWO + "rules:\n  - when: {regex: '('}\n    tier: light\n",
            11,
            "rules[0].when.regex",
            "not a regular expression",
        ),
        (TWO + "intents:\n  a: {tier: x, utterances: [b]}\n", 11, "intents.a", "no tier named `x`"),
        (TWO + "intents:\n  a: {utterances: []}\n", 11, "intents.a.utterances", "at least 1"),
        (TWO + "state: mysql://h\n", 10, "state", "one of memory://, redis://"),
        (TWO + "server: {port: 70000}\n", 10, "server.port", "less than or equal to 65535"),
        (TWO + "load: {price: cheap}\n", 10, "load.price", "number"),
        ("tiers: [\n  a: {\n", 3, "", "YAML"),
        (TWO + "tiers: []\n", 10, "tiers", "twice"),
        (TWO.replace("model: big", "model: ${NOPE}"), 6, "tiers[1].model", "NOPE"),
    ],
)
def test_an_error_names_line_and_key(text: str, line: int | None, key: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text, name="c.yaml", env={})
    error = caught.value
    assert told in str(error)
    assert (error.line, error.key) == (line, key) or line is None, str(error)
    assert str(error).startswith("c.yaml")


def test_variables_are_expanded() -> None:
    text = TWO.replace("model: big", "model: ${M}") + "server: {port: '${P:-9000}'}\n"
    config = parse(text, env={"M": "x"})
    assert (config.tiers[1].model, config.server.port) == ("x", 9000)


def test_keys_come_as_one_variable() -> None:
    text = TWO + "server: {api_keys: '${KEYS:-}'}\n"
    assert parse(text, env={}).server.api_keys == ()
    keys = parse(text, env={"KEYS": "one, two"}).server.api_keys
    assert [key.key.get_secret_value() for key in keys] == ["one", "two"]
    assert [key.name for key in keys] == ["key-0", "key-1"]


def test_a_key_may_be_given_as_its_digest() -> None:
    digest = hashlib.sha256(b"s3cret").hexdigest()
    (key,) = parse(TWO + f"server: {{api_keys: [{{sha256: {digest}}}]}}\n").server.api_keys
    (plain,) = parse(TWO + "server: {api_keys: [s3cret]}\n").server.api_keys
    assert key.digest == plain.digest
    assert "s3cret" not in repr(plain)


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("{name: a}", "either `key` or `sha256`"),
        ("{sha256: abc}", "64 hexadecimal digits"),
        ("{key: x, tiers: [huge]}", "api_keys[0].tiers[0]: no tier named `huge`"),
        ("{key: x, rate: 0}", "greater than 0"),
        ("{key: x, rat: 1}", "did you mean `rate`?"),
    ],
)
def test_what_a_key_may_not_be(key: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(TWO + f"server: {{api_keys: [{key}]}}\n")
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("server", "exposed"),
    [
        ("{}", False),
        ("{host: 0.0.0.0}", True),
        ("{host: '::'}", True),
        ("{host: '::1'}", False),
        ("{host: 127.0.0.2}", False),
        ("{host: gateway.internal}", True),
        ("{host: 0.0.0.0, api_keys: [x]}", False),
        ("{host: 0.0.0.0, open: true}", False),
    ],
)
def test_who_can_be_reached_by_anybody_says_so(server: str, exposed: bool) -> None:
    assert parse(TWO + f"server: {server}\n").server.exposed is exposed


def test_secrets_are_never_printed() -> None:
    config = parse(TWO.replace("model: big", "model: big\n    api_key: s3cret"))
    assert "s3cret" not in repr(config)
    assert "s3cret" not in str(config.model_dump())


# ---- intents from semantic-router's files

ROUTES = Path(__file__).with_name("routes")
"""Written by semantic-router 0.1.16 and 1.1.1 themselves (`to_yaml`, `to_json`)."""


@pytest.mark.parametrize("name", sorted(path.name for path in ROUTES.iterdir()))
def test_routes_come_from_semantic_routers_files(name: str, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    file = ROUTES / name
    path.write_text(
        TWO + f"intent_files: [{{path: {file}, tier: light, tiers: {{hours: heavy}}}}]\n"
    )
    if "chain" not in name:
        path.write_text(TWO + f"intent_files: [{{path: {file}, tier: light}}]\n")
    config = load(path)
    tiers = {name: intent.tier for name, intent in config.intents.items()}
    assert tiers.pop("hours", "heavy") == "heavy", "the entry's `tiers`"
    assert tiers == {"refund": "heavy", "legal": "light"}, "the route's metadata, the entry's tier"
    assert config.intents["refund"].utterances == ("i want my money back", "refund please")
    assert config.intents["refund"].description == "money back"
    assert config.intents["refund"].threshold is None, "on the scale of another encoder"
    assert config.sources == (path, file)


def test_a_bare_list_of_routes_and_a_relative_path(tmp_path: Path) -> None:
    (tmp_path / "routes.json").write_text('[{"name": "a", "utterances": ["b"]}]')
    path = tmp_path / "config.yaml"
    path.write_text(TWO + "intent_files: [routes.json]\n")
    assert load(path).intents["a"].tier is None


@pytest.mark.parametrize(
    ("routes", "told"),
    [
        ('{"routes": [{"utterances": ["a"]}]}', "name"),
        ('{"routes": [{"name": "a", "utterances": []}]}', "utterances"),
        ('{"nothing": 1}', "routes"),
        ("[[1]]", "route"),
    ],
)
def test_an_error_in_a_routes_file_names_that_file(tmp_path: Path, routes: str, told: str) -> None:
    (tmp_path / "r.json").write_text(routes)
    path = tmp_path / "config.yaml"
    path.write_text(TWO + "intent_files: [r.json]\n")
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert "r.json" in str(caught.value)
    assert told in str(caught.value)


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nope\.yaml"):
        load(tmp_path / "nope.yaml")


def test_the_schema_describes_every_key() -> None:
    schema = Config.model_json_schema()
    assert schema["additionalProperties"] is False
    tier = schema["$defs"]["Tier"]["properties"]
    assert tier["context"]["description"].startswith("Tokens of prompt")
    assert set(Need) <= set(schema["$defs"]["Need"]["enum"])


def test_the_shipped_configuration_is_good() -> None:
    config = load(Path(__file__).parents[2] / "config.yaml", env={})
    assert list(config.ladder) == ["light", "heavy"]
    assert config.server.api_keys == ()


def test_a_tier_with_other_replicas_has_other_names() -> None:
    tier = parse("tiers: [{name: t, model: m, replicas: [http://a, http://b]}]").tiers[0]
    assert tier.names == ("t-0", "t-1")
    assert tier.model_copy(update={"replicas": tier.replicas[1:]}).names == ("t-1",)
    assert tier.model_copy(update={"context": 9}).names == ("t-0", "t-1")


def test_pruning_is_off_unless_it_is_asked_for() -> None:
    assert parse(TWO).pruning.mode == "off"
    assert parse(TWO + "pruning: {holdout: 0}\n").pruning.mode == "observe"
    assert parse(TWO + "pruning: on\n").pruning.mode == "on"
    with pytest.raises(ConfigError, match=r"pruning.tiers.ligth: no tier named `ligth`"):
        parse(TWO + "pruning: {tiers: {ligth: {}}}\n")
    assert parse(TWO + "pruning: observe\n").pruning.mode == "observe"
