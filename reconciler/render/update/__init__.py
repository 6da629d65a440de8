"""Update a package with local edits to a new upstream: a pure three-way merge, all or nothing."""

from collections.abc import Callable, Mapping

from reconciler.api.kptfile import KPTFILE, PACKAGE_CONTEXT_FILE
from reconciler.base.errors import Exit
from reconciler.base.text import plural
from reconciler.functions.resources import RESOURCE_ENDINGS, ignored_paths
from reconciler.krm.merge import FieldConflict, Winner
from reconciler.krm.values import value_at
from reconciler.krm.yaml import YamlError
from reconciler.names.objects import File, Files
from reconciler.policy import MergeMode, OnConflict, Strategy
from reconciler.render.update.conflicts import (
    REPLACED,
    SUBPACKAGE,
    Conflict,
    ConflictDecision,
    ConflictPolicy,
    MergeReport,
    Rule,
    RuleKind,
    Updated,
    UpdateRefused,
    resolver_for,
)
from reconciler.render.update.kptfile_merge import (
    UpstreamRef,
    is_edited_kptfile,
    merge_kptfile,
    set_upstream,
    update_strategy,
    upstream_block,
    upstream_node,
    upstream_of,
)
from reconciler.render.update.resources import check_duplicates, is_unedited, merge_resource_files
from reconciler.render.update.sides import (
    FileSides,
    MergeCache,
    MergeSettings,
    Sides,
    file_text,
    has_directory,
    is_equal,
    keep_text_file,
    merge_text_file,
    split_packages,
)

_ANOTHER_UPSTREAM = "a sub-package that people let follow another upstream is left to it"
_OWN_FILES = (KPTFILE, PACKAGE_CONTEXT_FILE)
"""No strategy replaces these: the Kptfile is merged, the package context is generated."""

Result = dict[str, File]
"""The files of the updated package."""


def resource_merge(sides: Sides, settings: MergeSettings, report: MergeReport) -> Result:
    """Merge package by package; a sub-package that one side deleted or added is taken as a whole.

    Raises:
        UpdateRefused: In kpt's mode, both sides added a sub-package, or a file has one resource twice.

    Source: kpt internal/util/update/resource-merge.go, updatePackage.
    """
    result: Result = {}
    chosen: dict[str, int] = {}
    # kpt merges each package by itself: no resource moves from one into another.
    for path, package_sides in split_packages(sides).items():
        side = next((number for outer, number in chosen.items() if path.startswith(f"{outer}/")), None)
        if side is None and not settings.like_kpt and _are_two_packages(path, sides):
            side = chosen[path] = _choose_package(path, sides, settings, report)
        taken = package_sides[side] if side is not None else None
        result.update(_merge_one(path, sides, package_sides, settings, report) if taken is None else taken)
    return result


def fast_forward(sides: Sides, settings: MergeSettings, report: MergeReport) -> Result:
    """Replace the package by upstream if it has no local edits.

    Raises:
        UpdateRefused: Local differs from what it was made from, except in the root Kptfile's own part.
    """
    original, _, local = sides
    edited = {
        path
        for path in original.keys() | local.keys()
        if not _is_unedited(original.get(path), local.get(path), settings)
    }
    # Name, upstream and ownership differ in every downstream package.
    if KPTFILE in edited and not is_edited_kptfile(original.get(KPTFILE), local.get(KPTFILE)):
        edited.discard(KPTFILE)
    if edited:
        paths = tuple(sorted(edited))
        raise UpdateRefused(
            "LocalChanges", f"Local package files have been modified: {', '.join(paths)}", paths=paths
        )
    return force_delete_replace(sides, settings, report)


def force_delete_replace(sides: Sides, settings: MergeSettings, report: MergeReport) -> Result:
    """Replace the package by upstream, local edits included; only the root Kptfile is merged.

    Source: kpt internal/util/update/replace.go.
    """
    _, upstream, local = sides
    result = dict(upstream)
    _replace_kptfile(result, sides, settings, report, merge=not settings.like_kpt)
    for path, files in _independent(local).items():
        # kpt replaces a package with its dependent sub-packages; one with an upstream of its own is not part
        # of it.
        if not has_directory(upstream, path) and not has_directory(sides.original, path):
            result.update(files)
    _record_replaced(result, sides, settings, report, Strategy.FORCE_DELETE_REPLACE)
    return result


