"""The Kptfile of a package: its name, where it came from, whose it is; no other byte changes."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from reconciler.api.annotations import PREFIX, check_keys, check_resource
from reconciler.api.kptfile import KPTFILE, LOCATION, OWNER
from reconciler.ids import normalise_url
from reconciler.krm.yaml import PACKAGE_LIMITS, DeleteKey, Edit, SetValue, YamlError, load_documents
from reconciler.objects import Files
from reconciler.reasons import Reason
from reconciler.render.editing import edit_file
from reconciler.render.rendered import Blocked
from reconciler.resolve.resolution import Pin

_ANNOTATIONS = ("metadata", "annotations")
_RESOURCES = (".yaml", ".yml", ".json")


def stamp_kptfile(
    files: Files, *, name: str | None, pin: Pin | None, owner: str, location: str
) -> Files | Blocked:
    """Return the package with its Kptfile naming itself, its upstream and its owner.

    Idempotent. None for `name` or `pin` leaves that part alone.

    Source: porch pkg/task/clone.go; kpt thirdparty/kptfile, UpdateUpstreamLockFromGit.
    Differs: the lock's directory is the full path in the Git repository, so that kpt can use it.
    """
    metadata: dict[str, Any] = {"annotations": {LOCATION: location, OWNER: owner}}
    if name is not None:
        metadata = {"name": name, **metadata}
    if blocked := _unreadable_key(files):
        return blocked
    own = {"metadata": metadata}
    return _edit(files, lambda value: _sets(value, {**own, **(_upstream(pin, value) if pin else {})}))


def strip_ownership(files: Files) -> Files | Blocked:
    """Return the package as nobody's: without our two annotations. Idempotent."""
    return _edit(files, _strips)


def _upstream(pin: Pin, kptfile: dict[str, Any]) -> dict[str, Any]:
    """Return both blocks; another spelling of the same repository stays until there is another commit."""
    git = {"directory": pin.package.path, "ref": pin.ref}
    same = _at(kptfile, ("upstreamLock", "git", "commit")) == pin.commit.oid
    blocks = {"upstream": git, "upstreamLock": {**git, "commit": pin.commit.oid}}
    known = {pin.package.url, normalise_url(pin.remote), normalise_url(pin.repo)}
    for name, block in blocks.items():
        repo = _at(kptfile, (name, "git", "repo"))
        keeps = same and isinstance(repo, str) and normalise_url(repo) in known
        blocks[name] = {"repo": repo if keeps else pin.address, **block}
    return {name: {"type": "git", "git": block} for name, block in blocks.items()}


def _unreadable_key(files: Files) -> Blocked | None:
    """Return why a package with a key of ours that means nothing is blocked; its Kptfile comes first."""
    for path in sorted(files, key=lambda path: (path != KPTFILE, path)):
        is_kptfile = path.rpartition("/")[2] == KPTFILE
        if PREFIX.encode() not in files[path].data or not (is_kptfile or path.endswith(_RESOURCES)):
            continue
        try:
            documents = load_documents(files[path].data, PACKAGE_LIMITS)
        except YamlError:
            continue
        values = (document.value for document in documents if isinstance(document.value, dict))
        faults = (check_keys(KPTFILE, value) if is_kptfile else check_resource(value) for value in values)
        first = next((fault for several in faults for fault in several), None)
        if first is not None:
            where = "The Kptfile" if path == KPTFILE else path
            return Blocked(first.reason, f"{where}: {first.message}", first.hint)
    return None


def _edit(files: Files, edits: Callable[[dict[str, Any]], Iterable[Edit]]) -> Files | Blocked:
    file = files.get(KPTFILE)
    if file is None:
        return Blocked(Reason.INVALID_PACKAGE, "The package has no Kptfile", "Add one at its root.")
    try:
        documents = load_documents(file.data, PACKAGE_LIMITS)
        if len(documents) != 1 or not isinstance(documents[0].value, dict):
            return Blocked(Reason.INVALID_PACKAGE, "The Kptfile is not one object")
        edited = edit_file(file, edits(documents[0].value))
    except YamlError as error:
        return Blocked(Reason.INVALID_PACKAGE, f"The Kptfile cannot be edited: {error}")
    return files if edited is file else {**files, KPTFILE: edited}


def _sets(value: Any, wanted: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[Edit]:
    """Yield the edits that put `wanted` into a mapping: few and disjoint, whole where nothing is yet."""
    for key, new in wanted.items():
        old = value.get(key) if isinstance(value, dict) else None
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _sets(old, new, (*path, key))
        elif old != new:
            yield SetValue((*path, key), new)


def _strips(value: dict[str, Any]) -> Iterator[Edit]:
    annotations = _at(value, _ANNOTATIONS)
    ours = [key for key in (LOCATION, OWNER) if isinstance(annotations, dict) and key in annotations]
    if ours and len(ours) == len(annotations):
        yield DeleteKey(_ANNOTATIONS)
    else:
        yield from (DeleteKey((*_ANNOTATIONS, key)) for key in ours)


def _at(value: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value
