"""Crossplane's manifests: today's, the design's, and the ones that are gone."""

from typing import Any

import pytest

from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.dependencies.dialects.crossplane import flatten_lock, read_crossplane, read_lock, read_meta
from reconciler.dependencies.dialects.porter import read_bundle, read_installation
from reconciler.dependencies.dialects.reading import ParsedManifest, parse_source
from reconciler.dependencies.model.packages import (
    ActivationRequest,
    ApiNeed,
    Ecosystem,
    PackageId,
    PackageNeed,
    RevisionPolicy,
)
from reconciler.dependencies.versions import parse_loose
from reconciler.inventory.inventory import Source
from tests.support.values import replace

HERE = Source(Location("config/providers.yaml", 12))


def install(kind: str, package: str, **spec: Any) -> ParsedManifest:
    document = {
        "apiVersion": "pkg.crossplane.io/v1",
        "kind": kind,
        "metadata": {"name": "aws"},
        "spec": {"package": package, **spec},
    }
    return read_crossplane(document, HERE)


def meta(*depends: dict[str, Any], version: str = "v1.0.0", **spec: Any) -> ParsedManifest:
    document = {
        "apiVersion": "meta.pkg.crossplane.io/v1",
        "kind": "Configuration",
        "metadata": {"name": "platform"},
        "spec": {"dependsOn": list(depends), **spec},
    }
    return read_meta(document, HERE, image="xpkg.example.org/acme/platform", version=version)


@pytest.mark.parametrize("kind", ["Provider", "Configuration", "Function", "Package"])
def test_an_install_pins_what_its_image_says(kind: str) -> None:
    (aws,) = install(kind, "xpkg.example.org/acme/aws:v1.2.3").installs

    assert aws.need.id == PackageId(Ecosystem.XPKG, "xpkg.example.org/acme/aws")
    assert aws.need.range.allows(parse_loose("v1.2.3"))
    assert not aws.need.range.allows(parse_loose("v1.2.4"))
    assert str(aws) == f"{kind} aws"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("xpkg.io/Acme/aws", "xpkg.io/acme/aws"),
        ("xpkg.io/acme/aws/", "xpkg.io/acme/aws"),
        ("oci://xpkg.io/acme/aws", "xpkg.io/acme/aws"),
        (" xpkg.io/acme/aws", "xpkg.io/acme/aws"),
    ],
)
def test_name_that_no_registry_can_have_is_refused_wherever_it_is_written(written: str, meant: str) -> None:
    bundle = {"repository": written, "version": "1.0.0"}
    porter = {"schemaType": "Installation", "schemaVersion": "1.0.2", "name": "a", "bundle": bundle}
    parent = {
        "name": "a",
        "version": "1.0.0",
        "dependencies": {"requires": [{"name": "b", "reference": written}]},
    }

    readings = (
        install("Provider", f"{written}:v1.0.0"),
        meta({"provider": written, "version": "v1.0.0"}),
        read_installation(porter, HERE),
        read_bundle(parent, HERE),
    )

    told = [(problem.message, problem.hint) for reading in readings for problem in reading.problems]
    assert told == [(f"{written} is the name of no image", f"Write {meant}, if that is the image.")] * 4


def test_package_without_a_name_of_its_own_is_refused() -> None:
    nameless = {"metadata": {"generateName": "aws-"}, "spec": {"package": "x.io/aws:v1.0.0"}}

    reading = read_crossplane({"apiVersion": "pkg.crossplane.io/v1", "kind": "Provider", **nameless}, HERE)

    assert [str(problem.reason) for problem in reading.problems] == ["MissingField"]


def test_paused_package_is_locked_and_noted() -> None:
    (note,) = annotated("x.io/aws:v1.0.0", {"crossplane.io/paused": "true"}).warnings

    assert note.message == "It is paused: what is locked for it runs once it is resumed"


def test_settings_that_dependencies_inherit_have_one_spelling() -> None:
    secrets, account = [{"name": "s"}], {"annotations": {"role": "aws"}}
    design = {"imagePullSecrets": secrets, "imagePullPolicy": "Always", "serviceAccount": account}
    today = {
        f"package{name.removeprefix('image')}": value for name, value in design.items() if "Pull" in name
    }

    for spec in (design, {**today, "serviceAccount": account}):
        (aws,) = install("Provider", "x/y:v1.0.0", **spec).installs
        assert dict(aws.inherit) == {
            "packagePullPolicy": '"Always"',
            "packagePullSecrets": '[{"name":"s"}]',
            "serviceAccount": '{"annotations":{"role":"aws"}}',
        }