def copy_merge(sides: Sides, settings: MergeSettings, report: MergeReport) -> Result:
    """Copy upstream over local, and delete the files that upstream deleted; files of local alone stay.

    Source: kpt pkg/lib/update/copy-merge.go.
    """
    original, upstream, local = sides
    # kpt removes only what the original had: a file of local alone stays.
    staying = {path: file for path, file in local.items() if path in upstream or path not in original}
    result = {**staying, **upstream}
    _replace_kptfile(result, sides, settings, report, merge=True)
    _record_replaced(result, sides, settings, report, Strategy.COPY_MERGE)
    return result


def _record_replaced(
    result: Result, sides: Sides, settings: MergeSettings, report: MergeReport, strategy: Strategy
) -> None:
    """Record the files with local edits that a strategy replaces, restores or removes."""
    if settings.like_kpt:
        return
    original, upstream, local = sides
    for path in sorted(original.keys() | local.keys()):
        base, ours = original.get(path), local.get(path)
        if path in _OWN_FILES or _is_unedited(base, ours, settings) or is_equal(ours, result.get(path)):
            continue
        old, theirs, mine = (file_text(file) for file in (base, upstream.get(path), ours))
        # kpt replaces these edits without a word.
        conflict = Conflict(path, "", "", old, theirs, mine, REPLACED)
        report.record_decided(conflict, OnConflict.UPSTREAM, Rule(RuleKind.STRATEGY, strategy))


STRATEGIES: Mapping[Strategy, Callable[[Sides, MergeSettings, MergeReport], Result]] = {
    Strategy.RESOURCE_MERGE: resource_merge,
    Strategy.FAST_FORWARD: fast_forward,
    Strategy.FORCE_DELETE_REPLACE: force_delete_replace,
    Strategy.COPY_MERGE: copy_merge,
}


def _merge_one(path: str, whole: Sides, sides: Sides, settings: MergeSettings, report: MergeReport) -> Result:
    present = tuple(not path or has_directory(side, path) for side in whole)
    # kpt stops where both sides added a package at one path, whatever is in it.
    if present == (False, True, True) and settings.like_kpt:
        raise UpdateRefused(
            "AddedOnBothSides", f"Subpackage {path} added in both upstream and local", paths=(path,)
        )
    # Original and one other side have the package: the third one deleted it.
    if present in ((True, False, True), (True, True, False)):
        return _merge_deleted(path, sides, settings, report)
    # kpt leaves a sub-package alone whose upstream is another than that of the original.
    if path and _follows_another_upstream(path, sides):
        if not (settings.like_kpt or _is_same_tree(sides.original, sides.upstream, settings)):
            texts = ("package", "what upstream changed in the package", "package")
            conflict = Conflict(path, SUBPACKAGE, "", *texts, "BothChanged")
            report.record_decided(conflict, OnConflict.LOCAL, Rule(RuleKind.MERGE, _ANOTHER_UPSTREAM))
        return dict(sides.local)
    return _merge_files(path, sides, settings, report)


def _are_two_packages(path: str, whole: Sides) -> bool:
    """Return whether both sides added a package at one path, and they follow different upstreams."""
    if not path or tuple(has_directory(side, path) for side in whole) != (False, True, True):
        return False
    theirs, ours = (
        [
            value_at(upstream_block(side.get(f"{path}/{KPTFILE}")), "git", name)
            for name in ("repo", "directory")
        ]
        for side in whole[1:]
    )
    return theirs != ours


def _choose_package(path: str, whole: Sides, settings: MergeSettings, report: MergeReport) -> int:
    """Return the number of the side that stays, local's while it is open: a mixture would be neither."""
    name = f"{path}/{KPTFILE}"
    theirs, ours = (upstream_node(side.get(name)) for side in whole[1:])
    winner = resolver_for(settings.policy, name, "Kptfile")(("upstream",))
    conflict = FieldConflict(("upstream",), None, theirs, ours, "BothAdded", winner)
    report.record_fields(name, "Kptfile", [conflict], None)
    return 1 if winner is Winner.UPSTREAM else 2


