"""Packages of the HTML report: a row for each with its state, conditions, history and origins of fields."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import orjson
from msgspec import Struct, field

from reconciler.apply.upstream_log import known_bases, local_origins
from reconciler.dependencies.status import status_entries
from reconciler.expand import expand
from reconciler.names.ids import ObjectName, Oid, PackageKey
from reconciler.names.objects import Files
from reconciler.plan.changes import Change, Op
from reconciler.plan.context import PlanTarget
from reconciler.plan.status import PackageStatus
from reconciler.read.contents import fetch_contents
from reconciler.report.conflicts import conflict_texts
from reconciler.report.folding import risk_texts
from reconciler.report.history import HistoryEntry
from reconciler.report.html import PackageRow
from reconciler.report.overview import PackageOverview, package_overviews
from reconciler.report.provenance import Origin, find_origins
from reconciler.report.status import Owner, condition, package_name
from reconciler.report.summary import change_risks, row_reason
from reconciler.resolve import Needs
from reconciler.run.explain import package_stages, read_entry
from reconciler.run.plan import PlannedRun

MOST_REVISIONS: Final = 10
"""Revisions in the history of one package."""
MOST_COMMITS: Final = 20_000
"""Revisions of all packages together; each has at least its newest two."""


class PackageSources(Struct, frozen=True):
    """Values from which the rows of packages are made.

    `statuses` are the states to show, `status_files` the files of the status branch with the same states.
    `labels` name what happens to packages where that is not the operation, `other` what happens to the rest.
    """

    planned: PlannedRun
    statuses: Sequence[PackageStatus]
    status_files: Mapping[str, bytes]
    differences: Mapping[PackageKey, int] = field(default_factory=dict)
    causes: Mapping[PackageKey, int] = field(default_factory=dict)
    labels: Mapping[PackageKey, str] | None = None
    other: str = ""


def package_rows(changes: Sequence[Change], sources: PackageSources) -> tuple[PackageRow, ...]:
    """Return a row for each change in their order, then for each owner without a package that has a state."""
    reader = _RowReader(changes, sources)
    return (*map(reader.row, changes), *reader.others())


class _RowReader:
    """Values of the whole fleet that rows need, each computed once."""

    def __init__(self, changes: Sequence[Change], sources: PackageSources) -> None:
        self._sources = sources
        self._inputs = sources.planned.inputs
        self._names = sources.planned.names
        self._variants = {status.variant for status in sources.statuses if status.package}
        self._statuses = {status.package: status for status in sources.statuses if status.package}
        self._overviews = package_overviews(sources.planned.plan, sources.statuses)
        self._owners = _owners(sources.status_files)
        self._conditions = {_owner_key(o): _conditions(o) for o in self._owners if o.get("kind") == _VARIANT}
        self._origins = _find_origins(changes, sources.planned)
        self._revisions = max(2, min(MOST_REVISIONS, MOST_COMMITS // max(1, len(changes))))

    def row(self, change: Change) -> PackageRow:
        sources, status = self._sources, self._statuses.get(change.package)
        overview = self._overviews.get((change.variant, change.package)) if change.variant else None
        repository, _, name = self._names.of(change).partition("/")
        conditions = self._conditions.get(change.variant, ()) if change.variant else ()
        target = self._target(change)
        history = package_stages(target.package) if target else []
        return PackageRow(
            repository,
            name,
            **_overview_fields(overview, change),
            **_status_fields(status),
            variant=str(change.variant or ""),
            op=self._label(change),
            reason=str(row_reason(change, status)),
            detail=_detail(change, status),
            manifest=str(change.location or ""),
            risks=tuple(risk_texts(change_risks(change))),
            categories=tuple(dict.fromkeys(risk.category for risk in change_risks(change))),
            warnings=change.warnings,
            conflicts=self._conflicts(change),
            subpackages=tuple(note.text for note in change.subpackages),
            conditions=conditions,
            origins=self._origins.get(change.package, ()),
            history=tuple(self._history(change, history[: self._revisions])),
            revisions=len(history),
            diff=sources.differences.get(change.package, -1),
            cause=sources.causes.get(change.package, -1),
        )

    def others(self) -> Iterator[PackageRow]:
        """Yield owners without a package in a repository: of clusters, and those that are stalled."""
        for owner in self._owners:
            is_stalled = condition(owner, "Stalled").get("status") == "True"
            is_package = owner.get("cluster") or owner.get("kind") == _VARIANT
            is_listed = owner.get("kind") == _VARIANT and _owner_key(owner) in self._variants
            if is_listed or not (is_package or is_stalled):
                continue
            package = owner.get("package") or {}
            repository, name, cluster = self._downstream(owner)
            decisive = condition(owner, "Stalled" if is_stalled else "Ready")
            phase = package.get("phase") or ("stalled" if is_stalled else "")
            yield PackageRow(
                repository,
                name,
                cluster=cluster,
                phase=phase,
                since=(package.get("since") or "")[:10],
                reason=package.get("reason") or decisive.get("reason", ""),
                detail=package.get("message") or (decisive.get("message", "") if is_stalled else ""),
                variant=f"{owner.get('kind', '')} {'/'.join(filter(None, _owner_key(owner)))}".strip(),
                conditions=_conditions(owner),
            )

    def _downstream(self, owner: Owner) -> tuple[str, str, str]:
        """Return repository, package and cluster of an owner; of a variant also those that were not read."""
        context = self._sources.planned.plan.context
        key = _owner_key(owner)
        variant = (
            context.variants.get(ObjectName(*key)) if context and owner.get("kind") == _VARIANT else None
        )
        downstream = variant.spec.downstream if variant else None
        if variant is None or downstream is None or not downstream.repo:
            return "", package_name(owner), owner.get("cluster", "")
        view = self._inputs.inventory.repositories.get(ObjectName(key[0], downstream.repo))
        cluster = view.cluster if view else ""
        return downstream.repo, downstream.package or package_name(owner), cluster

    def _conflicts(self, change: Change) -> tuple[tuple[str, ...], ...]:
        view = self._inputs.inventory.views[change.repository]
        mirror = self._inputs.mirrors.open(view.remote) if change.conflicts and view.head else None
        origins = local_origins(mirror, view.branch, change) if mirror else {}
        since = {name: f"{c.subject} ({c.author}, {c.commit[:8]})" for name, c in origins.items()}
        return tuple(conflict_texts(known_bases(change, origins), since))

    def _history(self, change: Change, stages: Iterable[tuple[str, Oid, Oid]]) -> Iterator[HistoryEntry]:
        view = self._inputs.inventory.views[change.repository]
        for label, commit, _ in stages:
            entry = read_entry(label, commit, {}, self._inputs.mirrors.open(view.remote))
            yield entry._replace(commit=commit[:8])

    def _label(self, change: Change) -> str:
        labels = self._sources.labels
        return str(change.op) if labels is None else labels.get(change.package, self._sources.other)

    def _target(self, change: Change) -> PlanTarget | None:
        context = self._sources.planned.plan.context
        return context.targets.get(change.package) if context else None


_VARIANT: Final = "PackageVariant"


def _owners(files: Mapping[str, bytes]) -> list[Owner]:
    values = (orjson.loads(files[path]) for path in sorted(files) if path.startswith("conditions/"))
    return [owner for value in values for owner in status_entries(value)]


def _owner_key(owner: Owner) -> ObjectName:
    return ObjectName(owner.get("namespace", ""), owner.get("name", ""))


def _conditions(owner: Owner) -> tuple[tuple[str, ...], ...]:
    fields = ("type", "status", "reason", "message")
    return tuple(tuple(str(c.get(name, "")) for name in fields) for c in owner.get("conditions", ()))


def _overview_fields(overview: PackageOverview | None, change: Change) -> dict[str, str]:
    if overview is None:
        return {}
    return {
        "cluster": overview.cluster,
        "set_name": overview.set_name,
        "main": overview.main,
        "review": overview.review_after(change),
        "waiting_for": overview.waiting_for,
    }


def _status_fields(status: PackageStatus | None) -> dict[str, str]:
    if status is None:
        return {}
    number = f"#{status.pull}" if status.pull else ""
    return {"phase": str(status.phase), "since": _date(status.since), "pull": number, "pull_url": status.url}


def _detail(change: Change, status: PackageStatus | None) -> str:
    """Return why; versions and what it waits for have columns of their own."""
    parts = (change.detail, *change.unready, status.message if status and change.op is Op.KEEP else "")
    return "; ".join(dict.fromkeys(part for part in parts if part))


def _date(time: int) -> str:
    return str(datetime.fromtimestamp(time, UTC).date()) if time else ""


def _find_origins(changes: Iterable[Change], planned: PlannedRun) -> dict[PackageKey, tuple[Origin, ...]]:
    """Return where the fields of each package come from; contents are read where they tell more."""
    inventory = planned.inputs.inventory
    traces = {variant.key: variant.trace for variant in expand(inventory, trace=True).variants}
    resolved = {r.variant.key: r for r in planned.resolution.variants}
    own = [(c, resolved[c.variant]) for c in changes if c.variant in resolved]
    own = [(change, r) for change, r in own if r.downstream == change.package]
    # What is injected is in files, and so are the Secrets with values of the package context.
    needed = [change for change, r in own if r.variant.spec.injectors or r.variant.spec.package_context]
    contents = _contents(needed, planned)
    return {
        change.package: find_origins(
            r, contents.get(change.package, {}), inventory, traces.get(r.variant.key, r.variant.trace)
        )
        for change, r in own
    }


def _contents(changes: Iterable[Change], planned: PlannedRun) -> dict[PackageKey, Files]:
    """Return the files of packages as their drafts have them."""
    written = {c.package: c.written.files for c in changes if c.written and c.written.files}
    needed = {c.package: c.after for c in changes if c.package not in written and c.after is not None}
    by_url: dict[str, set[Oid]] = {}
    for package, tree in needed.items():
        by_url.setdefault(package.url, set()).add(tree)
    needs = Needs({url: frozenset(trees) for url, trees in by_url.items()})
    read = fetch_contents(needs, planned.inputs.mirrors, planned.inputs.inventory.policy.limits)
    return {**written, **{package: read.files.get(tree, {}) for package, tree in needed.items()}}
