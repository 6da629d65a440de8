"""Carvel's manifests: both spellings of the proposal mean the same, and nothing is silently dropped."""

from typing import Any

import pytest
import yaml

from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.dependencies.dialects.carvel import package_id, read_carvel, read_kpt, version_of
from reconciler.dependencies.dialects.reading import ParsedManifest
from reconciler.dependencies.model.packages import (
    ApiNeed,
    Candidate,
    Dialect,
    Ecosystem,
    Gvk,
    PackageId,
    PackageNeed,
)
from reconciler.dependencies.versions import parse_relaxed
from reconciler.inventory.inventory import Source

HERE = Source(Location("config/app.yaml", 7))

HEAD = """
apiVersion: data.packaging.carvel.dev/v1alpha1
kind: Package
metadata: {name: web.example.org.1.2.0}
spec:
  refName: web.example.org
  version: 1.2.0
"""
AS_LIST = (
    HEAD
    + """
  dependencies:
  - or:
    - gvk: {apiVersion: certs.example.org/v1, kind: Issuer}
    - package: {refName: certs.example.org, version: '>=1.0.0'}
  - package: {refName: cache.example.org, version: 2.0.0}
  - package: {refName: metrics.example.org, version: 0.2.0}
    optional: true
    alias: metrics
  provides:
  - {apiVersion: web.example.org/v1, kind: Site}
"""
)
AS_MAP = (
    HEAD
    + """
  dependencies:
    packages:
    - or:
      - gvk: {group: certs.example.org, version: v1, kind: Issuer}
      - package: {refName: certs.example.org, version: '>=1.0.0'}
    - package: {refName: cache.example.org, version: 2.0.0}
    - package: {refName: metrics.example.org, version: 0.2.0}
      optional: true
      alias: metrics
  provides:
  - gvk: {apiVersion: web.example.org/v1, kind: Site}
"""
)


def read(text: str, **changes: Any) -> ParsedManifest:
    document = yaml.safe_load(text)
    document["spec"].update(changes)
    return read_carvel(document, HERE)


def only(reading: ParsedManifest) -> Candidate:
    assert reading.problems == ()
    (candidate,) = reading.candidates
    return candidate


def test_a_package_is_one_candidate_with_its_needs_in_order() -> None:
    web = only(read(AS_LIST))

    assert (web.id, web.version.text) == (PackageId(Ecosystem.CARVEL, "web.example.org"), "1.2.0")
    either, cache, metrics = web.requires
    assert [type(need) for need in either.alternatives] == [ApiNeed, PackageNeed]
    assert str(either) == "the API certs.example.org/v1/Issuer or certs.example.org >=1.0.0"
    assert str(cache) == "cache.example.org 2.0.0"
    assert (metrics.optional, metrics.alias) == (True, "metrics")
    assert web.provides == (Gvk("web.example.org", "v1", "Site"),)


def test_the_nested_spelling_means_the_same_and_is_warned_about() -> None:
    nested = read(AS_MAP)

    assert only(nested) == only(read(AS_LIST))
    assert read(AS_LIST).warnings == ()
    assert len(nested.warnings) == 2
    assert all(warning.location == HERE.location for warning in nested.warnings)


def test_a_bare_version_is_exact() -> None:
    cache = only(read(AS_LIST)).requires[1].alternatives[0]
    assert isinstance(cache, PackageNeed)

    assert cache.range.allows(parse_relaxed("2.0.0"))
    assert not cache.range.allows(parse_relaxed("2.0.1"))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"version": "one"}, Reason.INVALID_VERSION),
        ({"installationType": "twice"}, Reason.INVALID_MANIFEST),
        ({"dependencies": [{"optional": True}]}, Reason.INVALID_MANIFEST),
        ({"dependencies": [{"package": {"refName": "a"}, "or": []}]}, Reason.INVALID_MANIFEST),
        ({"dependencies": [{"package": {"refName": "a", "version": "^1"}}]}, Reason.INVALID_CONSTRAINT),
        ({"dependencies": [{"gvk": {"apiVersion": "v1"}}]}, Reason.MISSING_FIELD),
        ({"refName": None}, Reason.INVALID_MANIFEST),
    ],
)
def test_a_wrong_package_stalls_itself(changes: dict[str, Any], reason: Reason) -> None:
    reading = read(HEAD, **changes)

    assert reading.candidates == ()
    assert {problem.reason for problem in reading.problems} == {reason}
    assert all(problem.location == HERE.location and problem.subject for problem in reading.problems)


