"""The run of `explain`: one package of a planned fleet, its obstacles, its revisions and its fields."""

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from reconciler.api.kptfile import KPTFILE
from reconciler.base.errors import UnavailableError
from reconciler.base.progress import track
from reconciler.base.reasons import Reason
from reconciler.expand import DesiredVariant, expand
from reconciler.git.commits import parse_annotations
from reconciler.git.repository import Mirror
from reconciler.inventory.inventory import PackageState
from reconciler.names.ids import Oid, PackageKey
from reconciler.names.objects import Files
from reconciler.plan.changes import Change, Op
from reconciler.plan.chart_values import changed_values, with_templates
from reconciler.plan.impact import ImpactReader
from reconciler.read.contents import fetch_contents
from reconciler.read.repositories.trees import read_header
from reconciler.report.build import version_label
from reconciler.report.explain import Origin, Standstill, find_obstacles, find_origins
from reconciler.report.report import HistoryEntry
from reconciler.resolve import Needs
from reconciler.resolve.ownership import package_name
from reconciler.run.inputs import RunInputs
from reconciler.run.plan import PlannedRun, opened_pipelines


def named_changes(planned: PlannedRun) -> Iterator[tuple[str, str, Change]]:
    """Yield the change of every package of the plan and of every other repository, with both of its names."""
    for change in planned.plan.changes:
        yield planned.names.of(change), f"{change.repository.name}/{change.package.path}", change
    planned_packages = {change.package for change in planned.plan.changes}
    for _, view in sorted(planned.inputs.inventory.repositories.items()):
        for path, package in sorted(view.packages.items()):
            key = PackageKey(view.url, path)
            if key not in planned_packages:
                change = Change(key, view.key, Op.KEEP, Reason.NOT_OURS, before=package.main_tree)
                yield f"{view.key.name}/{package_name(view, path)}", f"{view.key.name}/{path}", change


def trace_variant(planned: PlannedRun, change: Change) -> DesiredVariant | None:
    """Return the variant of a change with the origin of every field that a set gave it."""
    traced = {v.key: v for v in expand(planned.inputs.inventory, trace=True).variants}
    variant = next((v for v in planned.desired.variants if v.key == change.variant), None)
    return traced.get(variant.key, variant) if variant else None


def explain_standstill(
    planned: PlannedRun, change: Change, variant: DesiredVariant | None, revision: str
) -> Standstill:
    """Return what keeps a package from an upstream revision, "" for the newest one."""
    trace = {variant.key: variant.trace} if variant else {}
    return find_obstacles(planned.plan, change, planned.names.of(change), revision, trace)


def read_origins(
    planned: PlannedRun, change: Change, variant: DesiredVariant | None
) -> tuple[tuple[Origin, ...], Change]:
    """Return where each field of a package came from, and its change with that of its conflicts.

    There are none where no variant makes the package.
    """
    resolved = next((r for r in planned.resolution.variants if r.variant.key == change.variant), None)
    if variant is None or resolved is None or resolved.downstream != change.package:
        return (), change
    inventory = planned.inputs.inventory
    trees: dict[str, set[Oid]] = {resolved.pin.package.url: {resolved.pin.tree}}
    if resolved.base is not None:
        trees[resolved.pin.package.url].add(resolved.base.tree)
    trees.setdefault(change.package.url, set()).update(filter(None, (resolved.local, change.tree)))
    needs = Needs({url: frozenset(of) for url, of in trees.items()})
    contents = fetch_contents(needs, planned.inputs.mirrors, inventory.policy.limits)
    files = change.written.files if change.written else None
    if not files and change.tree is not None:
        files = contents.get(change.tree)
    upstream = contents.get(resolved.pin.tree) or {}
    with opened_pipelines(planned.inputs) as run:
        changed = tuple(changed_values(run, resolved, contents, files)) if files else ()
    main = contents.get(resolved.local or Oid("")) or {}
    conflicts = with_templates(change.conflicts, files or {}, main)
    origins = find_origins(
        resolved, files or {}, inventory, variant.trace, upstream, main=main, changed=changed
    )
    if change.conflicts:  # functions wait for the answers: the draft lacks the values that the variant sets
        origins = tuple(o for o in origins if o.location is None or not o.field.startswith(".Values."))
    return origins, replace(change, conflicts=conflicts)


def read_history(inputs: RunInputs, change: Change) -> Iterator[HistoryEntry]:
    """Yield the revisions of a package, the newest first; open drafts come before them.

    Raises:
        UnavailableError: Its repository could not be read.
    """
    view = inputs.inventory.views[change.repository]
    if view.problem is not None:
        raise UnavailableError(view.unread_message, hint=view.problem.hint)
    package = view.packages.get(change.package.path)
    if package is None:
        return
    mirror = inputs.mirrors.open(view.remote)
    stages, drafts = package_stages(package), len(package.drafts)
    trees = [tree for _, _, tree in stages]
    older = [*(package.main_tree for _ in package.drafts), *trees[drafts + 1 :], None]
    needs = Needs({view.url: frozenset(trees)})
    contents = fetch_contents(needs, inputs.mirrors, inputs.inventory.policy.limits).files
    reader = ImpactReader(inputs.inventory.policy.risks)
    for (label, commit, tree), base in zip(track(stages, "comparing revisions"), older, strict=False):
        before = contents.get(base, {}) if base else {}
        after = contents.get(tree, {})
        impact = reader.impact(before, after, ()) if tree in contents else None
        labels = _labels(commit, change.package.path, mirror)
        yield read_entry(label, commit, after, mirror)._replace(impact=impact, labels=labels)


def package_stages(package: PackageState) -> list[tuple[str, Oid, Oid]]:
    """Return label, commit and tree of each revision, the newest first; open drafts come before them."""
    drafts = sorted(package.drafts, key=lambda draft: -draft.tip.time)
    untagged = sorted(package.unpublished, key=lambda state: -state.commit.time)
    numbered = sorted((r for r in package.published if r.revision > 0), key=lambda r: -r.revision)
    return [
        *((f"draft {draft.workspace}", draft.tip.oid, draft.tree) for draft in drafts),
        *(("untagged", state.commit.oid, state.tree) for state in untagged),
        *((f"v{r.revision}", r.commit.oid, r.tree) for r in numbered),
    ]


def _labels(oid: Oid, path: str, mirror: Mirror) -> Mapping[str, str]:
    """Return the labels that a commit gave a package: our own, one that merged it, or that squashed it."""
    commit = mirror.find_commit(oid)
    merged = map(mirror.find_commit, commit.parents[1:]) if commit else ()
    texts = (source.message for source in (commit, *merged) if source)
    named = (
        annotation for text in texts for annotation in parse_annotations(text) if annotation.package == path
    )
    return next((annotation.labels for annotation in named if annotation.labels), {})


def read_entry(label: str, commit: Oid, files: Files, mirror: Mirror) -> HistoryEntry:
    """Return a revision or a draft; its upstream is that of its files."""
    data = mirror.find_commit(commit)
    kptfile = files.get(KPTFILE)
    upstream = version_label(read_header(kptfile.data)) if kptfile else ""
    if data is None:
        return HistoryEntry(label, commit, upstream)
    subject = data.message.strip().partition("\n")[0]
    return HistoryEntry(label, commit, upstream, data.committer.time, data.author.name, subject)