@pytest.mark.parametrize("kind", ["ClusterPackageInstall", "PackageInstall", "StackDefinition"])
def test_what_is_gone_is_refused_with_what_to_write_instead(kind: str) -> None:
    document = {"apiVersion": "packages.crossplane.io/v1alpha1", "kind": kind, "metadata": {"name": "old"}}
    (problem,) = read_crossplane(document, HERE).problems

    assert problem.reason == Reason.DEPRECATED_MANIFEST
    assert problem.location == HERE.location
    assert "Configuration" in problem.hint


DEPENDENCIES = [
    ({"provider": "x/aws", "version": ">=v1.0.0"}, "x/aws >=v1.0.0"),
    ({"configuration": "x/net", "version": "v1"}, "x/net v1"),
    ({"function": "x/patch", "version": "^1.2"}, "x/patch ^1.2"),
    ({"apiVersion": "pkg.crossplane.io/v1", "kind": "Provider", "package": "x/aws", "version": "*"},
        "x/aws *"),
    ({"package": "x/aws", "version": "sha256:ab"}, "x/aws sha256:ab"),
    ({"crd": {"apiVersion": "aws.example.org/v1", "kind": "Bucket"}}, "the API aws.example.org/v1/Bucket"),
    ({"crd": {"group": "aws.example.org", "version": "v1", "kind": "Bucket"}},
        "the API aws.example.org/v1/Bucket"),
    ({"crd": "net.io/v1/Vpc"}, "the API net.io/v1/Vpc"),
    ({"crd": "buckets.aws.example.org"}, "the API aws.example.org/buckets"),
    ({"package": "https://git.example.org/acme/aws.git", "version": ">=v1.0.0"},
        "https://git.example.org/acme/aws >=v1.0.0"),
]  # fmt: skip


@pytest.mark.parametrize(("written", "meant"), DEPENDENCIES)
def test_every_spelling_of_a_dependency(written: dict[str, Any], meant: str) -> None:
    reading = meta(written)
    (requirement,) = reading.candidates[0].requires

    assert str(requirement) == meant
    assert isinstance(requirement.alternatives[0], PackageNeed | ApiNeed)


GVK = {"apiVersion": "v1", "kind": "A"}
EXCLUSIVE = "A dependency names exactly one of package, crd and crossplane; this one names "
REFUSED = [
    ({}, f"{EXCLUSIVE}none of them"),
    ({"provider": "a", "package": "b"}, f"{EXCLUSIVE}provider and package"),
    ({"package": "a", "crossplane": ">=v1.0.0"}, f"{EXCLUSIVE}package and crossplane"),
    ({"crd": GVK, "crossplane": ">=v1.0.0"}, f"{EXCLUSIVE}crd and crossplane"),
    ({"package": "a", "crd": GVK}, f"{EXCLUSIVE}package and crd"),
    ({"crd": {"kind": "A"}}, "Missing required field spec.dependsOn[0].crd.apiVersion"),
]


@pytest.mark.parametrize(("written", "message"), REFUSED)
def test_a_dependency_that_cannot_be_meant_is_refused(written: dict[str, Any], message: str) -> None:
    reading = meta(written)

    assert [problem.message for problem in reading.problems] == [message]
    assert (reading.candidates, reading.problems[0].location) == ((), HERE.location)


LOCK = {
    "apiVersion": "pkg.crossplane.io/v1beta1",
    "kind": "Lock",
    "metadata": {"name": "lock"},
    "packages": [
        {
            "name": "platform-abc",
            "kind": "Configuration",
            "source": "x/platform",
            "version": "v1.0.0",
            "dependencies": [{"package": "x/aws", "constraints": ">=v1.0.0"}],
        },
        {"name": "aws-def", "source": "x/aws", "version": "sha256:ab"},
    ],
}


