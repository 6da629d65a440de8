"""Which addresses a run may go to."""

from pathlib import Path
from typing import NamedTuple

import pytest

from reconciler.api.meta import ObjectMeta
from reconciler.api.porch import REPOSITORY, Repository
from reconciler.base.errors import ConfigurationError, Location
from reconciler.base.reasons import Reason
from reconciler.git.repository import Mirror, Mirrors
from reconciler.git.urls import parse_remote
from reconciler.inventory.inventory import Commit, RepositoryView, Source
from reconciler.names.ids import ObjectName, Oid
from reconciler.policy import CredentialRule, ForgeKind, ForgeRule, Policy
from reconciler.read.control import OpenControl
from reconciler.read.governance import (
    CONFIG_VARIABLE,
    SharedReads,
    address_check,
    is_allowed,
    policy_governor,
    read_merged_policy,
    read_options,
    read_policy,
    repository_check,
)
from reconciler.records.state import IMAGES_PATH
from tests.support.git import EPOCH, Repo, make_repository

REMOTE = "https://git.example/platform/control.git"
LOCAL = "/srv/git/control.git"


class Case(NamedTuple):
    control: str
    addresses: tuple[str, ...]
    remote: str
    allowed: bool


CASES = [
    Case(REMOTE, (), "https://other.example/a.git", True),
    Case(REMOTE, (), "ssh://git@other.example/a.git", True),
    Case(REMOTE, (), "git@other.example:a.git", True),
    Case(REMOTE, (), "http://other.example/a.git", False),
    Case(REMOTE, (), "http://169.254.169.254/latest", False),
    Case(REMOTE, (), "https://127.0.0.1/a.git", False),
    Case(REMOTE, (), "http://localhost:8080/a.git", False),
    Case(REMOTE, (), "/etc/a.git", False),
    Case(LOCAL, (), "/srv/git/a.git", True),
    Case(LOCAL, (), "http://localhost:8080/a.git", True),
    Case(LOCAL, (), "http://other.example/a.git", False),
    Case(REMOTE, ("http://git.svc/",), "http://git.svc/a.git", True),
    Case(REMOTE, ("http://git.svc/",), "http://git.svc.evil/a.git", False),
    Case(REMOTE, ("http://git.svc/",), "http://git.svc:8080/a.git", False),
    Case(REMOTE, ("https://git.example/acme",), "https://git.example/acme-evil/a.git", False),
    Case(REMOTE, ("https://git.example/acme",), "http://git.example/acme/a.git", False),
    Case(REMOTE, ("https://git.example/acme",), "https://other.example/a.git", False),
    Case(REMOTE, ("https://git.example/acme",), REMOTE, True),
    Case(REMOTE, ("/srv/git",), "/srv/git/a.git", True),
    Case(REMOTE, ("/srv/git",), "/srv/secret/a.git", False),
]


def view_of(address: str, name: str = "a") -> RepositoryView:
    manifest = Repository(api_version=REPOSITORY, kind="Repository", metadata=ObjectMeta(name=name))
    remote = parse_remote(address)
    place = Source(Location(f"{name}.yaml"))
    return RepositoryView(
        ObjectName("default", name), remote.url, remote.address, "main", "", manifest, place
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.remote} of {case.control} {case.addresses}")
def test_addresses_not_allowed_are_refused(case: Case, tmp_path: Path) -> None:
    control = Mirrors(tmp_path).open(case.control)
    view = view_of(case.remote)

    problem = address_check(Policy(addresses=case.addresses, config_path="c.yaml"), control)(view)

    if case.allowed:
        assert problem is None
        return
    assert problem is not None
    message = f"{view.remote} is not an address that the configuration allows; it was not read"
    hint = "Add its prefix to spec.addresses of c.yaml, if that is meant."
    assert problem == view.problem_at(Reason.REPOSITORY_REFUSED, message, hint)


