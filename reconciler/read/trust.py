"""Verified revisions of upstream repositories: which refs and commits are signed with the configured keys."""

from collections.abc import Iterable, Iterator, Mapping

from reconciler.git.repository import Mirror, Mirrors
from reconciler.git.signatures import commit_fault, tag_fault
from reconciler.ids import Oid
from reconciler.inventory import Inventory, Trust, available_by_url
from reconciler.policy import VerifyRule, find_rule
from reconciler.refs import HEADS, TAGS

_MOST_BYTES = 1 << 20


def read_trust(inventory: Inventory, mirrors: Mirrors) -> Mapping[str, Trust]:
    """Return what is verified of every repository that a rule of `spec.verify` is about, by URL.

    Raises:
        UnavailableError: An object of a repository cannot be read.
    """
    if not inventory.policy.verify:
        return {}
    trust = {}
    locked = _locked_commits(inventory)
    for url, views in available_by_url(inventory.repositories.values()).items():
        rule = find_rule(inventory.policy.verify, views[0].remote)
        if rule is not None:
            mirror = mirrors.open(views[0].remote)
            trust[url] = _read(mirror, rule, (oid for oid in locked if mirror.has(oid)))
    return trust


def _locked_commits(inventory: Inventory) -> set[Oid]:
    """Return the commits that locks name: a branch or tag may not point to them any more."""
    reviewed = inventory.reviewed.pins if inventory.reviewed is not None else {}
    return {Oid(lock.commit) for lock in (*inventory.locks.values(), *reviewed.values())}


def _read(mirror: Mirror, rule: VerifyRule, locked: Iterable[Oid]) -> Trust:
    refs = {ref: oid for ref, oid in mirror.refs().items() if ref.startswith((HEADS, TAGS))}
    commits = {oid: _commit_fault(mirror, oid, rule) for oid in sorted({*refs.values(), *locked})}
    faults = dict(_ref_faults(mirror, refs, commits, rule))
    return Trust(
        commits=frozenset(oid for oid, fault in commits.items() if not fault),
        refs=frozenset(key for key, fault in faults.items() if not fault),
        faults={key: fault for key, fault in faults.items() if fault},
    )


def _commit_fault(mirror: Mirror, oid: Oid, rule: VerifyRule) -> str:
    if rule.signed == "tag":
        return "its commit does not count"
    fault = commit_fault(mirror.blob(oid, _MOST_BYTES), rule)
    return f"commit {oid[:12]} {fault}" if fault else ""


def _ref_faults(
    mirror: Mirror, refs: Mapping[str, Oid], commits: Mapping[Oid, str], rule: VerifyRule
) -> Iterator[tuple[tuple[str, Oid], str]]:
    """Yield every branch and tag by its short name and commit, with why it is not verified."""
    for ref, oid in sorted(refs.items()):
        name = ref.removeprefix(HEADS).removeprefix(TAGS)
        fault = commits[oid]
        if fault and rule.signed != "commit":
            of_tag = _tag_fault(mirror, ref, name, rule)
            of_commit = f", and {fault}" if rule.signed == "either" else ""
            fault = f"{of_tag}{of_commit}" if of_tag else ""
        yield (name, oid), fault


def _tag_fault(mirror: Mirror, ref: str, name: str, rule: VerifyRule) -> str:
    tag = mirror.tag_object(ref)
    if tag is None:
        return f"{name} is no signed tag"
    fault = tag_fault(mirror.blob(tag, _MOST_BYTES), name, rule)
    return f"tag {name} {fault}" if fault else ""
