"""One version's folder in the index: a header, the package's own manifest, its CRDs."""

from typing import Any, cast

import pytest

from reconciler.api.validation import field_text
from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.dependencies.catalog.index import read_package_version, repository_names
from reconciler.inventory.inventory import Source
from tests.support.sets import registered, repository

HEADER = {
    "apiVersion": "reconciler.dev/v1alpha1",
    "kind": "PackageVersion",
    "source": "x.io/acme/aws",
    "aliases": ["mirror.io/aws"],
    "version": "v1.2.0",
    "digest": f"sha256:{'ab' * 32}",
    "provides": ["sqs.io/v1/Queue"],
    "labels": {"team": "cloud"},
    "keywords": ["aws"],
}
META = {
    "apiVersion": "meta.pkg.crossplane.io/v1",
    "kind": "Provider",
    "metadata": {"name": "aws"},
    "spec": {"dependsOn": [{"provider": "x.io/base", "version": ">=v1.0.0"}]},
}


def folder(*documents: dict[str, Any]) -> list[tuple[dict[str, Any], Source]]:
    return [(d, Source(Location(f"index/aws/v1.2.0/{n}.yaml"))) for n, d in enumerate(documents)]


def test_label_of_a_version_that_is_no_boolean_is_refused() -> None:
    header = {**HEADER, "labels": {"team": "cloud", "reconciler.dev/retain": "ture"}}
    (problem,) = read_package_version(folder(header, META)).problems

    assert problem.reason is Reason.INVALID_ANNOTATION
    assert problem.hint == "Did you mean true?"


def test_a_folder_without_one_good_header_stalls_itself() -> None:
    for change, reason in (
        ({"version": "one"}, Reason.INVALID_VERSION),
        ({"provides": ["Queue"]}, Reason.INVALID_MANIFEST),
        ({"colour": "red"}, Reason.UNKNOWN_FIELD),
    ):
        reading = read_package_version(folder({**HEADER, **change}))
        assert {problem.reason for problem in reading.problems} == {reason}
        assert reading.candidates == ()


def test_a_manifest_says_more_of_an_interface_than_the_header() -> None:
    manifest = {"name": "mysql", "version": "1.0.0", "dependencies": {"provides": [{"interface": "mysql"}]}}
    head = HEADER | {"source": "r.io/mysql", "version": "1.0.0", "interfaces": {"mysql": "", "tls": ""}}

    (mysql,) = read_package_version(folder(head, manifest)).candidates
    assert [(i.id, i.is_declared) for i in mysql.interfaces] == [
        ("io.cnab.interface.mysql", False),
        ("io.cnab.interface.tls", True),
    ]


class Fields:
    """Marks that return the field itself as its position."""

    def mark(self, path: tuple[str | int, ...]) -> tuple[Any, int]:
        return field_text(path), 0


def told(*documents: dict[str, Any]) -> list[tuple[str, str]]:
    """Return field and message of each problem of a folder."""
    marked = Source(Location("f.yaml"), 0, cast("Any", Fields()))
    read = read_package_version((document, marked) for document in documents)
    assert not read.candidates
    return [(str(problem.location.line), problem.message) for problem in read.problems]


@pytest.mark.parametrize(
    ("fields", "path", "message"),
    [
        ({"ecosystem": "kpt"}, "ecosystem", "A kpt package is known by the tags of its repository"),
        ({"ecosystem": "helm"}, "ecosystem",
            "ecosystem must be 'xpkg', 'carvel', 'bundle' or 'kpt', but is the text 'helm'"),
        ({"provides": ["v1/Queue"]}, "provides", "'v1/Queue' is not group/version/Kind"),
        ({"interfaces": {"io.x": "a b"}}, 'interfaces["io.x"]', "'a b' is not a version"),
        ({"version": "main"}, "version", "'main' is not a version"),
        ({"digest": 1}, "digest", "digest must be a string, but is the number 1"),
        ({"more": 1}, "more", "Unknown field more"),
    ],
)  # fmt: skip
def test_wrong_field_of_a_header_is_told_at_its_place(fields, path, message) -> None:
    assert (path, message) in told(HEADER | fields)


def test_folder_has_exactly_one_header() -> None:
    assert told() == [("0", "A version's folder has one PackageVersion, not 0")]
    assert told(META) == [("", "A version's folder has one PackageVersion, not 0")]
    assert told(HEADER, HEADER) == [("", "A version's folder has one PackageVersion, not 2")]


def test_ecosystem_of_a_header_is_that_of_its_manifest() -> None:
    assert told(HEADER | {"ecosystem": "carvel"}, {"name": "a"}) == [
        ("ecosystem", f"The ecosystem is carvel, but its manifest is bundle:{HEADER['source']}'s")
    ]


def test_repository_has_the_address_that_is_absolute_or_else_the_lowest() -> None:
    addresses = {"host/a": ("../a", "https://host/a.git"), "host/b": ("../b", "../x/../a"), "": ("../c",)}
    views = [
        registered(f"{url}-{number}", git=git, url=url)
        for url, written in addresses.items()
        for number, git in enumerate(written)
    ]

    names = repository_names([*views, repository("plain")])

    assert names == {"host/a": "host/a", "host/b": "../a"}
    assert names == repository_names([repository("plain"), *reversed(views)])