@pytest.mark.parametrize(
    "host",
    [
        "localhost", "LOCALHOST.", "a.localhost", "127.0.0.2", "127.1", "2130706433", "0x7f.1", "0177.0.0.1",
        "0", "0.0.0.0", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[0:0::ffff:7f00:1]", "[fe80::1]",
        "169.254.169.254",
    ],
)  # fmt: skip
def test_this_machine_is_known_in_every_spelling(host: str, tmp_path: Path) -> None:
    control = Mirrors(tmp_path).open(REMOTE)

    for remote in (f"https://{host}/a.git", f"https://{host}:3000/a.git", f"ssh://git@{host}/a.git"):
        assert not is_allowed(remote, Policy(), control), remote
        assert is_allowed(remote, Policy(), Mirrors(tmp_path).open(LOCAL))
        assert is_allowed(remote, Policy(), None)  # a person names it
    others = ("10.0.0.1", "256.1.1.1", "localhost.example", f"{host.strip('.[]').replace(':', '-')}.example")
    for other in others:
        assert is_allowed(f"https://{other}/a.git", Policy(), control), other


NAMED = Policy(
    credentials=(CredentialRule("https://named.example", token_env="T"),),
    forges=(ForgeRule("https://forge.example", ForgeKind.GITEA),),
)


@pytest.mark.parametrize(
    ("control", "remote", "merged", "read"),
    [
        (REMOTE, "https://git.example/other.git", None, True),
        (REMOTE, "https://evil.example/a.git", None, False),
        (REMOTE, "https://evil.example/a.git", NAMED, False),
        (REMOTE, "https://named.example/a.git", NAMED, True),
        (REMOTE, "https://named.example/a.git", None, False),
        (REMOTE, "https://forge.example/a.git", NAMED, True),
        (REMOTE, "https://registered.example/a.git", NAMED, True),
        (REMOTE, "/srv/a.git", None, False),
        (LOCAL, "/srv/a.git", None, True),
        (LOCAL, "https://evil.example/a.git", None, False),
    ],
)
def test_unmerged_commit_reads_only_hosts_that_the_merged_configuration_names(
    tmp_path: Path, control: str, remote: str, merged: Policy | None, read: bool
) -> None:
    view = view_of(remote)
    registered = ["registered.example/a", "https://registered.example/a"]

    problem = repository_check(merged, Mirrors(tmp_path).open(control), registered)(view)

    message = f"{view.remote} is on a host that the merged configuration does not name; it was not read"
    hint = "Name its prefix in spec.credentials or spec.forges first, or merge without this comparison."
    assert problem == (None if read else view.problem_at(Reason.REPOSITORY_REFUSED, message, hint))


def test_defaults_govern_without_a_merged_configuration() -> None:
    proposed = Policy(instance="demo", addresses=("https://evil.example",), suspend=True)
    merged = Policy(instance="demo", addresses=("https://git.example",))

    assert policy_governor(merged)(proposed).addresses == merged.addresses
    assert policy_governor(None)(proposed).addresses == Policy().addresses
    assert policy_governor(None)(proposed).instance == "demo"
    assert policy_governor(None)(proposed).suspend


CONFIG = """\
apiVersion: reconciler.dev/v1alpha1
kind: Reconciler
metadata: {{name: {name}}}
spec: {{addresses: [{address}]{more}}}
"""


def config(name: str = "demo", address: str = "https://merged.example", more: str = "") -> str:
    return CONFIG.format(name=name, address=address, more=more)


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return make_repository(
        tmp_path / "control.git", {"reconciler.yaml": config(), "other.yaml": config("other")}
    )


def mirror_of(repo: Repo, name: str = "shared") -> Mirror:
    mirror = Mirrors(repo.path.parent / name).open(str(repo.path))
    mirror.fetch()
    return mirror


def opened(repo: Repo, oid: Oid, *, copy: bool = True) -> OpenControl:
    mirror = mirror_of(repo)
    objects = mirror_of(repo, "copy") if copy else mirror
    return OpenControl(mirror, objects, Commit(oid, EPOCH), "main", published=True)


def test_policy_is_read_from_the_configured_path(repo: Repo) -> None:
    control = opened(repo, repo.oid("main"))

    assert read_policy(control, {}).instance == "demo"
    assert read_policy(control, {CONFIG_VARIABLE: "other.yaml"}).instance == "other"
    assert read_policy(control, {CONFIG_VARIABLE: ""}).instance == "demo"
    with pytest.raises(ConfigurationError):
        read_policy(control, {CONFIG_VARIABLE: "gone.yaml"})


