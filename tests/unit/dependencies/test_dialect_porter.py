"""Porter's documents: three generations of dependencies into one model."""

from typing import Any

import pytest
import yaml

from reconciler.base.errors import Location
from reconciler.dependencies.dialects.porter import read_bundle, read_installation
from reconciler.dependencies.dialects.reading import ParsedManifest
from reconciler.dependencies.model.packages import (
    Actions,
    Candidate,
    Ecosystem,
    InterfaceNeed,
    PackageId,
    PackageNeed,
    Requirement,
    Share,
    Sharing,
)
from reconciler.dependencies.versions import parse_loose
from reconciler.inventory.inventory import Source

HERE = Source(Location("bundles/shop/porter.yaml", 1))


def bundle(requires: Any, **more: Any) -> ParsedManifest:
    return read_bundle({"name": "shop", "version": "1.0.0", "dependencies": requires, **more}, HERE)


def required(item: dict[str, Any]) -> Requirement:
    reading = bundle({"requires": [item]})
    assert reading.problems == ()
    (candidate,) = reading.candidates
    (requirement,) = candidate.requires
    return requirement


def only(reading: ParsedManifest) -> Candidate:
    assert reading.problems == ()
    return reading.candidates[0]


def test_a_sharing_group_shares_within_the_namespace_among_equal_inputs() -> None:
    def share(**parameters: object) -> Share:
        item = {"name": "db", "bundle": {"reference": "ghcr.io/acme/mysql", "version": "1.x"}}
        group = {"sharing": {"mode": True, "group": {"name": "shop"}}, "parameters": parameters}
        return required(item | group).share

    db = share(size=3, name="shop")

    assert (db.scope, db.group) == (Sharing.NAMESPACE, "shop")
    assert db == share(name="shop", size=3)
    assert db != share(name="shop", size=4)
    ((name, digest),) = db.inputs
    assert (name, len(digest)) == ("inputs", 16)


def test_sharing_mode_of_unknown_word_is_refused() -> None:
    item = {"name": "db", "bundle": {"reference": "acme/mysql:v1.0.0"}, "sharing": {"mode": "ture"}}
    (problem,) = bundle({"requires": [item]}).problems

    assert problem.message == "sharing.mode 'ture' is none of none, group, true and false"
    assert problem.hint == "Did you mean true?"


SCOPES = [
    ("no namespace means global", {}, Share(Sharing.GLOBAL)),
    ("the parent's namespace with labels is a shared scope",
        {"namespace": "{{ installation.namespace }}", "labels": {"app": "shop"}},
        Share(Sharing.NAMESPACE, labels=(("app", "shop"),))),
    ("a label with the parent's name makes it exclusive",
        {"namespace": "{{installation.namespace}}", "labels": {"owner": "{{ installation.name }}"}},
        Share(Sharing.EXCLUSIVE, labels=(("owner", "{{ installation.name }}"),))),
    ("a scope says it in a word", {"scope": "namespace"}, Share(Sharing.NAMESPACE)),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "share"), [row[1:] for row in SCOPES], ids=[row[0] for row in SCOPES])
def test_the_first_proposal_selects_by_namespace_and_labels(fields: dict[str, Any], share: Share) -> None:
    assert required({"name": "cache", **fields}).share == share


@pytest.mark.parametrize(
    ("lifecycle", "actions"),
    [
        (None, Actions(upgrade=False, invoke=False, uninstall=False)),
        ({"managed": True}, Actions()),
        ({"upgrade": True, "invoke": True, "uninstall": False}, Actions(uninstall=False)),
        ({"managed": True, "uninstall": False}, Actions(uninstall=False)),
    ],
)
def test_single_actions_win_over_managed(lifecycle: dict[str, Any] | None, actions: Actions) -> None:
    fields = {} if lifecycle is None else {"lifecycle": lifecycle}

    assert required({"name": "log", "reference": "acme/log", **fields}).actions == actions


def test_an_interface_is_matched_by_name_version_and_shape() -> None:
    asked = required(
        {
            "name": "db",
            "interface": {
                "name": "mysql",
                "version": "5.7.x",
                "outputs": [{"name": "connection-string", "type": "string"}],
            },
            "parameters": {"database-name": "shop"},
        }
    ).alternatives[0]
    reading = read_bundle(
        {
            "name": "azure-mysql",
            "version": "2.0.0",
            "dependencies": {"provides": [{"interface": "io.cnab.interfaces.mysql", "version": "5.7.12"}]},
            "outputs": [{"name": "connection-string", "type": "string"}],
            "parameters": [{"name": "database-name", "type": "string"}],
        },
        HERE,
    )
    (offered,) = only(reading).interfaces

    assert isinstance(asked, InterfaceNeed)
    assert asked.id == offered.id == "io.cnab.interface.mysql"
    assert offered.meets(asked)


