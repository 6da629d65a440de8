"""Changes by cause: equal changes of many packages fold into one group. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import NamedTuple

from msgspec import Struct

from reconciler.base.reasons import Reason
from reconciler.base.wording import plural, some
from reconciler.names.ids import PackageKey
from reconciler.plan.changes import Change
from reconciler.plan.impact import Impact, Risk
from reconciler.plan.status import PackageStatus
from reconciler.policy.risks import CONFLICT
from reconciler.report.summary import Names, change_risks, detail, row_reason

MOST_ROWS = 5
"""Changes of one cause that are listed each; more of them fold."""
MOST_NAMES = 3
MOST_SUBJECTS = 4
MOST_DIFFS = 10
_ELLIPSIS = "…"
_OF_ROLLOUT = frozenset({Reason.AWAITING_WAVE, Reason.ROLLED_BACK})
"""Reasons that name a rollout and no package: one row for all of a wave is enough."""


class Diff(NamedTuple):
    """Packages with equal differences, changed for one cause."""

    changes: tuple[Change, ...]
    impact: Impact | None


class FoldedChanges(Struct, frozen=True):
    """Changes of one cause with one `label`: what happens. The most frequent differences are first."""

    reason: Reason
    changes: tuple[Change, ...]
    detail: str
    diffs: tuple[Diff, ...]
    label: str = ""

    @property
    def first(self) -> Change:
        """The first change, an example of the others."""
        return self.changes[0]

    @property
    def is_folded(self) -> bool:
        """Whether there are several packages."""
        return len(self.changes) > 1

    @property
    def text(self) -> str:
        """The detail; of several packages also how many there are."""
        return "; ".join(part for part in (self.detail, self.extent if self.is_folded else "") if part)

    @property
    def risks(self) -> tuple[Risk, ...]:
        """Every risk of the changes, the worst first."""
        risks = {risk for change in self.changes for risk in change_risks(change) if change.impact}
        return tuple(sorted(risks, key=lambda risk: (risk.weight, risk)))

    @property
    def extent(self) -> str:
        """The number of packages, repositories and differences: `40 repositories, 3 distinct diffs`."""
        count = len({change.package.url for change in self.changes})
        where = plural(count, "repository")
        compared = sum(diff.impact is not None for diff in self.diffs)
        return f"{where}, {plural(compared, 'distinct diff')}" if compared else where


def fold_changes(
    changes: Sequence[Change],
    names: Names,
    statuses: Mapping[PackageKey, PackageStatus],
    *,
    unfolded: bool = False,
    labels: Mapping[PackageKey, str] | None = None,
    now: float = 0,
) -> list[FoldedChanges]:
    """Return the causes of changes that are in their order; the changes of a small group are its own causes.

    Args:
        changes: The changes as `sorted_changes` orders them.
        names: The names of their packages.
        statuses: The state of each package.
        unfolded: Every change is a cause of its own.
        labels: What happens to each package, where that is not its operation.
        now: The time from which ages count; 0 for dates.
    """
    details = {change.package: detail(change, statuses.get(change.package), now) for change in changes}
    places: dict[tuple[object, ...], int] = {}
    keyed: list[tuple[int, str, Reason, str, Change]] = []
    for index, change in enumerate(changes):
        reason = row_reason(change, statuses.get(change.package))
        text = details[change.package]
        if reason not in _OF_ROLLOUT:
            text = general_text(text, change, names)
        label = (labels or {}).get(change.package, str(change.op))
        key = (label, change.op, reason, text, frozenset(risk.category for risk in change_risks(change)))
        keyed.append((places.setdefault(key, index), label, reason, text, change))
    causes = []
    for _, members in groupby(sorted(keyed, key=lambda item: item[0]), key=lambda item: item[0]):
        group = list(members)
        _, label, reason, text, _ = group[0]
        alike = tuple(change for *_, change in group)
        if len(alike) == 1 or unfolded or (len(alike) <= MOST_ROWS and reason not in _OF_ROLLOUT):
            alone = ((c, details[c.package], (Diff((c,), c.impact),)) for c in alike)
            causes += [FoldedChanges(reason, (c,), text, diffs, label) for c, text, diffs in alone]
        else:
            shared = common_text([details[change.package] for change in alike], text)
            causes.append(FoldedChanges(reason, alike, shared, _diffs(alike), label))
    return causes


def common_text(texts: Iterable[str], otherwise: str) -> str:
    """Return the text that all changes share; `otherwise` where they differ."""
    distinct = set(texts)
    return distinct.pop() if len(distinct) == 1 else otherwise


def _diffs(changes: Iterable[Change]) -> tuple[Diff, ...]:
    by_digest: dict[str, list[Change]] = {}
    for change in changes:
        by_digest.setdefault(change.impact.digest if change.impact else "", []).append(change)
    diffs = [Diff(tuple(members), members[0].impact) for members in by_digest.values()]
    return tuple(sorted(diffs, key=lambda diff: -len(diff.changes)))


def equal_differences(
    changes: Iterable[Change], impacts: Mapping[PackageKey, Impact] = MappingProxyType({})
) -> list[list[Change]]:
    """Return the changes with equal differences together; changes without a difference are alone.

    Args:
        changes: The changes of packages.
        impacts: The differences of those that this run does not write.
    """
    groups: dict[object, list[Change]] = {}
    for change in changes:
        impact = change.impact or impacts.get(change.package)
        key = (change.op, impact.digest) if impact else change.package
        groups.setdefault(key, []).append(change)
    return list(groups.values())


def general_text(text: str, change: Change, names: Names) -> str:
    """Return a text about one package without its own names and the number of its pull request."""
    aliases = {names.of(change), change.package.path, change.repository.name}
    aliases |= {change.package.path.rpartition("/")[2], change.package.url}
    aliases |= {str(change.variant), change.variant.name} if change.variant else set()
    moved_from, upstream = change.upstream_from, change.upstream_to
    # The upstream is the cause itself, and often has the name of the package.
    head, joint, rest = text.partition("; ") if moved_from or upstream else ("", "", text)
    # Making a pattern is slow, and most texts have no name in them.
    there = sorted((name for name in aliases if name and name in rest), key=lambda name: (-len(name), name))
    pattern = "|".join((*map(re.escape, there), r"#\d+"))
    return head + joint + re.sub(rf"(?<![\w.-])(?:{pattern})(?![\w-])", _ELLIPSIS, rest)


def names_text(changes: Sequence[Change], names: Names) -> str:
    """Return the first names of packages, and how many more there are."""
    return some([names.of(change) for change in changes], MOST_NAMES)


def cause_name(cause: FoldedChanges, names: Names) -> str:
    """Return the packages of a cause in a cell: `312 packages: edge-1/web, edge-2/web and 310 more`."""
    packages = names_text(cause.changes, names)
    return f"{plural(len(cause.changes), 'package')}: {packages}" if cause.is_folded else packages


def impact_text(impact: Impact) -> str:
    """Return the size of a difference: `+4 -2 in 2 files`."""
    return f"+{impact.added} -{impact.removed} in {plural(impact.files, 'file')}"


def risk_texts(risks: Iterable[Risk]) -> list[str]:
    """Return a line for each class of risk: `rbac: adds ClusterRole web`; rows have conflicts already."""
    lines = []
    unlisted = (risk for risk in risks if risk.category != CONFLICT)
    for category, members in groupby(unlisted, key=lambda risk: risk.category):
        texts = [f"{risk.action} {risk.subject}" for risk in members]
        lines.append(f"{category}: {some(texts, MOST_SUBJECTS)}")
    return lines