def _merge_deleted(path: str, sides: Sides, settings: MergeSettings, report: MergeReport) -> Result:
    """Return the files of a sub-package that one side deleted: all of local's if local edited it."""
    original, upstream, local = sides
    side = local or upstream
    if _is_same_tree(original, side, settings):
        return {}
    if not settings.like_kpt:
        reason = "DeletedUpstream" if local else "DeletedLocally"
        texts = ("package", "package" if upstream else None, "package" if local else None)
        report.record_whole(path, SUBPACKAGE, texts, reason)
    # One edited file keeps the whole sub-package: half of it would be no package.
    return dict(local)


def _is_same_tree(left: Files, right: Files, settings: MergeSettings) -> bool:
    return left.keys() == right.keys() and all(
        _is_unedited(file, right[path], settings) for path, file in left.items()
    )


def _is_unedited(base: File | None, side: File | None, settings: MergeSettings) -> bool:
    if base is None or side is None or base.oid == side.oid or base.mode != side.mode:
        return is_equal(base, side)
    old, new = (settings.cache.split(file) for file in (base, side))
    return (
        old is not None
        and new is not None
        and len(old.documents) == len(new.documents)
        and all(
            is_unedited(left.tree, right.tree, like_kpt=settings.like_kpt)
            for left, right in zip(old.documents, new.documents, strict=True)
        )
    )


def _merge_files(directory: str, sides: Sides, settings: MergeSettings, report: MergeReport) -> Result:
    kptfile = f"{directory}/{KPTFILE}" if directory else KPTFILE
    resources, others = _partition(directory, sides, settings)
    if settings.like_kpt:
        # kpt refuses a file with two resources of one identity: it could not tell which is which.
        for side in sides:
            check_duplicates({path: side[path] for path in resources if path in side}, settings)
    merged = merge_resource_files(sides, resources, settings, report)
    for path in others:
        three = FileSides(*(side.get(path) for side in sides))
        is_removed = directory and three.base is not None and None in three
        if path == kptfile and is_removed and not settings.like_kpt:
            merged[path] = _merge_removed_kptfile(path, three, report)
        elif path == kptfile:
            merged[path] = merge_kptfile(path, three, settings, report, root=not directory)
        # kpt merges no text, and passes over every path with `.git` in it, as over .gitignore.
        elif settings.like_kpt and not path.endswith((".yaml", ".yml")):
            merged[path] = three.local if ".git" in path else keep_text_file(three)
        else:
            merged[path] = merge_text_file(path, three, report)
    return {path: file for path, file in merged.items() if file is not None}


def _merge_removed_kptfile(path: str, sides: FileSides, report: MergeReport) -> File | None:
    """Return the Kptfile of a sub-package that a side made a directory: none, unless the other edited it."""
    is_edited = is_edited_kptfile(sides.base, sides.local or sides.upstream)
    return merge_text_file(path, sides, report) if is_edited else None


def _partition(directory: str, sides: Sides, settings: MergeSettings) -> tuple[list[str], list[str]]:
    """Return the paths that are resource files on every side that has them, and all others."""
    # kpt's update reads no JSON, though its render does.
    suffixes = RESOURCE_ENDINGS if settings.like_kpt else (*RESOURCE_ENDINGS, ".json")
    paths = sorted({path for side in sides for path in side})
    ignored = frozenset[str]().union(*(_ignored(directory, side) for side in sides))
    resources: list[str] = []
    others: list[str] = []
    for path in paths:
        is_resource = path.endswith(suffixes) and path not in ignored and _is_readable(path, sides, settings)
        (resources if is_resource else others).append(path)
    return resources, others


def _is_readable(path: str, sides: Sides, settings: MergeSettings) -> bool:
    """Return whether a file is YAML on each side; an unchanged file is not parsed and counts as YAML."""
    files = [side[path] for side in sides if path in side]
    if not settings.like_kpt and len({(file.oid, file.mode) for file in files}) == 1:
        return True
    splits = [settings.cache.split(file) for file in files]
    return None not in splits and any(split is not None and split.documents for split in splits)


