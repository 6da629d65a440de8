"""`check` of a person's branch of the control repository, compared with the plan once it is merged."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.support.combination.fleet import Fleet
from tests.support.world import Said

if TYPE_CHECKING:
    from tests.support.combination.life import Life

BRANCH = "people/change"
UNAVAILABLE = 5
UNREAD = ("RepositoryUnavailable", "RepositoryEmpty")


@dataclass(frozen=True)
class Proposal:
    """What `check` printed about a branch, its exit code, and the repository that could not be read then."""

    value: Mapping[str, Any]
    code: int
    away: str = ""


def propose(life: "Life", change: Callable[[], None]) -> Said | None:
    """Put a change of the control repository on a branch, check it, and merge it; None without a change.

    Args:
        life: Whose command runs; its `away` names a Repository that cannot be read during the check.
        change: Commits to main of the control repository.
    """
    control = life.fleet.repos["control"]
    before = control.oid("main")
    change()
    after = control.oid("main")
    if before == after:
        return None
    control.point(f"refs/heads/{BRANCH}", after)
    control.point("refs/heads/main", before)
    try:
        with hidden(life.fleet, life.away):
            return life.command("check", "--head", BRANCH, "-o", "json")
    finally:
        control.point("refs/heads/main", after)
        control.delete(f"refs/heads/{BRANCH}")


@contextmanager
def hidden(fleet: Fleet, repository: str) -> Iterator[None]:
    """Let a Repository be away, none where it has no name or is the control repository itself."""
    if not repository or fleet.spec.layout == "mono":
        yield
        return
    path = fleet.repo(repository).path
    away = path.with_suffix(".away")
    path.rename(away)
    try:
        yield
    finally:
        away.rename(path)


def check_proposal(proposal: Proposal, before: Mapping[str, Any], merged: Mapping[str, Any]) -> Iterator[str]:
    """What `check` said of a branch is what the plan does once the branch is merged.

    Args:
        proposal: What it said.
        before: The plan of the settled fleet before the branch.
        merged: The plan after the branch was merged, of the run that applies it.
    """
    checked = proposal.value
    if not checked:
        return
    planned = {_name(change): change for change in merged.get("changes", ()) if change["pending"]}
    shown = {
        _name(difference["after"]): difference["after"]
        for difference in checked["packages"]
        if difference["what"] != "withdraw" and difference["after"]["op"] != "block"
    }
    if proposal.away or checked["notRead"]:
        if planned.keys() - shown.keys() and not (checked["notRead"] and proposal.code == UNAVAILABLE):
            names = sorted(planned.keys() - shown.keys())
            yield f"check without {proposal.away} exits {proposal.code}, and merging changes {names}"
        return
    for name in sorted(planned.keys() | shown.keys()):
        left, right = _effect(shown.get(name)), _effect(planned.get(name))
        if left != right:
            yield f"check says {left} of {name}, and the merged commit does {right}"
    yield from _problems(checked, before, merged)


def _name(change: Mapping[str, Any]) -> tuple[str, str]:
    return change["package"]["url"], change["package"]["path"]


def _effect(change: Mapping[str, Any] | None) -> tuple[Any, ...]:
    if change is None:
        return ("nothing",)
    return change["op"], change["reason"], change["after"], len(change["conflicts"])


def _problems(
    checked: Mapping[str, Any], before: Mapping[str, Any], merged: Mapping[str, Any]
) -> Iterator[str]:
    earlier, later = _identities(before.get("problems", ())), _identities(merged.get("problems", ()))
    for what, shown, real in (
        ("a new problem", _identities(checked["problems"]), later - earlier),
        ("an ended problem", _identities(checked["fixedProblems"]), earlier - later),
    ):
        if shown != real:
            yield f"check and plan differ about {what}: {sorted(shown ^ real)}"


def _identities(problems: Collection[Mapping[str, Any]]) -> set[tuple[str, str, str, str]]:
    return {
        (p["location"]["path"], p["reason"], p["subject"], p["message"])
        for p in problems
        if p["reason"] not in UNREAD
        and " would not be ready: " not in p["message"]  # `check` alone asks that
    }
