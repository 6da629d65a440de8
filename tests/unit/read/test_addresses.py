"""Two registrations of one repository: which address is read, whatever the names of objects and files."""

from collections.abc import Sequence
from itertools import permutations
from typing import NamedTuple

import pytest

from reconciler.api.meta import ObjectMeta
from reconciler.api.porch import REPOSITORY, GitRepository, Repository, RepositorySpec
from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.git.urls import parse_remote
from reconciler.inventory.inventory import RepositoryView, Source
from reconciler.names.ids import ObjectName
from reconciler.policy import CredentialRule, ForgeKind, ForgeRule, Policy, VerifyRule
from reconciler.read.repositories.discovery import settle_addresses
from tests.support.values import replace

HTTPS, HTTP = "https://git.example/acme/bp", "http://git.example/acme/bp.git"
SSH, SHORT = "ssh://git@git.example/acme/bp.git", "git@git.example:acme/bp"
OTHER_USER, PASSWORD = "ssh://eve@git.example/acme/bp", "https://me:pw@git.example/acme/bp"
CREDENTIAL = Policy(credentials=(CredentialRule("https://git.example", token_env="T"),))
FORGE = Policy(forges=(ForgeRule("http://git.example", ForgeKind.GITEA),))
VERIFY = Policy(verify=(VerifyRule("ssh://git.example/acme", ssh_keys=("k",)),))


def view_of(address: str, path: str, name: str = "a", line: int = 1) -> RepositoryView:
    meta, spec = ObjectMeta(name=name), RepositorySpec(type="git", git=GitRepository(repo=address))
    manifest = Repository(api_version=REPOSITORY, kind="Repository", metadata=meta, spec=spec)
    remote = parse_remote(address)
    return RepositoryView(
        ObjectName("default", name),
        remote.url,
        remote.address,
        "main",
        "",
        manifest,
        Source(Location(path, line)),
    )


class Case(NamedTuple):
    reason: str
    policy: Policy
    first: str
    second: str
    refused: bool = True


MANIFESTS = [
    Case("encrypted comes before clear", Policy(), HTTPS, HTTP),
    Case("ssh comes before clear", Policy(), SSH, HTTP),
    Case("what has a credential comes first", CREDENTIAL, HTTPS, SSH),
    Case("what has a forge comes first, even in the clear", FORGE, HTTP, HTTPS),
    Case("what a rule of verify names comes first", VERIFY, SSH, HTTPS),
    Case("the short form is ssh, too", VERIFY, SHORT, HTTPS),
    Case("two spellings of one way", Policy(), HTTPS, f"{HTTPS}.git/", refused=False),
    Case("two spellings of ssh", Policy(), SSH, SHORT, refused=False),
]
FILES = ["manifests/a.yaml", "manifests/team/b.yaml"]


def refused(views: Sequence[RepositoryView], policy: Policy, home: str = "") -> set[str]:
    settled = list(settle_addresses(views, policy, home))
    assert len(settled) == len(views)
    return {view.remote for view in settled if view.problem is not None}


@pytest.mark.parametrize("case", MANIFESTS, ids=lambda case: case.reason)
@pytest.mark.parametrize("files", list(permutations(FILES)))
@pytest.mark.parametrize("names", list(permutations(["aa", "zz"])))
def test_rules_tell_which_address_counts(case: Case, files: tuple[str, str], names: tuple[str, str]) -> None:
    first, second = view_of(case.first, files[0], names[0]), view_of(case.second, files[1], names[1])
    expected = {second.remote} if case.refused else set()

    assert refused([first, second], case.policy) == expected
    assert refused([second, first], case.policy) == expected


@pytest.mark.parametrize("second", [SSH, OTHER_USER, PASSWORD])
@pytest.mark.parametrize("names", list(permutations(["aa", "zz"])))
def test_else_the_first_by_file_and_line_counts(names: tuple[str, str], second: str) -> None:
    first, other = view_of(HTTPS, FILES[0], names[0], 9), view_of(second, FILES[0], names[1], 20)
    above, below = view_of(HTTPS, FILES[1], names[0]), view_of(second, FILES[0], names[1])

    for views in permutations([first, other]):
        (problem,) = (v.problem for v in settle_addresses(views, Policy(), "") if v.problem)
        assert (problem.reason, str(problem.location)) == (Reason.REPOSITORY_REFUSED, f"{FILES[0]}:20")
        assert f"is the repository that {FILES[0]}:9 registers as {HTTPS}" in problem.message
        assert "pw" not in problem.message
    for views in permutations([above, below]):
        ((found, _),) = ((v.source.location, v) for v in settle_addresses(views, Policy(), "") if v.problem)
        assert found == above.source.location


@pytest.mark.parametrize("policy", [Policy(), CREDENTIAL, FORGE])
@pytest.mark.parametrize("names", list(permutations(["aa", "zz"])))
@pytest.mark.parametrize("manifest", [HTTPS, HTTP, SSH])
def test_manifest_comes_before_a_snapshot(policy: Policy, names: tuple[str, str], manifest: str) -> None:
    mine = view_of(manifest, "z/repository.yaml", names[0])
    for address in {HTTPS, HTTP, SSH} - {manifest}:
        cluster = view_of(address, "snapshot/a.json", names[1])
        for views in permutations([mine, cluster]):
            assert refused(views, policy) == {cluster.remote}


def test_what_is_refused_already_does_not_count() -> None:
    first = view_of(HTTPS, FILES[0])
    gone = replace(first, problem=first.problem_at(Reason.REPOSITORY_REFUSED, "not allowed"))

    assert refused([gone, view_of(HTTP, FILES[1], "b")], Policy()) == {gone.remote}


def test_control_repository_is_read_as_the_run_was_told() -> None:
    views = [view_of(HTTPS, FILES[0]), view_of(SSH, FILES[1], "b")]

    assert refused(views, Policy(), home=views[0].url) == set()


def test_every_other_address_is_refused() -> None:
    views = [view_of(a, f"m/{n}.yaml", f"r{n}") for n, a in enumerate([HTTP, SSH, HTTPS, SHORT, PASSWORD])]
    for order in permutations(views):
        assert refused(order, Policy()) == {parse_remote(HTTP).address, HTTPS}