def _ignored(directory: str, files: Files) -> frozenset[str]:
    prefix = f"{directory}/" if directory else ""
    if not any(path.endswith(".krmignore") for path in files):
        return frozenset()
    package_files = {path.removeprefix(prefix): file for path, file in files.items()}
    # The patterns of a .krmignore count from its package, and not in sub-packages.
    return frozenset(prefix + path for path in ignored_paths(package_files))


def _follows_another_upstream(path: str, sides: Sides) -> bool:
    """Return whether local gave a sub-package another upstream than its original has."""
    name = f"{path}/{KPTFILE}"
    return (
        upstream_block(sides.local.get(name)) != upstream_block(sides.original.get(name))
        and name in sides.original
    )


def _replace_kptfile(
    result: Result, sides: Sides, settings: MergeSettings, report: MergeReport, *, merge: bool
) -> None:
    three = FileSides(*(side.get(KPTFILE) for side in sides))
    kptfile = merge_kptfile(KPTFILE, three, settings, report, root=True) if merge else three.local
    if kptfile is not None:
        result[KPTFILE] = kptfile


def _independent(local: Files) -> dict[str, Files]:
    packages: dict[str, Files] = {}
    for name, file in local.items():
        directory, _, base = name.rpartition("/")
        if directory and base == KPTFILE and upstream_block(file):
            packages[directory] = {path: f for path, f in local.items() if path.startswith(f"{directory}/")}
    return packages


__all__ = [
    "Conflict",
    "ConflictDecision",
    "ConflictPolicy",
    "MergeCache",
    "UpdateRefused",
    "Updated",
    "UpstreamRef",
    "update_package",
    "upstream_of",
]


_CACHE = MergeCache()
"""Shared by all updates of the process: many packages of a fleet have the same edits."""


def update_package(
    original: Files,
    upstream: Files,
    local: Files,
    *,
    strategy: Strategy | None = None,
    mode: MergeMode = MergeMode.DEFAULT,
    on_conflict: OnConflict | ConflictPolicy = OnConflict.ASK,
    new_upstream: UpstreamRef | None = None,
    cache: MergeCache | None = None,
) -> Updated:
    """Return `local` with the changes from `original` to `upstream`.

    Pure and deterministic; `cache` only saves time, by default with the results of earlier calls. Without
    `strategy` the Kptfile's own is used, else `resource-merge`. `new_upstream` is written to the Kptfile.

    Laws, in the default mode: with an unchanged upstream the result is local, with a local without edits it
    is upstream, both byte for byte; values that upstream did not change are local's.

    Raises:
        UpdateRefused: The package cannot be updated; nothing of it was changed.
    """
    policy = on_conflict if isinstance(on_conflict, ConflictPolicy) else ConflictPolicy(on_conflict)
    settings = MergeSettings(mode, policy, cache if cache is not None else _CACHE)
    report = MergeReport(policy)
    # kpt does not look at the strategy of the Kptfile, and overwrites it with resource-merge.
    chosen = strategy or update_strategy(local.get(KPTFILE)) or Strategy.RESOURCE_MERGE
    try:
        files = STRATEGIES[chosen](Sides(original, upstream, local), settings, report)
        # kpt writes the new ref before it fetches anything, so a failed update leaves it there.
        if new_upstream is not None and KPTFILE in files:
            files[KPTFILE], fallbacks = set_upstream(files[KPTFILE], new_upstream)
            report.fallbacks += fallbacks
    except YamlError as error:
        message = f"The package cannot be merged: {error}"
        raise UpdateRefused("InvalidYAML", message, exit_code=Exit.INVALID_INPUT) from error
    if blocked := _nested_paths(files):
        message = f"Paths are files on one side and directories on the other: {', '.join(blocked)}"
        raise UpdateRefused("PathConflict", message, paths=blocked)
    if report.fatal:
        conflicts = tuple(report.fatal)
        message = f"{plural(len(conflicts), 'conflict')}, and the policy is to fail"
        raise UpdateRefused("MergeConflict", message, conflicts=conflicts, exit_code=Exit.WAITING)
    return report.updated(files)


def _nested_paths(files: Files) -> tuple[str, ...]:
    # Git has no tree in which a name is both.
    parents = {path[:index] for path in files for index, letter in enumerate(path) if letter == "/"}
    return tuple(sorted(parents & files.keys()))
