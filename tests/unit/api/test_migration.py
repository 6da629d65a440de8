"""Sets of v1alpha1 as sets of v1alpha2."""

from typing import Any

import pytest

from reconciler.api.migration import migrate_set, untranslated_fields
from reconciler.api.porch import PackageVariantSet
from reconciler.cel import Environment
from reconciler.expand.checks import check_set, validate_set
from reconciler.krm.yaml import load_documents
from reconciler.policy import Limits

OLD: dict[str, Any] = {
    "apiVersion": "config.porch.kpt.dev/v1alpha1",
    "kind": "PackageVariantSet",
    "metadata": {"name": "old"},
    "spec": {"upstream": {"package": {"repo": "blueprints", "name": "app"}, "revision": "v3"},
        "adoptionPolicy": "adoptExisting", "targets": [{"package": {"repo": "edge", "name": "mine"}},
        {"repositories": {"matchLabels": {"tier": "edge"}}},
        {"objects": {"selectors": [{"apiVersion": "v1", "kind": "Pod", "namespace": "n"}],
        "repoName": {"fromField": ".metadata.labels[repo]"}},
        "packageName": {"baseName": {"fromField": "metadata.name"}, "nameSuffix": {"value": "-x"}}}]},
}  # fmt: skip


def test_v1alpha1_set_is_translated_into_a_valid_one() -> None:
    text = migrate_set(OLD)

    manifest = PackageVariantSet.model_validate(load_documents(text.encode())[0].value)
    assert (manifest.api_version, manifest.kind) == ("config.porch.kpt.dev/v1alpha2", "PackageVariantSet")
    assert manifest.metadata.name == "old"
    assert validate_set(manifest.spec) == ()
    assert check_set(manifest.spec, Environment(Limits())) == ()
    assert manifest.spec.model_dump(exclude_none=True) == {
        "upstream": {"repo": "blueprints", "package": "app", "revision": 3},
        "targets": [
            {
                "repositories": [{"name": "edge", "packageNames": ["mine"]}],
                "template": {"adoptionPolicy": "adoptExisting"},
            },
            {
                "repositorySelector": {"matchLabels": {"tier": "edge"}},
                "template": {"adoptionPolicy": "adoptExisting"},
            },
            {
                "objectSelector": {"apiVersion": "v1", "kind": "Pod"},
                "template": {
                    "downstream": {"repoExpr": "target.labels['repo']", "packageExpr": "target.name + '-x'"},
                    "adoptionPolicy": "adoptExisting",
                },
            },
        ],
    }
    assert text.startswith("# v1alpha2 selects only in the namespace of the set and by labels: namespace")


@pytest.mark.parametrize(
    ("spec", "lost"),
    [
        (OLD["spec"], []),
        ({"targets": [{"repositorySelector": {"matchLabels": {"a": "b"}}}]},
            ["spec.targets[0].repositorySelector"]),
        ({"targets": [{"repositories": [{"name": "edge"}]}]}, ["spec.targets[0].repositories"]),
        ({"targets": [{"repositories": {}}]}, ["spec.targets[0].repositories"]),
        ({"targets": [{"repositories": {"tier": "edge"}}]}, ["spec.targets[0].repositories.tier"]),
        ({"targets": [{"objects": {"selectors": []}}]}, ["spec.targets[0]"]),
        ({"upstream": {"repo": "r", "package": "p"}}, ["spec.upstream.package", "spec.upstream.repo"]),
        ({"upstream": {"package": {"repo": "r", "name": "p"}, "revision": "v1", "ref": "x"}},
            ["spec.upstream.ref"]),
        ({"targets": [{"package": {"repo": "edge"}, "template": {"injectors": [{"name": "x"}]}}]},
            ["spec.targets[0].template"]),
    ],
)  # fmt: skip
def test_untranslated_fields_are_listed(spec: dict[str, Any], lost: list[str]) -> None:
    assert set(lost) <= set(untranslated_fields({**OLD, "spec": spec}))
    assert bool(lost) == bool(untranslated_fields({**OLD, "spec": spec}))


@pytest.mark.parametrize(
    ("upstream", "selector"),
    [
        ({"revision": "v3"}, {"revision": 3}),
        ({"revision": "3"}, {"revision": 3}),
        ({"revision": "stable"}, {"tag": "stable"}),
        ({"tag": "stable"}, {"tag": "stable"}),
        ({"ref": "stable"}, {"tag": "stable"}),
        ({"revision": "v3", "tag": "stable"}, {"revision": 3}),
        ({}, {}),
    ],
)
def test_upstream_keeps_its_revision_or_tag(upstream: dict[str, str], selector: dict[str, Any]) -> None:
    migrated = load_documents(migrate_set({"spec": {"upstream": upstream}}).encode())[0].value

    assert migrated["spec"]["upstream"] == selector


@pytest.mark.parametrize(
    ("name", "downstream"),
    [
        ({"nameSuffix": {"value": "-x"}}, {"package": "app-x"}),
        ({"namePrefix": {"value": "x-"}, "baseName": {"value": "y"}}, {"package": "x-y"}),
        (
            {"baseName": {"fromField": "metadata.annotations['a/b']"}},
            {"packageExpr": "target.annotations['a/b']"},
        ),
        ({"baseName": {"fromField": "spec.x"}}, {"packageExpr": "'spec.x'"}),
        ({}, None),
    ],
)
def test_name_of_packages_is_that_of_upstream_with_both_ends(name: Any, downstream: Any) -> None:
    spec = {"upstream": OLD["spec"]["upstream"], "targets": [{"repositories": {}, "packageName": name}]}
    text = migrate_set({"spec": spec})

    (target,) = load_documents(text.encode())[0].value["spec"]["targets"]
    assert target.get("template", {}).get("downstream") == downstream
    assert ("has no equivalent" in text) is ("spec.x" in str(name))


def test_migration_is_total() -> None:
    for spec in (None, 3, [], {"targets": [None, {"objects": {"selectors": [1]}}], "upstream": "x"}):
        assert migrate_set({"spec": spec}).startswith("apiVersion: ")
