"""The four ways in which a package takes a new upstream."""

from collections.abc import Callable, Mapping

from reconciler.api.kptfile import PACKAGE_CONTEXT_FILE
from reconciler.functions.package_files import ignored_paths
from reconciler.objects import File, Files
from reconciler.policy import OnConflict, Strategy
from reconciler.render.update.kptfile import is_edited_kptfile, merge_kptfile, upstream_block
from reconciler.render.update.krm import check_duplicates, merge_resource_files
from reconciler.render.update.ledger import Ledger
from reconciler.render.update.lookup import REPLACED, SUBPACKAGE
from reconciler.render.update.model import Conflict, Rule, RuleKind, UpdateRefused
from reconciler.render.update.packages import KPTFILE, Sides, below, split_packages
from reconciler.render.update.plain import file_text, keep_plain, merge_plain
from reconciler.render.update.settings import Settings
from reconciler.render.update.sides import FileSides, is_equal

_ANOTHER_UPSTREAM = "a sub-package that people let follow another upstream is left to it"
_OWN_FILES = (KPTFILE, PACKAGE_CONTEXT_FILE)
"""The root Kptfile is merged, the package context is written anew."""

Result = dict[str, File]
"""The files of the updated package."""


def resource_merge(sides: Sides, settings: Settings, ledger: Ledger) -> Result:
    """Merge package by package: a sub-package that one side deleted or added is taken as a whole.

    Raises:
        UpdateRefused: In kpt's way, a sub-package was added on both sides, or a file has one
            resource twice.

    Source: kpt internal/util/update/resource-merge.go, updatePackage.
    """
    result: Result = {}
    for path, own in split_packages(sides).items():
        result.update(_merge_one(path, sides, own, settings, ledger))
    return result


def fast_forward(sides: Sides, settings: Settings, ledger: Ledger) -> Result:
    """Become upstream, if nobody has edited the package.

    Raises:
        UpdateRefused: Local differs from what it was made from, except in the root Kptfile's own part.
    """
    original, _, local = sides
    edited = {
        path for path in original.keys() | local.keys() if not is_equal(original.get(path), local.get(path))
    }
    if KPTFILE in edited and not is_edited_kptfile(original.get(KPTFILE), local.get(KPTFILE)):
        edited.discard(KPTFILE)
    if edited:
        paths = tuple(sorted(edited))
        raise UpdateRefused(
            "LocalChanges", f"Local package files have been modified: {', '.join(paths)}", paths=paths
        )
    return force_delete_replace(sides, settings, ledger)


def force_delete_replace(sides: Sides, settings: Settings, ledger: Ledger) -> Result:
    """Become upstream, whatever local has; only the root Kptfile is local's, merged.

    Source: kpt internal/util/update/replace.go.
    """
    _, upstream, local = sides
    result = dict(upstream)
    _replace_kptfile(result, sides, settings, ledger, merge=not settings.like_kpt)
    for path, files in _independent(local).items():
        if not below(upstream, path) and not below(sides.original, path):
            result.update(files)
    _record_replaced(result, sides, settings, ledger, Strategy.FORCE_DELETE_REPLACE)
    return result


def copy_merge(sides: Sides, settings: Settings, ledger: Ledger) -> Result:
    """Copy upstream over local, and delete what upstream deleted; files that only local has stay.

    Source: kpt pkg/lib/update/copy-merge.go.
    """
    original, upstream, local = sides
    kept = {path: file for path, file in local.items() if path in upstream or path not in original}
    result = {**kept, **upstream}
    _replace_kptfile(result, sides, settings, ledger, merge=True)
    _record_replaced(result, sides, settings, ledger, Strategy.COPY_MERGE)
    return result


def _record_replaced(
    result: Result, sides: Sides, settings: Settings, ledger: Ledger, strategy: Strategy
) -> None:
    """Record the files that people changed and that a strategy replaces, adds again or removes."""
    original, upstream, local = sides
    for path in () if settings.like_kpt else sorted(original.keys() | local.keys()):
        base, ours = original.get(path), local.get(path)
        if path in _OWN_FILES or is_equal(base, ours) or is_equal(ours, result.get(path)):
            continue
        old, theirs, mine = (file_text(file) for file in (base, upstream.get(path), ours))
        conflict = Conflict(path, "", "", old, theirs, mine, REPLACED)
        ledger.rule_out(conflict, OnConflict.UPSTREAM, Rule(RuleKind.STRATEGY, strategy))


STRATEGIES: Mapping[Strategy, Callable[[Sides, Settings, Ledger], Result]] = {
    Strategy.RESOURCE_MERGE: resource_merge,
    Strategy.FAST_FORWARD: fast_forward,
    Strategy.FORCE_DELETE_REPLACE: force_delete_replace,
    Strategy.COPY_MERGE: copy_merge,
}