def test_configuration_over_the_limit_is_an_error_with_its_path(repo: Repo) -> None:
    big = repo.commit({"reconciler.yaml": config() + "#" * (2 << 20)})

    with pytest.raises(ConfigurationError, match="The configuration was not read: it has ") as caught:
        read_policy(opened(repo, big), {})

    assert caught.value.location == Location("reconciler.yaml")


IMAGES = '{"apiVersion": "reconciler.dev/v1alpha1", "images": {"gcr.io/x:v1": "sha256:%s"}}' % ("a" * 64)
REVIEWED = ", lock: {mode: reviewed}"


def test_locked_digests_of_images_are_policy_only_where_the_lock_is_reviewed(repo: Repo) -> None:
    for more, locked in ((REVIEWED, {"gcr.io/x:v1": f"sha256:{'a' * 64}"}), ("", {})):
        commit = repo.commit({"reconciler.yaml": config(more=more), IMAGES_PATH: IMAGES})
        assert read_policy(opened(repo, commit), {}).functions.images == locked
    commit = repo.commit({"reconciler.yaml": config(more=REVIEWED), IMAGES_PATH: "{"})
    with pytest.raises(ConfigurationError, match="The lock of function images cannot be read") as caught:
        read_policy(opened(repo, commit), {})
    assert caught.value.location == Location(IMAGES_PATH)
    assert caught.value.hint.startswith("Remove the file, and pin the images again")


def test_merged_policy_is_that_of_the_default_branch_if_it_is_readable(repo: Repo) -> None:
    merged = read_merged_policy(mirror_of(repo), {})
    assert merged is not None
    assert merged.addresses == ("https://merged.example",)
    repo.commit({"reconciler.yaml": "{"})
    assert read_merged_policy(mirror_of(repo), {}) is None
    repo.git.set_head("refs/heads/unborn")
    assert read_merged_policy(mirror_of(repo), {}) is None


def test_merged_commits_and_repositories_without_a_copy_propose_nothing(repo: Repo) -> None:
    old = repo.oid("main")
    tip = repo.commit({"x": "1"})
    alone = repo.commit({"reconciler.yaml": config(address="https://evil.example")}, branch="x", start="main")

    for oid, copy, governed in ((tip, True, False), (alone, False, False), (old, True, True)):
        control = opened(repo, oid, copy=copy)
        options = read_options(control, {})
        assert (options.control, options.is_proposed, options.notes) == (control, False, ())
        assert options.govern(NAMED).addresses == (("https://merged.example",) if governed else ())
        assert (options.govern(NAMED) is NAMED) is not governed
        assert options.check(view_of("https://evil.example/a")) is None


@pytest.mark.parametrize("readable", [True, False])
def test_unmerged_commit_is_governed_by_the_tip_and_reads_no_new_hosts(repo: Repo, readable: bool) -> None:
    oid = repo.commit({"reconciler.yaml": config(address="https://evil.example")}, branch="x", start="main")
    if not readable:
        repo.commit({"reconciler.yaml": "{"})

    options = read_options(opened(repo, oid), {})

    governed_by = "those of main" if readable else "the defaults, as main has no readable configuration"
    note = f"Commit {oid} is not merged: credentials, hosts, functions and limits are {governed_by}"
    assert (options.is_proposed, options.notes) == (True, (note,))
    addresses = ("https://merged.example",) if readable else ()
    assert options.govern(Policy(instance="demo", addresses=("https://evil.example",))).addresses == addresses
    assert options.check(view_of("https://evil.example/a")) is not None


def test_both_sides_of_a_change_read_once_what_depends_on_equal_values() -> None:
    reads, read = SharedReads(), []

    def ask(name: str, question: object) -> int:
        return reads.get(name, question, lambda: read.append((name, question)) or len(read))

    assert [ask("state", {"tip": "a"}), ask("state", {"tip": "a"})] == [1, 1]
    assert [ask("forges", {"tip": "a"}), ask("state", {"tip": "b"}), ask("forges", {"tip": "a"})] == [2, 3, 2]
    assert ask("state", None) == ask("state", None) == 4