def test_the_lock_of_crossplane_is_what_was_chosen_before() -> None:
    candidates, reading = read_lock(LOCK, HERE)

    assert reading.problems == ()
    assert [(c.id.name, c.version.text, c.digest) for c in candidates] == [
        ("x/platform", "v1.0.0", ""),
        ("x/aws", "0.0.0", "sha256:ab"),
    ]
    assert str(candidates[0].requires[0]) == "x/aws >=v1.0.0"


def test_the_design_lock_has_a_spec_and_bare_names() -> None:
    design = {
        "apiVersion": "packages.crossplane.io/v1beta1",
        "kind": "PackageLock",
        "spec": {
            "packages": {"platform": {"image": "x/platform:v1.0.0", "dependencies": ["x/aws"]}},
            "customResourceDefinitions": {"buckets.aws": "aws"},
        },
    }
    candidates, reading = read_lock(design, HERE)

    assert reading.problems == ()
    assert [(c.id.name, c.version.text, str(c.requires[0])) for c in candidates] == [
        ("x/platform", "v1.0.0", "x/aws")
    ]
    assert flatten_lock(design)["customResourceDefinitions"] == {"buckets.aws": "aws"}


REVISIONS = [
    ("ProviderRevision", {"image": "x/y:v1.0.0"}),
    (
        "PackageRevision",
        {"customResourceDefinitions": [{"apiVersion": "a/v1", "kind": "B"}], "installJobRef": {}},
    ),
]


@pytest.mark.parametrize(("kind", "spec"), REVISIONS)
def test_revisions_are_accepted_as_they_are(kind: str, spec: dict[str, Any]) -> None:
    document = {
        "apiVersion": "pkg.crossplane.io/v1",
        "kind": kind,
        "metadata": {"name": "aws-1"},
        "spec": {"desiredState": "Active", "revision": 3, **spec},
    }

    assert read_crossplane(document, HERE).problems == ()


COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    "written",
    [
        "https://git.example.org/acme/aws:v1.2.3",
        "https://git.example.org/acme/aws.git@v1.2.3",
        "https://user@git.example.org/acme/aws.git#v1.2.3",
        "https://git.example.org:443/acme/aws?ref=v1.2.3",
        "git::https://git.example.org/acme/aws.git?depth=1&ref=v1.2.3",
        "git+https://git.example.org/acme/aws@v1.2.3",
        "git+ssh://git@git.example.org/acme/aws.git@v1.2.3",
        "ssh://git@git.example.org:22/acme/aws.git?ref=v1.2.3",
        "git://git.example.org/acme/aws:v1.2.3",
        "git@git.example.org:acme/aws.git:v1.2.3",
        "git@git.example.org:acme/aws@v1.2.3",
        "git.example.org/acme/aws.git:v1.2.3",
        "git.example.org/acme/aws?ref=v1.2.3",
        "https://git.example.org/acme/aws.git?ref=aws/v1.2.3",
    ],
)
def test_a_git_source_is_a_package_like_an_image(written: str) -> None:
    (aws,) = install("Package", written).installs

    assert aws.need.id.name == "https://git.example.org/acme/aws"
    assert aws.need.range.allows(parse_loose("v1.2.3"))
    assert not aws.need.range.allows(parse_loose("v1.2.4"))


@pytest.mark.parametrize(
    ("written", "parsed"),
    [
        (f"https://h.example.org/a.git@{COMMIT}", ("https://h.example.org/a", "", COMMIT)),
        ("https://h.example.org/mono.git//aws?ref=v1.0.0", ("https://h.example.org/mono//aws", "v1.0.0", "")),
        ("https://h.example.org/mono.git/aws@v1.0.0", ("https://h.example.org/mono//aws", "v1.0.0", "")),
        ("https://h.example.org:8443/a", ("https://h.example.org:8443/a", "", "")),
        ("file:///srv/git/a.git:v1.0.0", ("file:///srv/git/a", "v1.0.0", "")),
        ("git@h.example.org:a.git", ("https://h.example.org/a", "", "")),
        ("host:5000/a/b:v1@sha256:ab", ("host:5000/a/b", "v1", "sha256:ab")),
        ("aws@sha256:ab", ("aws", "", "sha256:ab")),
        ("x.example.org/digit:v1", ("x.example.org/digit", "v1", "")),
    ],
)
def test_a_source_has_a_name_a_version_and_a_digest(written: str, parsed: tuple[str, str, str]) -> None:
    assert parse_source(written) == parsed


