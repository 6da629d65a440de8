"""Small rules of expansion: extensions, keys to remove, messages about what is not there."""

from typing import Any

import pytest

from reconciler.api.porch import PackageVariantSet
from reconciler.api.validation import parse_partly
from reconciler.cel import Environment
from reconciler.expand import expand
from reconciler.expand.checks import check_set
from reconciler.policy import Limits
from tests.support.sets import package_set, repository, variant, world


@pytest.mark.parametrize(
    ("context", "where"),
    [
        ({"data": {"name": "x"}}, 'data: Invalid value: {"name":"x"}'),
        ({"removeKeys": ["name"]}, 'removeKeys: Invalid value: ["name"]'),
    ],
)
def test_reserved_key_is_refused_where_it_is_written(context: dict[str, object], where: str) -> None:
    (problem,) = expand(world(variant(packageContext=context))).problems

    assert problem.message == f'spec.packageContext.{where}: must not contain the key "name"'


@pytest.mark.parametrize(
    ("context", "messages"),
    [
        ({"data": {"a": "1"}, "removeKeys": ["b", "a"]},
            ['spec.packageContext.removeKeys[1] removes the key "a", which spec.packageContext.data sets']),
        ({"removeKeys": ["", "x y"]}, [
            'spec.packageContext.removeKeys has the key "", which no ConfigMap can have',
            'spec.packageContext.removeKeys has the key "x y", which no ConfigMap can have']),
        ({"data": {"x y": "1"}}, ['spec.packageContext.data has the key "x y", which no ConfigMap can have']),
    ],
)  # fmt: skip
def test_context_that_contradicts_itself_is_refused_in_variants_and_sets(
    context: dict[str, object], messages: list[str]
) -> None:
    target = {"repositories": [{"name": "edge"}], "template": {"packageContext": context}}
    of_variant = expand(world(variant(packageContext=context))).problems
    of_set = expand(world(package_set(targets=[target]))).problems

    assert [problem.message for problem in of_variant] == messages
    assert [p.message.replace("spec.targets[0].template.", "spec.") for p in of_set] == messages


SELECTED = {"objectSelector": {"apiVersion": "x.io/v1", "kind": "Net"}}
LISTED = {"repositories": [{"name": "edge"}]}


@pytest.mark.parametrize(
    ("target", "text", "message"),
    [
        (SELECTED, "'p-' + target.spec.secret", "target has no field spec"),
        (SELECTED, "target.kind", "target has no field kind"),
        (SELECTED, "target.package", "target has no field package"),
        (LISTED, "target.name", "target has no field name"),
        (LISTED, "upstream.repo + repository.name", "upstream has no field repo"),
        (SELECTED, "'p' + upstream.labels['target.spec'] + target.annotations.spec", ""),
        (SELECTED, "has(target.spec) ? target.spec.a : 'none'", ""),
        (SELECTED, "[{'spec': 'a'}].map(target, target.spec)[0]", ""),
        (LISTED, "target.package + target.repo", ""),
        (LISTED, "string(target.package.size())", ""),
    ],
)
def test_field_that_no_object_has_is_known_without_any_object(
    target: dict[str, Any], text: str, message: str
) -> None:
    template = {"downstream": {"repo": "edge", "packageExpr": text}}
    manifest = package_set(targets=[{**target, "template": template}]).manifest

    findings = check_set(manifest.spec, Environment(Limits()))

    place = "template.downstream.packageExpr: "
    assert [f.message for f in findings] == ([place + message] if message else [])
    if findings:
        assert text[findings[0].offset or 0 :].startswith(message.rpartition(" ")[2])


@pytest.mark.parametrize(
    ("selector", "errors"),
    [
        ({"namespaceSelector": {"a": "b"}}, [("namespaceSelector", "Did you mean name?")]),
        ({"nam": {"a": "b"}}, [("nam", "Did you mean name?")]),
        ({"labelSelector": {"matchLabels": {"a": "b"}}},
            [("labelSelector", "Write matchLabels here, without labelSelector.")]),
        ({"matchLabel": {"a": 1}}, [("matchLabel", "Did you mean matchLabels?"), ("matchLabel.a",
            "Put it in quotes, as it is written: without them it is a number.")]),
    ],
)  # fmt: skip
def test_name_that_was_perhaps_meant_is_not_checked_as_if_it_had_been_written(
    selector: dict[str, Any], errors: list[tuple[str, str]]
) -> None:
    head = {
        "apiVersion": "config.porch.kpt.dev/v1alpha2",
        "kind": "PackageVariantSet",
        "metadata": {"name": "s"},
    }
    target = {"objectSelector": {"apiVersion": "x.io/v1", "kind": "Net", **selector}}
    manifest = {**head, "spec": {"upstream": {"repo": "a", "package": "b"}, "targets": [target]}}

    found = parse_partly(PackageVariantSet, manifest).errors

    assert [(".".join(map(str, error.path[4:])), error.hint) for error in found] == errors


def test_context_that_an_expression_contradicts_is_refused() -> None:
    context = {"data": {"a": "1"}, "removeKeyExprs": ["target.package.size() > 0 ? 'a' : 'b'"]}
    target = {"repositories": [{"name": "edge"}], "template": {"packageContext": context}}

    (problem,) = expand(world(package_set(targets=[target]))).problems

    assert 'spec.packageContext.removeKeys[0] removes the key "a"' in problem.message


def test_variant_with_an_impossible_place_is_invalid() -> None:
    views = (repository("blueprints"), repository("edge"))
    desired = expand(world(variant(downstream={"repo": "edge", "package": "a//b"}), views=views))

    assert [owner.name for owner in desired.stalled] == ["mine"]
    assert desired.variants == ()


def test_missing_repository_is_told_with_what_to_do() -> None:
    (problem,) = expand(world(variant(downstream={"repo": "nowhere", "package": "a"}))).problems

    assert problem.message == 'repository "nowhere" could not be loaded'
    assert problem.hint == "Register it as a Repository object in the same namespace."
