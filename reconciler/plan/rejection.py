"""Rejected content (D14): how it is recognised, and how people ask to have it proposed again."""

import re
from collections.abc import Container, Iterator, Sequence

from reconciler.base.lazy import regex
from reconciler.base.reasons import Phase
from reconciler.base.values import whole_number
from reconciler.expand import DesiredVariant
from reconciler.inventory.inventory import Inventory, PackageState, PullRequest, PullRequests, PullState
from reconciler.names.ids import ObjectName, Oid
from reconciler.names.objects import Commit
from reconciler.names.refs import DRAFTS
from reconciler.plan.context import PlanTarget, by_weight
from reconciler.records.state import PackageVariantRecord
from reconciler.resolve.deliveries import RETRY, cluster_of
from reconciler.resolve.resolution import ResolvedVariant

_SHORT = 12


def find_rejection(
    target: PlanTarget, resolved: ResolvedVariant, record: PackageVariantRecord | None, tree: Oid
) -> str:
    """Return why a package without a draft must not be proposed again as `tree`; empty if it may be.

    Only what was proposed for exactly these inputs can have been rejected, and here: that we closed what was
    proposed at a place which a variant left, and comes back to, rejects nothing. What main had once is
    rejected if main went back to an older state of the package; a state that main never had, for example a
    person's fix of a value that we manage, rejects nothing. What main never had is rejected if its
    pull request was closed. What is generated for a cluster stays as people make it: there every other
    state on main is a rejection.
    """
    if record is None or (record.inputs, record.output_tree) != (resolved.inputs, tree):
        return ""
    if (record.url, record.path) != target.key or record.branch not in ("", target.view.branch):
        return ""
    prefix = f"{DRAFTS}{target.package.path}/"
    pulls = PullRequests.of(target.pulls)
    pull = max((*pulls.below(prefix), *pulls.at(record.group)), key=by_weight, default=None)
    was_closed = pull is not None and pull.state is PullState.CLOSED
    if any(state == tree for state, _ in _states(target.package)):
        if _went_back(target.package, tree):
            newer = _split(target.package, tree)[1]
            commit = next((commit for state, commit in newer if state == target.package.main_tree), None)
            where = f" in {commit.oid[:_SHORT]}" if commit else ""
            return f"This content was reverted on main{where}"
        if cluster_of(resolved.variant.key):
            return "People changed on main what was generated"
        # Main had it since: a pull request that was closed counts only if it proposed it onto this main.
        was_closed = was_closed and record.local_tree == (resolved.local or "")
    return closed_text(pull) if was_closed and pull is not None else ""


def was_seen_rejected(variant: ObjectName, inventory: Inventory) -> bool:
    """Whether an earlier run recorded the rejection: people decided, and are not asked again.

    Between two rejections a package is in review, so that each is asked about once.
    """
    status = inventory.statuses.get(variant)
    return status is not None and status.phase == Phase.REJECTED


def closed_text(pull: PullRequest) -> str:
    """Return that a person closed a pull request."""
    return f"Its pull request #{pull.number} was closed"


def retry_text(variant: DesiredVariant, recorded: str = "") -> str:
    """Return what to write, and where, to have rejected content proposed again.

    `recorded` is the value that the record keeps, if this run does not record that of the annotation.
    """
    value = str((whole_number(variant.annotations.get(RETRY, recorded)) or 0) + 1)
    if cluster_of(variant.key):
        owner = f"Repository {variant.spec.downstream.repo if variant.spec.downstream else ''}"
    elif variant.set_key is not None:
        owner = f"PackageVariantSet {variant.set_key}"
    else:
        owner = f"PackageVariant {variant.key}"
    if variant.requested_by:
        return f"It is proposed again when it changes, or when a {owner} with another {RETRY} declares it"
    return (
        f"It is proposed again when it changes, or when annotation {RETRY}: "
        f'"{value}" is set on {owner} in {variant.source.location.path}'
    )


def _states(package: PackageState) -> Iterator[tuple[Oid, Commit]]:
    """Yield what main had of the package, oldest first: its revisions, then what no tag names yet."""
    numbered = (revision for revision in package.published if revision.revision > 0)
    yield from ((r.tree, r.commit) for r in sorted(numbered, key=lambda r: r.revision))
    yield from ((state.tree, state.commit) for state in package.unpublished)


def _went_back(package: PackageState, tree: Oid) -> bool:
    """Whether main left `tree` for what it had before, or for nothing at all."""
    if package.main_tree is None:
        return True
    return any(state == package.main_tree for state, _ in _split(package, tree)[0])


def _split(
    package: PackageState, tree: Oid
) -> tuple[Sequence[tuple[Oid, Commit]], Sequence[tuple[Oid, Commit]]]:
    """Return the states of main before it had `tree` for the last time, and those after it."""
    states = list(_states(package))
    last = max(index for index, (state, _) in enumerate(states) if state == tree)
    return states[:last], states[last + 1 :]


_BOX = regex(r"^- \[(?P<mark>[ xX])\] <!-- reconciler:ask (?P<key>[0-9a-f]{16}) -->", re.MULTILINE)


def dashboard_key(instance: str) -> str:
    """Return the name that finds the dashboard of an instance again."""
    return f"dashboard/{instance}"


def dashboard_title(instance: str) -> str:
    """Return the title of the dashboard of an instance, as it is opened."""
    return f"Dashboard of {instance}"


def ask_box(key: str) -> str:
    """Return an empty checkbox that asks for `key`, as Markdown."""
    return f"- [ ] <!-- reconciler:ask {key} -->"


def asked_keys(text: str) -> frozenset[str]:
    """Return the keys of ticked boxes in a dashboard. Total: other text is ignored."""
    lines = text.replace("\r\n", "\n")
    return frozenset(match["key"] for match in _BOX.finditer(lines) if match["mark"] != " ")


def tick_boxes(text: str, keys: Container[str]) -> str:
    """Return a dashboard with the boxes of these keys ticked."""
    return _BOX.sub(lambda m: m[0].replace("[ ]", "[x]", 1) if m["key"] in keys else m[0], text)
