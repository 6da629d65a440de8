"""What is verified of a repository: the tags that are signed under their own names, however it is spelled."""

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest

from reconciler.git.repository import Mirrors
from reconciler.inventory.inventory import Trust
from reconciler.names.ids import Oid, normalise_url
from reconciler.policy import Policy, VerifyRule
from reconciler.read.governance import read_trust, unused_rules
from tests.support.signing import make_key, signing_options
from tests.support.world import IDENTITY


class Upstream(NamedTuple):
    """A repository of two commits, and the keys of its two signers.

    The tags `web/one` and `web/both` are signed with the first key, `web/two` with the second one.
    """

    path: Path
    keys: tuple[str, str]
    old: Oid
    new: Oid


def git(path: Path, *arguments: str, stdin: bytes = b"") -> str:
    environment = {**os.environ, **IDENTITY}
    command = ["git", *arguments]
    ran = subprocess.run(command, cwd=path, env=environment, input=stdin, capture_output=True, check=True)
    return ran.stdout.decode().strip()


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Upstream:
    root = tmp_path_factory.mktemp("trust")
    first, second, path = make_key(root / "first"), make_key(root / "second"), root / "up"
    path.mkdir()
    git(path, "init", "-q", "-b", "main", ".")
    git(path, *signing_options(first), "commit", "-q", "-S", "--allow-empty", "-m", "x")
    old = Oid(git(path, "rev-parse", "HEAD"))
    git(path, *signing_options(first), "tag", "-s", "-m", "x", "web/one")
    git(path, *signing_options(second), "tag", "-s", "-m", "x", "web/two")
    git(path, "tag", "-a", "-m", "x", "web/annotated")
    git(path, *signing_options(first), "commit", "-q", "-S", "--allow-empty", "-m", "y")
    git(path, "tag", "web/light")
    new = Oid(git(path, "rev-parse", "HEAD"))
    git(path, "update-ref", "refs/heads/refs/tags/web/branch", git(path, "rev-parse", "web/one^{commit}"))
    big = f"object {new}\ntype commit\ntag web/big\ntagger K <k@x> 1 +0000\n\n{'x' * (1 << 20)}\n"
    git(path, "update-ref", "refs/tags/web/big", git(path, "mktag", stdin=big.encode()))
    keys = (key.private.with_suffix(".pub").read_text().strip() for key in (first, second))
    return Upstream(path, (next(keys), next(keys)), old, new)


def inventory(upstream: Upstream, *rules: VerifyRule, locked: tuple[str, ...] = (), remote: str = "") -> Any:
    remote = remote or str(upstream.path)
    views = [
        SimpleNamespace(url=normalise_url(remote), remote=remote, is_available=True),
        SimpleNamespace(url="gone.example/up", remote="https://gone.example/up", is_available=False),
    ]
    return SimpleNamespace(
        policy=Policy(verify=rules),
        control=SimpleNamespace(remote=str(upstream.path.parent / "control")),
        repositories=dict(enumerate(views)),
        locks={number: SimpleNamespace(commit=oid) for number, oid in enumerate(locked)},
    )


def read(upstream: Upstream, tmp_path: Path, *rules: VerifyRule, **others: Any) -> Trust:
    (trust,) = read_trust(inventory(upstream, *rules, **others), Mirrors(tmp_path)).values()
    return trust


def test_only_tags_that_are_signed_under_their_name_are_verified(upstream: Upstream, tmp_path: Path) -> None:
    old, new = upstream.old, upstream.new
    gone = VerifyRule("https://gone.example", ssh_keys=upstream.keys)

    trust = read(upstream, tmp_path, gone, VerifyRule(str(upstream.path), ssh_keys=upstream.keys))

    assert trust == Trust(
        tags=frozenset({("web/one", old), ("web/two", old)}),
        faults={
            ("web/annotated", old): "tag web/annotated is not signed",
            ("web/big", new): "tag web/big cannot be read: it has 1048673 bytes, more than 1048576",
            ("web/light", new): "web/light is no signed tag",
        },
        older={},
    )


def test_every_rule_with_the_longest_prefix_must_be_satisfied(upstream: Upstream, tmp_path: Path) -> None:
    above = VerifyRule(str(upstream.path.parent), ssh_keys=upstream.keys)
    first, second = (VerifyRule(str(upstream.path), ssh_keys=(key,)) for key in upstream.keys)
    other = VerifyRule(f"file://{upstream.path}/.git/", ssh_keys=upstream.keys)

    def verified(*rules: VerifyRule) -> list[str]:
        return sorted(name for name, _ in read(upstream, tmp_path, *rules).tags)

    assert verified(above) == ["web/one", "web/two"]
    assert verified(above, first) == verified(first, above) == ["web/one"]
    assert verified(first, other) == verified(other, first) == ["web/one"]
    assert verified(first, second) == verified(second, first) == []


def test_locked_commit_knows_the_older_tags(upstream: Upstream, tmp_path: Path) -> None:
    rule, unknown = VerifyRule(str(upstream.path), ssh_keys=upstream.keys), "1" * 40

    trust = read(upstream, tmp_path, rule, locked=(upstream.new, upstream.old, unknown))

    assert trust.older == {upstream.new: {upstream.old}, upstream.old: frozenset()}


def test_nothing_is_read_without_a_rule(upstream: Upstream, tmp_path: Path) -> None:
    never = cast("Any", SimpleNamespace())
    elsewhere = VerifyRule("https://elsewhere.example", ssh_keys=upstream.keys)

    assert read_trust(inventory(upstream), never) == {}
    assert read_trust(inventory(upstream, elsewhere), Mirrors(tmp_path)) == {}


def test_rule_about_no_repository_is_told_with_its_line_and_the_nearest_address() -> None:
    def notes(*prefixes: str, remotes: tuple[str, ...] = ()) -> list[str]:
        rules = tuple(VerifyRule(p, ssh_keys=("k",), line=9 + n) for n, p in enumerate(prefixes))
        views = [SimpleNamespace(remote=remote) for remote in (*remotes, "")]
        control = SimpleNamespace(remote="https://git.example/acme/control")
        policy = Policy(verify=rules, config_path="c.yaml")
        return list(unused_rules(policy, cast("Any", control), cast("Any", views)))

    start = "is about no registered repository, so it verifies nothing"
    remotes = ("https://git.example/acme/blueprint", "ssh://git@git.example/acme/edge")
    assert notes() == notes("ssh://git.example", "../blueprint", remotes=remotes) == []
    nearest = "the nearest registered address is https://git.example/acme/blueprint"
    wrong = "https://git.example/acme/blueprints"
    assert notes(wrong, "git.example/acme", remotes=remotes) == [
        f"c.yaml:9: the rule of spec.verify for {wrong} {start}; {nearest}"
    ]
    assert notes("x") == [f"c.yaml:9: the rule of spec.verify for x {start}; none is registered"]