def _merge_one(path: str, whole: Sides, own: Sides, settings: Settings, ledger: Ledger) -> Result:
    """Merge one package's own files; its sub-packages are merged by themselves."""
    there = tuple(not path or below(side, path) for side in whole)
    if there == (False, True, True) and settings.like_kpt:
        raise UpdateRefused(
            "AddedOnBothSides", f"Subpackage {path} added in both upstream and local", paths=(path,)
        )
    if there in ((True, False, True), (True, True, False)):
        return _deleted(path, own, settings, ledger)
    if path and _follows_another_upstream(path, own):
        if not (settings.like_kpt or _is_same_tree(own.original, own.upstream)):
            texts = ("package", "what upstream changed in the package", "package")
            conflict = Conflict(path, SUBPACKAGE, "", *texts, "BothChanged")
            ledger.rule_out(conflict, OnConflict.LOCAL, Rule(RuleKind.MERGE, _ANOTHER_UPSTREAM))
        return dict(own.local)
    return _merge_files(path, own, settings, ledger)


def _deleted(path: str, own: Sides, settings: Settings, ledger: Ledger) -> Result:
    """Return what stays of a sub-package that one side deleted: all of it if local edited it."""
    original, upstream, local = own
    side = local or upstream
    if _is_same_tree(original, side):
        return {}
    if not settings.like_kpt:
        reason = "DeletedUpstream" if local else "DeletedLocally"
        texts = ("package", "package" if upstream else None, "package" if local else None)
        ledger.settle(path, SUBPACKAGE, texts, reason)
    return dict(local)


def _is_same_tree(one: Files, other: Files) -> bool:
    return one.keys() == other.keys() and all(is_equal(file, other[path]) for path, file in one.items())


def _merge_files(directory: str, own: Sides, settings: Settings, ledger: Ledger) -> Result:
    kptfile = f"{directory}/{KPTFILE}" if directory else KPTFILE
    resources, others = _sorted_out(directory, own, settings)
    if settings.like_kpt:
        for side in own:
            check_duplicates({path: side[path] for path in resources if path in side}, settings)
    found = merge_resource_files(own, resources, settings, ledger)
    for path in others:
        three = FileSides(*(side.get(path) for side in own))
        if path == kptfile:
            found[path] = merge_kptfile(path, three, settings, ledger, root=not directory)
        elif settings.like_kpt and not path.endswith((".yaml", ".yml")):
            found[path] = three.local if ".git" in path else keep_plain(three)
        else:
            found[path] = merge_plain(path, three, ledger)
    return {path: file for path, file in found.items() if file is not None}


def _sorted_out(directory: str, own: Sides, settings: Settings) -> tuple[list[str], list[str]]:
    """Return the paths that hold resources on every side that has them, and all others."""
    suffixes = (".yaml", ".yml") if settings.like_kpt else (".yaml", ".yml", ".json")
    paths = sorted({path for side in own for path in side})
    ignored = frozenset[str]().union(*(_ignored(directory, side) for side in own))
    resources: list[str] = []
    others: list[str] = []
    for path in paths:
        is_resource = path.endswith(suffixes) and path not in ignored and _is_readable(path, own, settings)
        (resources if is_resource else others).append(path)
    return resources, others


def _is_readable(path: str, own: Sides, settings: Settings) -> bool:
    """Tell whether a file is YAML on each side; one that nobody has to look into counts as such."""
    files = [side[path] for side in own if path in side]
    if not settings.like_kpt and len({(file.oid, file.mode) for file in files}) == 1:
        return True
    chunked = [settings.memory.documents(file) for file in files]
    return all(chunks is not None for chunks in chunked) and any(
        c is not None and c.documents for c in chunked
    )


def _ignored(directory: str, files: Files) -> frozenset[str]:
    prefix = f"{directory}/" if directory else ""
    if not any(path.endswith(".krmignore") for path in files):
        return frozenset()
    own = {path.removeprefix(prefix): file for path, file in files.items()}
    return frozenset(prefix + path for path in ignored_paths(own))


def _follows_another_upstream(path: str, own: Sides) -> bool:
    """Tell whether a person made a sub-package follow an upstream of its own since it was fetched."""
    name = f"{path}/{KPTFILE}"
    return (
        upstream_block(own.local.get(name)) != upstream_block(own.original.get(name)) and name in own.original
    )


def _replace_kptfile(
    result: Result, sides: Sides, settings: Settings, ledger: Ledger, *, merge: bool
) -> None:
    three = FileSides(*(side.get(KPTFILE) for side in sides))
    kept = merge_kptfile(KPTFILE, three, settings, ledger, root=True) if merge else three.local
    if kept is not None:
        result[KPTFILE] = kept


def _independent(local: Files) -> dict[str, Files]:
    """Return the sub-packages that have an upstream of their own, with their files."""
    found: dict[str, Files] = {}
    for name, file in local.items():
        directory, _, base = name.rpartition("/")
        if directory and base == KPTFILE and upstream_block(file):
            found[directory] = {path: f for path, f in local.items() if path.startswith(f"{directory}/")}
    return found
