"""Sub-packages with an upstream of their own, as the rows of their packages tell of them."""

from collections.abc import Iterator

from reconciler.api.kptfile import GitUpstream
from reconciler.names.ids import Oid, normalise_url
from reconciler.names.refs import short_tag
from reconciler.plan.changes import SubpackageNote
from reconciler.plan.context import PlanContext
from reconciler.records.state import SubpackageRecord
from reconciler.render.rendered import Package
from reconciler.resolve.subpackages import find_sources


def subpackage_notes(package: Package, main: Oid | None, context: PlanContext) -> Iterator[SubpackageNote]:
    """Yield the sub-packages of a package; `main` is the package on main, where nothing moves any more."""
    for sub in package.subpackages:
        repository, newer = _published(sub, context)
        before = sub.before if sub.before != sub.ref and package.tree != main else ""
        yield SubpackageNote(sub.directory, repository, sub.package, before, sub.ref, newer)


def _published(sub: SubpackageRecord, context: PlanContext) -> tuple[str, str]:
    """Return the Repository of a sub-package's upstream, and its latest revision if that is a newer one."""
    upstream = GitUpstream(sub.repo, sub.package, sub.ref, sub.commit)
    for view, path in find_sources(upstream, context.sources):
        package = view.packages.get(path)
        latest = package.latest if package is not None else None
        if package is None or latest is None:
            continue
        now = next((r for r in package.published if sub.commit == r.commit.oid and r.revision > 0), None)
        is_newer = now is not None and latest.revision > now.revision
        return view.key.name, short_tag(latest.ref) if is_newer else ""
    return normalise_url(sub.repo), ""
