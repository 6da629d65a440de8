"""What is verified of a repository: its commits, branches and tags, by which objects are signed."""

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple, cast

import pytest

from reconciler.git.repository import Mirrors
from reconciler.ids import Oid, normalise_url
from reconciler.inventory import Trust
from reconciler.policy import Policy, VerifyRule
from reconciler.read.trust import read_trust
from tests.support.signing import Key, make_key, signing_options
from tests.support.world import IDENTITY


class Upstream(NamedTuple):
    """A repository of an unsigned and two signed commits; nothing points to the last one.

    Branch `old` and the tags `web/signed` and `web/annotated` are at the unsigned commit, branch `main` and
    the tag `web/light` at the signed one.
    """

    path: Path
    key: str
    plain: Oid
    signed: Oid
    loose: Oid


def git(path: Path, *arguments: str) -> str:
    environment = {**os.environ, **IDENTITY}
    ran = subprocess.run(["git", *arguments], cwd=path, env=environment, capture_output=True, check=True)
    return ran.stdout.decode().strip()


def commit(path: Path, *options: str, key: Key | None = None) -> Oid:
    git(path, *(signing_options(key) if key else ()), "commit", "-q", "--allow-empty", "-m", "x", *options)
    return Oid(git(path, "rev-parse", "HEAD"))


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Upstream:
    root = tmp_path_factory.mktemp("trust")
    key, path = make_key(root / "key"), root / "up"
    path.mkdir()
    git(path, "init", "-q", "-b", "main", ".")
    plain = commit(path)
    git(path, "branch", "old")
    git(path, *signing_options(key), "tag", "-s", "-m", "x", "web/signed")
    git(path, "tag", "-a", "-m", "x", "web/annotated")
    signed = commit(path, "-S", key=key)
    git(path, "tag", "web/light")
    git(path, "update-ref", "refs/notes/more", plain)
    loose = commit(path, "-S", "--amend", key=key)
    git(path, "reset", "-q", "--hard", signed)
    return Upstream(path, key.private.with_suffix(".pub").read_text().strip(), plain, signed, loose)


def inventory(
    upstream: Upstream, *rules: VerifyRule, locked: tuple[str, ...] = (), reviewed: tuple[str, ...] = ()
) -> Any:
    remote = str(upstream.path)
    views = [
        SimpleNamespace(url=normalise_url(remote), remote=remote, is_available=True),
        SimpleNamespace(url="other.example/up", remote="https://other.example/up", is_available=True),
        SimpleNamespace(url="gone.example/up", remote="https://gone.example/up", is_available=False),
    ]
    locks = {number: SimpleNamespace(commit=oid) for number, oid in enumerate(locked)}
    pins = {number: SimpleNamespace(commit=oid) for number, oid in enumerate(reviewed)}
    return SimpleNamespace(
        policy=Policy(verify=rules),
        repositories=dict(enumerate(views)),
        locks=locks,
        reviewed=SimpleNamespace(pins=pins) if reviewed else None,
    )


def rule(upstream: Upstream, signed: Literal["either", "tag", "commit"]) -> VerifyRule:
    return VerifyRule(str(upstream.path.parent), signed, ssh_keys=(upstream.key,))


def test_branches_and_tags_are_verified_by_their_commit_or_their_tag(
    upstream: Upstream, tmp_path: Path
) -> None:
    plain, signed = upstream.plain, upstream.signed
    unsigned = f"commit {plain[:12]} is not signed"

    def read(how: Literal["either", "tag", "commit"]) -> Trust:
        gone = VerifyRule("https://gone.example", ssh_keys=(upstream.key,))
        every = read_trust(inventory(upstream, gone, rule(upstream, how)), Mirrors(tmp_path / how))
        assert every.keys() == {normalise_url(str(upstream.path))}
        return every[normalise_url(str(upstream.path))]

    assert read("commit") == Trust(
        commits=frozenset({signed}),
        refs=frozenset({("main", signed), ("web/light", signed)}),
        faults=dict.fromkeys([("old", plain), ("web/signed", plain), ("web/annotated", plain)], unsigned),
    )
    assert read("tag") == Trust(
        commits=frozenset(),
        refs=frozenset({("web/signed", plain)}),
        faults={
            ("main", signed): "main is no signed tag",
            ("old", plain): "old is no signed tag",
            ("web/light", signed): "web/light is no signed tag",
            ("web/annotated", plain): "tag web/annotated is not signed",
        },
    )
    assert read("either") == Trust(
        commits=frozenset({signed}),
        refs=frozenset({("main", signed), ("web/light", signed), ("web/signed", plain)}),
        faults={
            ("old", plain): f"old is no signed tag, and {unsigned}",
            ("web/annotated", plain): f"tag web/annotated is not signed, and {unsigned}",
        },
    )


def test_commit_of_a_lock_counts_without_a_branch_or_tag(upstream: Upstream, tmp_path: Path) -> None:
    def verified(**locks: tuple[str, ...]) -> frozenset[Oid]:
        read = read_trust(inventory(upstream, rule(upstream, "commit"), **locks), Mirrors(tmp_path))
        (trust,) = read.values()
        return trust.commits

    unknown = "1" * 40
    assert verified() == {upstream.signed}
    assert verified(locked=(upstream.loose, unknown)) == {upstream.signed, upstream.loose}
    assert verified(reviewed=(upstream.loose, upstream.plain)) == {upstream.signed, upstream.loose}


def test_nothing_is_read_without_a_rule(upstream: Upstream) -> None:
    never = cast("Any", SimpleNamespace())

    assert read_trust(inventory(upstream), never) == {}
    elsewhere = VerifyRule("https://elsewhere.example", ssh_keys=(upstream.key,))
    assert read_trust(inventory(upstream, elsewhere), never) == {}
