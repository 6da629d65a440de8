from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.api.kptfile import KPTFILE, GitUpstream, KptfileHeader
from reconciler.base.errors import UnavailableError
from reconciler.functions.field_checks import check_kptfiles
from reconciler.git.repository import Mirrors
from reconciler.names.objects import File
from reconciler.read.repositories.trees import HeaderIndex, read_header
from reconciler.render.kptfile import stamp_kptfile
from reconciler.render.rendered import Blocked
from tests.support.git import kptfile, make_repository

WHOLE = b"""\
apiVersion: kpt.dev/v1
kind: Kptfile
metadata:
  name: nginx
  annotations:
    reconciler.dev/owner: default/default/pv
    reconciler.dev/location: edge/nginx
upstream:
  type: git
  git:
    repo: https://example.com/blueprints.git
    directory: /nginx
    ref: nginx/v2
  updateStrategy: resource-merge
upstreamLock:
  type: git
  git:
    repo: https://example.com/blueprints.git
    directory: /nginx
    ref: nginx/v2
    commit: 0123456789012345678901234567890123456789
info:
  description: anything else is of no interest
"""


def test_header_of_a_complete_kptfile() -> None:
    where = ("https://example.com/blueprints.git", "/nginx", "nginx/v2")

    assert read_header(WHOLE) == KptfileHeader(
        owner="default/default/pv",
        location="edge/nginx",
        upstream=GitUpstream(*where),
        upstream_lock=GitUpstream(*where, "0123456789012345678901234567890123456789"),
    )


def test_kptfile_of_more_values_than_any_needs_is_refused_wherever_it_is_read() -> None:
    data = WHOLE + b"pipeline: {x: [" + b"a," * 100_000 + b"]}\n"

    assert "100000 nodes" in read_header(data).error
    assert "100000 nodes" in check_kptfiles({KPTFILE: File.of(data)})[0].message
    stamped = stamp_kptfile({KPTFILE: File.of(data)}, name="web", pin=None, owner="o", location="l")
    assert isinstance(stamped, Blocked)
    assert "100000 nodes" in stamped.message


def test_number_is_read_as_written() -> None:
    header = read_header(
        b"kind: Kptfile\nmetadata: {annotations: {reconciler.dev/location: 007}}\n"
        b"upstream:\n  git: {repo: r, directory: 1e3, ref: 1.10}\n"
    )

    assert header.location == "007"
    assert header.upstream == GitUpstream("r", "1e3", "1.10")


@pytest.mark.parametrize(
    "data",
    [
        b"", b"# nothing\n", b"a: [", b"- list", b"kind: Deployment", b"kind: Kptfile\nkind: Kptfile",
        b"\xff\xfe\x00",
        b"kind: Kptfile\na: " + b"[" * 2000,
    ],
)  # fmt: skip
def test_invalid_header_is_a_problem(data: bytes) -> None:
    header = read_header(data)

    assert header.error
    assert header.owner == ""


@pytest.mark.parametrize(
    "more",
    [
        "upstream: x", "upstream: {git: []}", "upstreamLock: null", "upstream: {git: {repo: []}}",
        "metadata: 3",
    ],
)  # fmt: skip
def test_header_fields_of_another_type_are_absent(more: str) -> None:
    header = read_header(f"kind: Kptfile\n{more}\n".encode())

    assert header.error == ""
    assert header.upstream in {None, GitUpstream("", "", "")}


@given(st.binary(max_size=200))
def test_reading_a_header_raises_no_error(data: bytes) -> None:
    assert isinstance(read_header(data), KptfileHeader)
    assert isinstance(read_header(b"kind: Kptfile\nmetadata:\n" + data), KptfileHeader)


def test_equal_kptfiles_of_all_repositories_are_parsed_once(tmp_path: Path) -> None:
    mirrors = Mirrors(tmp_path / "cache")
    repos = [make_repository(tmp_path / name, {"p/Kptfile": WHOLE, "q/Kptfile": WHOLE}) for name in "ab"]
    index = HeaderIndex()

    for repo in repos:
        index.load(mirrors.open(str(repo.path)), [repo.blob(WHOLE)] * 2)

    header = index.header(repos[0].blob(WHOLE))
    assert header.location == "edge/nginx"
    assert header is index.header(repos[1].blob(WHOLE))


def test_too_large_kptfile_is_not_read(tmp_path: Path) -> None:
    repo = make_repository(tmp_path / "a")
    large = repo.blob(b"kind: Kptfile\n" + b"#" * (1 << 20))
    index = HeaderIndex()

    index.load(Mirrors(tmp_path / "cache").open(str(repo.path)), [large])

    assert "bytes" in index.header(large).error


class Batches:
    """A repository that refuses every batch with one of `absent`, as servers do, and none without."""

    def __init__(self, *absent: str) -> None:
        self.absent = absent
        self.asked: list[list[str]] = []

    def ensure(self, oids: list[str]) -> None:
        self.asked.append(list(oids))
        if missing := [oid for oid in oids if oid in self.absent]:
            raise UnavailableError(f"{missing[0]} is not there")

    def blob(self, oid: str, _: int) -> bytes:
        if oid == "lost":
            raise UnavailableError("lost is lost")
        return kptfile(location=oid).encode()


def loaded(batches: Batches, *oids: str) -> dict[str, KptfileHeader]:
    index = HeaderIndex()
    index.load(cast("Any", batches), cast("Any", [*oids, None]))
    return {oid: index.header(cast("Any", oid)) for oid in oids}


def test_kptfile_that_a_server_does_not_have_is_an_error_and_the_others_are_read() -> None:
    batches = Batches("b")

    assert loaded(batches, "a", "b", "c", "lost") == {
        "a": KptfileHeader(location="a"),
        "b": KptfileHeader(error="b is not there"),
        "c": KptfileHeader(location="c"),
        "lost": KptfileHeader(error="lost is lost"),
    }
    assert batches.asked == [["a", "b", "c", "lost"], ["a"], ["b"], ["c"], ["lost"]]


@pytest.mark.parametrize("oids", [["a"], ["a", "b"]])
def test_repository_of_which_no_kptfile_can_be_fetched_is_unavailable(oids: list[str]) -> None:
    with pytest.raises(UnavailableError, match=r"^a is not there$"):
        loaded(Batches(*oids), *oids)


def test_package_with_a_malformed_tree_has_no_kptfile() -> None:
    assert HeaderIndex().header(None) == KptfileHeader(error="its tree is malformed")
