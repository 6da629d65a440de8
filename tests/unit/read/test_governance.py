"""Which addresses a run may go to."""

from pathlib import Path
from typing import NamedTuple

import pytest

from reconciler.api.meta import ObjectMeta
from reconciler.api.porch import REPOSITORY, Repository
from reconciler.errors import Location, UnavailableError
from reconciler.git.repository import Mirrors
from reconciler.git.urls import parse_remote
from reconciler.ids import ObjectName
from reconciler.inventory import RepositoryView, Source
from reconciler.policy import Policy
from reconciler.read.governance import address_check
from reconciler.reasons import Reason

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


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.remote} of {case.control} {case.addresses}")
def test_addresses_not_allowed_are_refused(case: Case, tmp_path: Path) -> None:
    control = Mirrors(tmp_path).open(case.control)
    key = ObjectName("default", "a")
    manifest = Repository(api_version=REPOSITORY, kind="Repository", metadata=ObjectMeta(name="a"))
    remote = parse_remote(case.remote)
    view = RepositoryView(key, remote.url, remote.address, "main", "", manifest, Source(Location("a.yaml")))

    problem = address_check(Policy(addresses=case.addresses), control)(view)

    assert (problem and problem.reason) == (None if case.allowed else Reason.REPOSITORY_REFUSED)


@pytest.mark.parametrize("path", ["acme/../evil", "acme/%2e%2e/evil", "acme/./evil", ".."])
def test_address_with_a_similar_prefix_is_refused(path: str) -> None:
    with pytest.raises(UnavailableError, match="is not usable"):
        parse_remote(f"https://git.example/{path}")
