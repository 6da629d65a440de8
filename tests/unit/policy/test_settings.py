"""What settings of a configuration decide, and every refusal of a value that contradicts another one."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import yaml

from reconciler.base.errors import ConfigurationError, Location
from reconciler.policy import Policy
from reconciler.policy.rollouts import Gates, RolloutPolicy, Wave, idle_approvals
from reconciler.read.configuration import parse_configuration


def policy(**spec: Any) -> Policy:
    head = {"apiVersion": "reconciler.dev/v1alpha1", "kind": "Reconciler", "metadata": {"name": "fleet"}}
    return parse_configuration(yaml.safe_dump({**head, "spec": spec}).encode(), "reconciler.yaml", {})


def waves(*each: dict[str, Any]) -> Policy:
    return policy(rollouts=[{"waves": [{"name": f"w{n}", **wave} for n, wave in enumerate(each)]}])


GATE = {"apiVersion": "apps/v1", "kind": "Deployment"}


@pytest.mark.parametrize(
    ("given", "uses_time"),
    [
        (policy(), False),
        (waves({}, {"gates": {"checks": ["ci"]}}), False),
        (waves({}, {"soak": "1h"}), True),
        (waves({"gates": {"objects": [GATE]}}, {}), True),
    ],
)
def test_plan_depends_on_the_time_where_a_wave_waits_for_it(given: Policy, uses_time: bool) -> None:
    assert given.uses_time is uses_time


RISKS = policy(risks={"kinds": {"data": ["*.db.example", "Backup"], "rbac": ["*.acl.example"]}}).risks


@pytest.mark.parametrize(
    ("kind", "classes"),
    [
        ("Role.rbac.authorization.k8s.io", ()),
        ("Token.acl.example", ("rbac",)),
        ("Database.db.example", ("data",)),
        ("Backup", ("data",)),
        ("Namespace", ("namespace",)),
        ("Deployment.apps", ()),
    ],
)
def test_class_of_this_name_is_replaced_or_added(kind: str, classes: tuple[str, ...]) -> None:
    assert RISKS.of_kind(kind) == classes


def test_dangerous_classes_come_first_and_further_ones_last() -> None:
    assert RISKS.classes == (
        *("deletion", "removal", "rbac", "crd", "namespace", "storage", "admission"),
        *("registry", "data"),
    )


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"rollouts": [{"waves": [{"name": "a"}, {"name": "a"}]}]}, "two waves have one name"),
        ({"rollouts": [{"waves": [{"name": "rest"}, {"name": "a"}]}]}, "rest is the name of the last wave"),
        ({"rollouts": [{"waves": [{"name": "rest", "size": 1}]}]}, "rest takes all that no other wave has"),
        ({"rollouts": [{"waves": [{"name": "a", "gates": {"objects": [{**GATE, "kind": "Pod"}]}}]}]},
         "the health of apps/v1 Pod is not known; known are"),
        ({"rollouts": [{"waves": [{"name": "a", "gates": {"objects": [{**GATE, "name": "{x}-{y}"}]}}]}]},
         "{x} is not known here; write {cluster}"),
        ({"rollouts": [{"waves": [{"name": "a", "size": "many"}]}]}, "size"),
        ({"exit": {"waiting": "soon"}}, "spec.exit.waiting must be 0 or 7"),
        ({"rollouts": [{"waves": [{"name": "a", "size": 2.5}]}]}, "2.5 is neither a number nor a share"),
        ({"rollouts": [{"waves": [{"name": "a", "size": True}]}]}, "True is neither a number nor a share"),
        ({"approval": {"auto": [{"autoMerge": True, "checks": ["ci"]}]}}, "with autoMerge the forge decides"),
        ({"commits": {"sign": "ssh"}}, "sign and one of signingKeyEnv, signingKeyFile belong together"),
        ({"commits": {"sign": "ssh", "signingKeyEnv": "A", "signingKeyFile": "/k"}}, "belong together"),
        ({"commits": {"signingKeyEnv": "A"}}, "belong together"),
        ({"credentials": [{"prefix": "https://a.example/", "tokenEnv": "ghp_secret-"}]}, "never a secret"),
        ({"credentials": [{"prefix": "https://a.example/", "tokenEnv": "A", "tokenFile": "/t"}]}, "token"),
        ({"credentials": [{"prefix": "https://a.example/"}]}, "token"),
        ({"rollouts": [{"waves": [{"name": "a", "soak": "soon"}]}]}, "'soon' is not a duration"),
        ({"verify": [{"prefix": "https://a.example/"}]}, "without a key nothing can be verified"),
        ({"verify": [{"prefix": "https://a.example/", "gpgKeys": ["x"]}]}, "this is no public key"),
        ({"manifests": ["../up"]}, "'../up' is not a path inside the repository"),
        ({"manifests": ["/top"]}, "'/top' is not a path inside the repository"),
        ({"pullRequests": {"schedule": ["* * *"]}}, "'* * *' is no cron expression; write five fields"),
        ({"functions": {"images": {"r.example/x:v1": "sha256:12"}}}, "'sha256:12' is no digest"),
        ({"functions": {"exec": {"r.example/x": "bin/x"}}}, "'bin/x' is no absolute path"),
        ({"configPath": "other.yaml"}, "Unknown field spec.configPath"),
        ({"manifests": ["a"], "snapshot": {"path": "."}}, "the manifests a are in snapshot.path"),
        ({"manifests": ["snapshot/a"]}, "the manifests snapshot/a are in snapshot.path"),
        ({"manifests": [5]}, "spec.manifests[0]"),
        ({"rollouts": [{"waves": [{"name": "a", "maxOpen": 0}]}]}, "with 0 nothing moves"),
        ({"rollouts": [{"waves": [{"name": "a", "size": "0%"}]}]}, "with 0% nothing moves"),
        ({"rollouts": [{"waves": [{"name": "a", "gates": {"checks": [""]}}]}]}, "must not be empty"),
        ({"pullRequests": {"labels": ["a", ""]}}, "spec.pullRequests.labels[1] must not be empty"),
        ({"risks": {"registries": [""]}}, "spec.risks.registries[0] must not be empty"),
        ({"manifests": ["a", ""]}, "spec.manifests[1]: this must not be empty; write . for"),
        ({"registries": {"mirrors": {"x": "ftp://y"}}}, "'ftp://y' is not a registry, such as"),
    ],
)  # fmt: skip
def test_value_that_contradicts_another_is_refused_with_the_reason(spec: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        policy(**spec)

    assert why in str(caught.value)


@pytest.mark.parametrize("address", ["https://user:pa55@a.example/", "https://:pa55@x", "https://u:pa55/w@x"])
@pytest.mark.parametrize(
    "spec",
    [
        lambda address: {"addresses": [address]},
        lambda address: {"forges": [{"prefix": address, "type": "github"}]},
        lambda address: {"forges": [{"prefix": "https://a.example", "type": "github", "api": address}]},
        lambda address: {"credentials": [{"prefix": address, "tokenEnv": "A"}]},
        lambda address: {"verify": [{"prefix": address, "sshKeys": ["ssh-ed25519 AAAA"]}]},
        lambda address: {"registries": {"mirrors": {"x": address}}},
        lambda address: {"registries": {"mirrors": {"x": address.partition("//")[2]}}},
        lambda address: {"pullRequests": {"reportUrl": address}},
    ],
)
def test_password_in_an_address_is_refused_and_not_shown(
    spec: Callable[[str], dict[str, Any]], address: str
) -> None:
    with pytest.raises(ConfigurationError, match="has a password in it") as caught:
        policy(**spec(address))

    assert "pa55" not in f"{caught.value} {caught.value.hint}"


@pytest.mark.parametrize(
    "mirror", ["localhost:5000", "localhost:5000/x", "m.example/x", "http://m:80/x", "m"]
)
def test_mirror_may_have_a_port_a_path_and_a_scheme(mirror: str) -> None:
    assert policy(registries={"mirrors": {"x": mirror}}).registries.mirrors == {"x": mirror}


@pytest.mark.parametrize(
    "address",
    [
        "https://a.example:8443/x@y",
        "ssh://git@a.example:22/x",
        "https://bot@a.example/x",
        "https://[::1]:8080/x",
        "http://127.0.0.1:3000",
    ],
)
def test_address_without_a_password_is_taken(address: str) -> None:
    assert policy(addresses=[address]).addresses == (address,)


def test_text_that_is_no_address_may_look_like_a_password() -> None:
    assert policy(pullRequests={"status": "build: a@b"}).pull_requests.status == "build: a@b"


def test_places_of_manifests_are_named_in_words() -> None:
    assert policy(manifests=["b", "a/"]).manifest_places == "a, b"
    assert policy(manifests=["."], snapshot={"path": "elsewhere"}).manifest_places == "this repository"


def test_place_of_manifests_that_nothing_names_is_at_the_configuration() -> None:
    places = {"a": Location("x.yaml", 3)}
    given = replace(policy(manifests=["a", "b"]), manifest_locations=places, config_path="c")

    assert [given.manifest_location(place) for place in "ab"] == [places["a"], Location("c")]


@pytest.mark.parametrize(
    ("function", "executable"),
    [("r:5000/a", "/x"), ("r:5000/a:v1", "/x"), ("r:5000/a:v2", "/z"), ("b", ""), ("a", "")],
)
def test_executable_is_that_of_a_tag_before_that_of_its_image(function: str, executable: str) -> None:
    functions = policy(functions={"exec": {"r:5000/a": "/x", "r:5000/a:v2": "/z"}}).functions

    assert functions.executable_of(function) == executable


def test_an_empty_rule_selects_everything() -> None:
    given = policy(approval={"auto": [{}]}, pullRequests={"reviews": [{}]})

    assert (len(given.approval.auto), len(given.pull_requests.reviews)) == (1, 1)


@pytest.mark.parametrize(
    ("waves", "named"),
    [
        ([Wave("a"), Wave("b", gates=Gates(approval=True))], "b"),
        ([Wave("a"), Wave("rest", gates=Gates(approval=True))], "rest"),
        ([Wave("a", gates=Gates(approval=True)), Wave("b")], ""),
        ([Wave("a"), Wave("b", selector={"matchLabels": {"x": "y"}}, gates=Gates(approval=True))], ""),
    ],
    ids=["of the last wave", "of the rest", "of the first wave", "of a wave that leaves a rest"],
)
def test_an_approval_after_the_last_wave_is_a_problem_at_its_line(waves: list[Wave], named: str) -> None:
    waves = [*waves[:-1], replace(waves[-1], approval_line=7)]

    problems = list(idle_approvals([RolloutPolicy(waves=tuple(waves))], "reconciler.yaml"))

    where = [
        (str(problem.location), f"wave {named} guards nothing" in problem.message) for problem in problems
    ]
    assert where == ([("reconciler.yaml:7", True)] if named else [])
