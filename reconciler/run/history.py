"""The run of `history`: the revisions of one package, read from its repository. Nothing is planned."""

from collections.abc import Iterator

from reconciler.api.kptfile import KPTFILE
from reconciler.base.errors import UsageError
from reconciler.base.progress import track
from reconciler.git.repository import Mirror
from reconciler.inventory.inventory import PackageState, RepositoryView
from reconciler.names.ids import Oid
from reconciler.names.objects import Files
from reconciler.plan.impact import ImpactReader
from reconciler.plan.overview import version_label
from reconciler.read.contents import fetch_contents
from reconciler.read.repositories.kptfiles import read_header
from reconciler.report.history import HistoryEntry
from reconciler.resolve.ownership import package_name
from reconciler.resolve.resolution import Needs
from reconciler.run.inputs import RunInputs


def package_names(inputs: RunInputs) -> list[str]:
    """Return the names of every package of every repository that was read."""
    return [f"{view.key.name}/{package_name(view, path)}" for view, path in _packages(inputs)]


def read_history(inputs: RunInputs, name: str) -> tuple[HistoryEntry, ...]:
    """Return the revisions of a package, the newest first; open drafts come before them.

    Raises:
        UsageError: No repository has the package.
    """
    for view, path in _packages(inputs):
        if name in (f"{view.key.name}/{package_name(view, path)}", f"{view.key.name}/{path}"):
            return tuple(_entries(inputs, view, view.packages[path]))
    raise UsageError(f"No repository has a package {name}")


def _packages(inputs: RunInputs) -> Iterator[tuple[RepositoryView, str]]:
    for _, view in sorted(inputs.inventory.repositories.items()):
        yield from ((view, path) for path in sorted(view.packages))


def _entries(inputs: RunInputs, view: RepositoryView, package: PackageState) -> Iterator[HistoryEntry]:
    mirror = inputs.mirrors.open(view.remote)
    stages = [*_drafts(package), *_published(package)]
    needs = Needs({view.url: frozenset(tree for _, _, tree in stages)})
    contents = fetch_contents(needs, inputs.mirrors, inputs.inventory.policy.limits).files
    reader = ImpactReader(inputs.inventory.policy.risks)
    main = package.main_tree
    for index, (label, commit, tree) in enumerate(track(stages, "comparing revisions")):
        older = next((t for name, _, t in stages[index + 1 :] if not name.startswith("draft")), None)
        older = main if label.startswith("draft") else older
        before = contents.get(older, {}) if older else {}
        after = contents.get(tree, {})
        impact = reader.impact(before, after, ()) if tree in contents else None
        yield _entry(label, commit, after, mirror)._replace(impact=impact)


def _drafts(package: PackageState) -> Iterator[tuple[str, Oid, Oid]]:
    for draft in sorted(package.drafts, key=lambda draft: -draft.tip.time):
        yield f"draft {draft.workspace}", draft.tip.oid, draft.tree


def _published(package: PackageState) -> Iterator[tuple[str, Oid, Oid]]:
    """Yield what is on main without a tag, then the numbered revisions, the newest first."""
    for state in sorted(package.unpublished, key=lambda state: -state.commit.time):
        yield "untagged", state.commit.oid, state.tree
    numbered = [revision for revision in package.published if revision.revision > 0]
    for revision in sorted(numbered, key=lambda revision: -revision.revision):
        yield f"v{revision.revision}", revision.commit.oid, revision.tree


def _entry(label: str, commit: Oid, files: Files, mirror: Mirror) -> HistoryEntry:
    data = mirror.find_commit(commit)
    kptfile = files.get(KPTFILE)
    upstream = version_label(read_header(kptfile.data)) if kptfile else ""
    if data is None:
        return HistoryEntry(label, commit, upstream)
    subject = data.message.strip().partition("\n")[0]
    return HistoryEntry(label, commit, upstream, data.committer.time, data.author.name, subject)