def test_a_reference_beside_an_interface_is_its_default() -> None:
    db = required(
        {
            "name": "db",
            "bundle": {"reference": "acme/mysql:v1.0.0", "interface": {"id": "io.cnab.interface.mysql"}},
        }
    )

    assert isinstance(db.alternatives[0], InterfaceNeed)
    assert db.default is not None
    assert db.default.id == PackageId(Ecosystem.BUNDLE, "acme/mysql")


def test_the_oldest_list_and_the_extensions_of_bundle_json_mean_the_same() -> None:
    item = {"name": "db", "reference": "acme/mysql", "version": "v1.2.x"}
    plain = only(bundle({"requires": [item]})).requires
    oldest = bundle([item])
    extended = read_bundle(
        {
            "name": "shop",
            "version": "1.0.0",
            "custom": {"org.getporter.dependencies@v2": {"requires": {"db": item}}},
        },
        HERE,
    )

    assert only(oldest).requires == only(extended).requires == plain
    assert len(oldest.warnings) == 1
    assert extended.warnings == ()


INSTALLATION = """
schemaType: Installation
schemaVersion: 1.0.2
name: shop
namespace: prod
labels: {team: web}
bundle: {repository: ghcr.io/acme/shop, version: 1.2.0, digest: 'sha256:ab'}
custom:
  reconciler.dev/dependencies: {db: shared/mysql}
"""


def test_an_installation_is_a_wish_and_its_digest_comes_first() -> None:
    (shop,) = read_installation(yaml.safe_load(INSTALLATION), HERE).installs

    assert str(shop) == "Installation prod/shop"
    assert shop.need.range.allows(parse_loose("9.9.9"), "sha256:ab")
    assert shop.bindings == (("db", "shared/mysql"),)
    assert isinstance(shop.need, PackageNeed)


@pytest.mark.parametrize(
    ("item", "need"),
    [
        ({"reference": "acme/db", "version": {"ranges": ["1.x", "2.x"]}}, "acme/db 1.x || 2.x"),
        ({"reference": "acme/db", "version": {"ranges": ["1.x"]}}, "acme/db 1.x"),
        ({"reference": "acme/db", "version": {"prereleases": True}}, "acme/db"),
        ({"reference": "acme/db:latest"}, "acme/db"),
        ({"reference": "acme/db:1.0.0_5"}, "acme/db =1.0.0+5"),
        ({"bundle": "acme/db:1.0.0"}, "acme/db =1.0.0"),
        ({}, "db"),
    ],
)
def test_version_of_a_required_bundle_is_a_range_or_its_tag(item: dict[str, Any], need: str) -> None:
    assert str(required({"name": "db", **item})) == need


@pytest.mark.parametrize(
    ("fields", "needed"),
    [
        ({}, True),
        ({"default": ""}, False),
        ({"applyTo": ["upgrade"]}, True),
        ({"applyTo": ["add-user"]}, False),
        ({"source": {"output": "kubeconfig"}}, True),
        ({"source": {"output": "kubeconfig"}, "applyTo": ["add-user", "uninstall"]}, False),
        ({"source": {"dependency": "db", "output": "kubeconfig"}}, False),
    ],
)
def test_an_input_is_needed_where_the_actions_of_an_installation_lack_it(fields, needed) -> None:
    given, requires = {"name": "kubeconfig", **fields}, {"requires": [{"name": "db", "reference": "acme/db"}]}

    listed = only(bundle(requires, parameters=[given])).inputs

    assert [str(item) for item in listed] == ["parameter kubeconfig"] * needed


@pytest.mark.parametrize(
    ("source", "actions", "needed"),
    [
        ({"output": {"name": "tfstate"}}, ["upgrade", "uninstall"], False),
        ({"output": {"name": "tfstate"}}, ["install"], True),
        ({"dependencies.output": {"dependency": "db", "name": "url"}}, ["install"], False),
    ],
)
def test_the_sources_of_a_bundle_json_give_its_parameters(source, actions, needed) -> None:
    custom = {"io.cnab.parameter-sources": {"state": {"priority": [*source], "sources": source}}}
    parameters = {"state": {"definition": "state", "required": True, "applyTo": actions}}

    listed = only(bundle(None, parameters=parameters, custom=custom)).inputs

    assert [str(item) for item in listed] == ["parameter state"] * needed


def test_bundle_without_a_version_has_that_of_the_tag_of_its_reference() -> None:
    candidate = only(read_bundle({"name": "shop", "reference": "r.io/shop:v1.2.0"}, HERE))

    assert (candidate.id.name, candidate.version.text) == ("r.io/shop", "v1.2.0")