def test_a_range_that_can_never_match_is_warned_about() -> None:
    reading = read(HEAD, dependencies=[{"package": {"refName": "a", "version": "!=1.x"}}])

    assert any("No version can ever" in warning.message for warning in reading.warnings)


INSTALL = """
apiVersion: packaging.carvel.dev/v1alpha1
kind: PackageInstall
metadata:
  name: shop
  namespace: prod
  annotations: {packaging.carvel.dev/downgradable: ''}
spec:
  serviceAccountName: installer
  packageRef:
    refName: web.example.org
    versionSelection: {constraints: 1.x, prereleases: {identifiers: [rc]}}
  dependencies:
    install: false
    override:
    - refName: cache.example.org
      versionSelection: {contraints: 2.1.0}
    - refName: metrics.example.org
      install: true
    values:
    - refName: cache.example.org
      secretRef: {name: cache-values, key: values.yaml}
    - alias: metrics
      secretRef: {name: metrics-values}
"""


@pytest.mark.parametrize("field", ["paused", "canceled"])
def test_install_that_its_controller_passes_over_is_noted(field: str) -> None:
    document = yaml.safe_load(INSTALL)
    document["spec"] |= {field: True, "dependencies": {}}

    (note,) = read_carvel(document, HERE).warnings

    assert note.message == "It is paused: what is locked for it runs once it is resumed"


def test_the_misspelt_constraint_counts_and_is_warned_about() -> None:
    cache, _ = read(INSTALL).installs[0].overrides
    assert cache.range is not None
    assert not cache.range.allows(parse_relaxed("2.2.0"))
    assert [(w.message, w.hint) for w in read(INSTALL).warnings] == [
        ("contraints is read as constraints", "Correct the spelling")
    ]


def test_each_alternative_has_its_own_alias_or_that_of_its_group() -> None:
    inner = [{"package": {"refName": "c.io"}}, {"package": {"refName": "d.io"}, "alias": "last"}]
    either = [{"package": {"refName": "a.io"}, "alias": "first"}, {"or": inner, "alias": "group"}]
    (requirement,) = only(read(HEAD, dependencies=[{"or": either, "alias": "any"}])).requires

    assert [requirement.alias_of(place) for place in range(3)] == ["first", "group", "last"]
    (plain,) = only(read(HEAD, dependencies=[{"or": inner[:1], "alias": "any"}])).requires
    assert plain.alias_of(0) == "any"


def test_a_missing_version_selection_is_refused_and_an_empty_one_is_not() -> None:
    assert [p.reason for p in read(INSTALL, packageRef={"refName": "a.b"}).problems] == [Reason.MISSING_FIELD]
    assert read(INSTALL, packageRef={"refName": "a.b", "versionSelection": {}}).problems == ()


def test_a_package_inside_a_kpt_package_has_the_identity_of_its_directory() -> None:
    document = yaml.safe_load(AS_LIST)

    web = only(
        read_kpt(
            document, HERE, repository="https://git.example.org/blueprints", path="web/", revision="3.0.0"
        )
    )

    assert web.id == package_id("https://git.example.org/blueprints", "web")
    assert (web.version.text, web.names) == ("3.0.0", ("web.example.org",))
    first = web.requires[1].alternatives[0]
    assert isinstance(first, PackageNeed)
    assert first.range.dialect is Dialect.KPT
    spoilt = read_kpt({**document, "spec": ["x"]}, HERE, repository="r", path="", revision="3.0.0")
    assert (spoilt.candidates, bool(spoilt.problems)) == ((), True)
    assert [version_of(tag) for tag in ("v3", "v1.2.3", "1.0.0")] == ["3.0.0", "1.2.3", "1.0.0"]


def test_what_the_cluster_stores_is_read_like_what_a_person_writes() -> None:
    stored = yaml.safe_load(AS_LIST) | {"kind": "InternalPackage"}

    assert only(read_carvel(stored, HERE)) == only(read(AS_LIST))


def test_a_status_decides_nothing() -> None:
    document = yaml.safe_load(INSTALL)
    reported = document | {"status": {"dependencies": [{"packageInstallRef": "cache.example.org.9.9.9"}]}}

    assert read_carvel(reported, HERE).installs == read_carvel(document, HERE).installs
