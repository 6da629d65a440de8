"""Packages of the HTML report: a row for each with its state, conditions and conflicts."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import orjson
from msgspec import Struct, field

from reconciler.apply.links import find_web
from reconciler.apply.upstream_log import known_bases, local_origins
from reconciler.base.text import join_texts
from reconciler.dependencies.status import status_entries
from reconciler.names.ids import ObjectName, PackageKey
from reconciler.plan.changes import Change, Op
from reconciler.plan.status import PackageStatus
from reconciler.report.conflicts import conflict_texts
from reconciler.report.folding import risk_texts
from reconciler.report.html import PackageRow
from reconciler.report.overview import PackageOverview, package_overviews
from reconciler.report.status import Owner, condition, package_name
from reconciler.report.summary import change_risks, row_reason
from reconciler.run.plan import PlannedRun


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
    reader = _RowReader(sources)
    return (*map(reader.row, changes), *reader.others())


class _RowReader:
    """Values of the whole fleet that rows need, each computed once."""

    def __init__(self, sources: PackageSources) -> None:
        self._sources = sources
        self._inputs = sources.planned.inputs
        self._names = sources.planned.names
        self._variants = {status.variant for status in sources.statuses if status.package}
        self._statuses = {status.package: status for status in sources.statuses if status.package}
        self._overviews = package_overviews(sources.planned.plan, sources.statuses)
        self._owners = _owners(sources.status_files)
        self._conditions = {_owner_key(o): _conditions(o) for o in self._owners if o.get("kind") == _VARIANT}

    def row(self, change: Change) -> PackageRow:
        sources, status = self._sources, self._statuses.get(change.package)
        overview = self._overviews.get((change.variant, change.package)) if change.variant else None
        repository, _, name = self._names.of(change).partition("/")
        conditions = self._conditions.get(change.variant, ()) if change.variant else ()
        labels = self._sources.labels
        parts = (change.detail, *change.unready, status.message if status and change.op is Op.KEEP else "")
        return PackageRow(
            repository,
            name,
            **_overview_fields(overview, change),
            **_status_fields(status),
            variant=str(change.variant or ""),
            op=str(change.op) if labels is None else labels.get(change.package, self._sources.other),
            reason=str(row_reason(change, status)),
            detail=join_texts("; ", dict.fromkeys(parts)),
            manifest=str(change.location or ""),
            web_url=self._web_url(change),
            risks=tuple(risk_texts(change_risks(change))),
            categories=tuple(dict.fromkeys(risk.category for risk in change_risks(change))),
            warnings=change.warnings,
            conflicts=self._conflicts(change),
            subpackages=tuple(note.text for note in change.subpackages),
            conditions=conditions,
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

    def _web_url(self, change: Change) -> str:
        """Return the directory of the package on main at its forge, "" where either is not there."""
        view, context = self._inputs.inventory.views[change.repository], self._sources.planned.plan.context
        target = context.targets.get(change.package) if context else None
        if view.head is None or target is None or target.package.main_tree is None:
            return ""
        web = find_web(view.remote, self._inputs.inventory.policy.forges)
        return web.directory(view.head.oid, change.package.path) if web else ""


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
    since = str(datetime.fromtimestamp(status.since, UTC).date()) if status.since else ""
    return {"phase": str(status.phase), "since": since, "pull": number, "pull_url": status.url}