def test_a_commit_is_a_pin_by_content() -> None:
    (aws,) = install("Package", f"https://git.example.org/acme/aws@{COMMIT}").installs

    assert aws.need.range.allows(parse_loose("v9.9.9"), COMMIT)
    assert not aws.need.range.allows(parse_loose("v9.9.9"), COMMIT[::-1])


def test_a_dependency_grants_nothing_and_metadata_decides_nothing() -> None:
    plain = meta({"provider": "x/aws", "version": ">=v1.0.0"})
    document = {
        "apiVersion": "meta.pkg.crossplane.io/v1",
        "kind": "Configuration",
        "metadata": {"name": "platform", "annotations": {"meta.crossplane.io/maintainer": "us"}},
        "spec": {
            "dependsOn": [{"provider": "x/aws", "version": ">=v1.0.0"}],
            "controller": {"permissionRequests": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]},
        },
    }
    noisy = read_meta(document, HERE, image="xpkg.example.org/acme/platform", version="v1.0.0")

    assert noisy.candidates == plain.candidates


def test_configuration_at_install_time_is_accepted_and_decides_nothing() -> None:
    configured = install("Provider", "x/y:v1.0.0", runtimeConfigRef={"name": "big"}, revisionHistoryLimit=0)
    (configured_one,), (plain,) = configured.installs, install("Provider", "x/y:v1.0.0").installs

    assert replace(configured_one, revisions=plain.revisions) == plain


def annotated(package: str, notes: dict[str, str], **spec: Any) -> ParsedManifest:
    metadata = {"name": "aws", "annotations": notes}
    document = {
        "apiVersion": "pkg.crossplane.io/v1",
        "kind": "Provider",
        "metadata": metadata,
        "spec": {"package": package, **spec},
    }
    return read_crossplane(document, HERE)


@pytest.mark.parametrize(
    ("spec", "policy"),
    [
        ({}, RevisionPolicy()),
        ({"revisionActivationPolicy": "Manual"}, RevisionPolicy(manual=True)),
        ({"revisionHistoryLimit": 0}, RevisionPolicy(history_limit=0)),
        ({"revisionHistoryLimit": 3}, RevisionPolicy(history_limit=3)),
    ],
)
def test_the_policy_of_revisions_is_the_packages_own(spec: dict[str, Any], policy: RevisionPolicy) -> None:
    (one,) = install("Provider", "x/y:v1.0.0", **spec).installs

    assert one.revisions == policy


def test_consent_to_take_over_and_to_let_go_is_an_annotation() -> None:
    notes = {
        "reconciler.dev/take-over": "x/old, x/older",
        "reconciler.dev/prune-orphaned-crds": "true",
        "reconciler.dev/prune-dependencies": "false",
    }
    (one,) = annotated("x/y:v1.0.0", notes).installs

    assert one.revisions == RevisionPolicy(take_over=("x/old", "x/older"), prune_kinds=True)
    assert one.prune_dependencies is False


def revision(name: str, image: str, state: str = "Active", **metadata: Any) -> ParsedManifest:
    document = {
        "apiVersion": "pkg.crossplane.io/v1",
        "kind": "ProviderRevision",
        "metadata": {"name": name, **metadata},
        "spec": {"desiredState": state, "image": image, "revision": 4},
    }
    return read_crossplane(document, HERE)


def test_a_revision_says_what_a_person_wants_to_run() -> None:
    labels = {"pkg.crossplane.io/package": "aws"}
    (one,) = revision("aws-1a2b", "x/aws:v1.0.0@sha256:abc", labels=labels).activations

    assert one == ActivationRequest(
        "ProviderRevision", "aws-1a2b", active=True, package="aws", image="x/aws:v1.0.0", digest="sha256:abc"
    )
    (off,) = revision("aws-1a2b", "x/aws:v1.0.0", "Inactive").activations
    assert off.active is False


def test_a_revision_that_was_generated_is_no_word_of_a_person() -> None:
    assert revision("a", "x/a:v1", annotations={"reconciler.dev/owner": "fleet/one"}).activations == ()


def test_a_revision_in_a_state_that_does_not_exist_is_refused() -> None:
    assert revision("a", "x/a:v1", "Sleeping").problems
