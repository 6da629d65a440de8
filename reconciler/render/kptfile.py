"""Edit the Kptfile of a package: name, upstream, owner and pipeline; and read its readiness gates."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final, NamedTuple

from reconciler.api.annotations import PREFIX, check_keys, check_resource
from reconciler.api.kptfile import KPTFILE, LOCATION, OWNER, KptfileHeader
from reconciler.api.porch import Function, PackageVariantSpec
from reconciler.base.lazy import regex
from reconciler.base.reasons import Reason
from reconciler.krm.documents import edit_document
from reconciler.krm.values import mapping_at, mappings_at, value_at
from reconciler.krm.yaml import (
    KPTFILE_LIMITS,
    DeleteItem,
    DeleteKey,
    Edit,
    InsertItem,
    SetValue,
    Tree,
    YamlError,
    load_documents,
)
from reconciler.names.ids import ObjectName, normalise_url
from reconciler.names.objects import Files
from reconciler.render.rendered import Blocked
from reconciler.resolve.resolution import Pin

_ANNOTATIONS = ("metadata", "annotations")
_RESOURCES = (".yaml", ".yml", ".json")
_PIPELINE = "pipeline"
RESOURCE_GROUP: Final = "resourcegroup.yaml"
"""Where `kpt live init` writes an inventory, unless into the Kptfile."""
_INVENTORY: Final = regex(
    rb"^\s*(?:inventoryID|cli-utils\.sigs\.k8s\.io/inventory-id):[ \t]*[\"']?([^\s\"']+)", re.MULTILINE
)
_FUNCTION_PREFIX = "PackageVariant"
"""The start of the names of a variant's own functions."""
_CACHED_FUNCTIONS: Final = 64
_LONG: Final = 8192
"""In bytes."""
_FUNCTION_FIELDS = ("name", "image", "exec", "tag", "configPath", "configMap", "selectors", "exclude")


def stamp_kptfile(
    files: Files, *, name: str | None, pin: Pin | None, owner: str, location: str
) -> Files | Blocked:
    """Return the package with name, upstream and owner in its Kptfile.

    Idempotent. None for `name` or `pin` does not change that part.

    Source: porch pkg/task/clone.go; kpt thirdparty/kptfile, UpdateUpstreamLockFromGit.
    Differs: the lock's directory is the full path in the Git repository, so that kpt can use it.
    """
    metadata: dict[str, Any] = {"annotations": {LOCATION: location, OWNER: owner}}
    if name is not None:
        metadata = {"name": name, **metadata}
    if blocked := _invalid_key(files):
        return blocked
    edits, kinds = {"metadata": metadata}, list[object]()

    def stamp(value: dict[str, Any]) -> Iterator[Edit]:
        kinds.append(value.get("kind"))
        return _set_edits(value, {**edits, **(_upstream(pin, value) if pin else {})})

    stamped = edit_kptfile(files, stamp)
    if kinds in ([], [KPTFILE]):
        return stamped
    # The next run would not know the draft as its own.
    message = "The Kptfile has another kind than Kptfile"
    return Blocked(Reason.INVALID_PACKAGE, message, "Write `kind: Kptfile` into it.")


def strip_ownership(files: Files) -> Files | Blocked:
    """Return the package without the two ownership annotations. Idempotent."""
    return edit_kptfile(files, _ownership_edits)


def _upstream(pin: Pin, kptfile: dict[str, Any]) -> dict[str, Any]:
    """Return both blocks; another spelling of the repository's URL stays until the commit changes."""
    git = {"directory": pin.package.path or "/", "ref": pin.ref}
    same = value_at(kptfile, "upstreamLock", "git", "commit") == pin.commit.oid
    blocks = {"upstream": git, "upstreamLock": {**git, "commit": pin.commit.oid}}
    spellings = {pin.package.url, normalise_url(pin.remote), normalise_url(pin.repo)}
    for name, block in blocks.items():
        repo = value_at(kptfile, name, "git", "repo")
        keeps = same and isinstance(repo, str) and normalise_url(repo) in spellings
        blocks[name] = {"repo": repo if keeps else pin.address, **block}
    return {name: {"type": "git", "git": block} for name, block in blocks.items()}


def _invalid_key(files: Files) -> Blocked | None:
    """Return the first invalid annotation or label under our prefix as a problem; the Kptfile is first."""
    # The byte search spares most files the parsing.
    for path in sorted(files, key=lambda path: (path != KPTFILE, path)):
        is_kptfile = path.rpartition("/")[2] == KPTFILE
        if PREFIX.encode() not in files[path].data or not (is_kptfile or path.endswith(_RESOURCES)):
            continue
        try:
            values = (value for value in _values(files[path].data) if isinstance(value, dict))
        except YamlError:
            continue
        for value in values:
            for fault in check_keys(KPTFILE, value) if is_kptfile else check_resource(value):
                where = "The Kptfile" if path == KPTFILE else path
                return Blocked(fault.reason, f"{where}: {fault.message}", fault.hint)
    return None


def edit_kptfile(files: Files, edits: Callable[[dict[str, Any]], Iterable[Edit]]) -> Files | Blocked:
    """Return the package with its Kptfile edited; `edits` gets its value."""
    file = files.get(KPTFILE)
    if file is None:
        return Blocked(Reason.INVALID_PACKAGE, "The package has no Kptfile", "Add one at its root.")
    try:
        values = _values(file.data)
        if len(values) != 1 or not isinstance(values[0], dict):
            return Blocked(Reason.INVALID_PACKAGE, "The Kptfile is not one object")
        edited = edit_document(file, edits(values[0]))
    except YamlError as error:
        return Blocked(Reason.INVALID_PACKAGE, f"The Kptfile cannot be edited: {error}")
    return files if edited is file else {**files, KPTFILE: edited}


def _set_edits(value: Any, fields: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[Edit]:
    """Yield the edits that write `fields` into a mapping; a mapping that is absent is written whole."""
    for key, new in fields.items():
        old = value.get(key) if isinstance(value, dict) else None
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _set_edits(old, new, (*path, key))
        elif old != new:
            yield SetValue((*path, key), new)


def _ownership_edits(value: dict[str, Any]) -> Iterator[Edit]:
    annotations = mapping_at(value, *_ANNOTATIONS)
    owner_keys = [key for key in (LOCATION, OWNER) if key in annotations]
    if owner_keys and len(owner_keys) == len(annotations):
        yield DeleteKey(_ANNOTATIONS)
    else:
        yield from (DeleteKey((*_ANNOTATIONS, key)) for key in owner_keys)


class FunctionOwners(NamedTuple):
    """Owners of the functions of a package: variants may share a name, so that it alone does not decide.

    Those in `upstream`, as it is or as it was merged last, belong to the upstream package, whatever variant
    made it. Of the others those of `variant`, and of `former`, which had the package, are replaced.
    """

    variant: ObjectName
    upstream: Collection[str] = ()
    former: ObjectName | None = None

    def has(self, item: Any) -> bool:
        """Return whether a function of the package is one of the variant, or of its former one."""
        name = item.get("name") if isinstance(item, dict) else None
        owners = (self.variant, *([self.former] if self.former else []))
        return (
            isinstance(name, str)
            and name not in self.upstream
            and any(is_own_function(name, text) for owner in owners for text in _spellings(owner))
        )


def _spellings(variant: ObjectName) -> tuple[str, str]:
    """Return a variant in names of functions: as in Porch, and where upstream has a function of that name."""
    return variant.name, f"{variant.namespace}.{variant.name}"


def add_functions(files: Files, spec: PackageVariantSpec, owners: FunctionOwners) -> Files | Blocked:
    """Return the package with the variant's functions first in its pipeline, replacing its former ones.

    Idempotent; the package's own functions keep every byte. An emptied list is deleted, and the pipeline
    with the last one. The functions of `former`, the variant that had the package before, go too.

    Source: porch packagevariant_controller.go, ensureKRMFunctions.
    Differs: names with dots are recognised too, so no function is added twice; functions of upstream stay if
    their variant had the same name.
    """
    return edit_kptfile(files, lambda value: _pipeline_edits(value, spec, owners))


def has_other_functions(kptfile: dict[str, Any], spec: PackageVariantSpec, owners: FunctionOwners) -> bool:
    """Return whether a package has functions of its variant that the variant does not ask for as they are."""
    for field, functions in own_functions(spec):
        declared = [{**_entry(function, owners, 0), "name": ""} for function in functions]
        present = (item for item in mappings_at(kptfile, _PIPELINE, field) if owners.has(item))
        if any({**item, "name": ""} not in declared for item in present):
            return True
    return False


def upstream_functions(packages: Iterable[Files]) -> frozenset[str]:
    """Return the names of functions in upstream packages that variants added there."""
    kptfiles = (files[KPTFILE].data for files in packages if KPTFILE in files)
    values = (kptfile_value(data) for data in kptfiles if _FUNCTION_PREFIX.encode() in data)
    return frozenset(
        str(item.get("name"))
        for value in values
        for field in ("mutators", "validators")
        for item in mappings_at(value, _PIPELINE, field)
    )


def other_functions(files: Files, owners: FunctionOwners) -> list[str]:
    """Return the names of functions of a package that variants added who are not its owners, in order."""
    value = kptfile_value(files[KPTFILE].data) if KPTFILE in files else {}
    items = (item for field in ("mutators", "validators") for item in mappings_at(value, _PIPELINE, field))
    names = [str(item.get("name")) for item in items if not owners.has(item)]
    return [n for n in names if n.startswith(f"{_FUNCTION_PREFIX}.") and n not in owners.upstream]


def function_name(variant: str, function: str, index: int) -> str:
    """Return the name of a variant's own function.

    Source: porch packagevariant_controller.go, generatePVFuncName.
    Differs: a dot in the function's name becomes a dash, or the name could not be recognised.
    """
    return f"{_FUNCTION_PREFIX}.{variant}.{function.replace('.', '-')}.{index}"


def own_name(owners: FunctionOwners, function: str, index: int) -> str:
    """Return the name of a variant's function, with the namespace where upstream has one of that name."""
    name, qualified = (function_name(text, function, index) for text in _spellings(owners.variant))
    return qualified if name in owners.upstream else name


def is_own_function(name: str, variant: str) -> bool:
    """Return whether the variant added a function of this name.

    Source: porch packagevariant_controller.go, isPackageVariantFunc.
    Differs: the variant's name may have dots.
    """
    start = f"{_FUNCTION_PREFIX}.{variant}."
    if not name.startswith(start):
        return False
    function, dot, index = name.removeprefix(start).rpartition(".")
    number = index.removeprefix("-")
    return bool(dot) and "." not in function and number.isascii() and number.isdigit()


def shared_inventories(files: Files, upstream: Files) -> Iterator[str]:
    """Yield a warning for each inventory of `kpt live` that a package has from its upstream."""
    for name in sorted(_inventories(files) & _inventories(upstream)):
        yield (
            f"It has the inventory {name} of its upstream: `kpt live apply` prunes what other packages of a"
            " cluster with this inventory have"
        )


def _inventories(files: Files) -> set[str]:
    places = (files[name].data for name in (KPTFILE, RESOURCE_GROUP) if name in files)
    return {match.decode(errors="replace") for data in places for match in _INVENTORY.findall(data)}


def _pipeline_edits(
    kptfile: dict[str, Any], spec: PackageVariantSpec, owners: FunctionOwners
) -> Iterator[Edit]:
    present = mapping_at(kptfile, _PIPELINE)
    remaining = set(present)
    for field, functions in own_functions(spec):
        existing = present.get(field) if isinstance(present.get(field), list) else []
        entries = [_entry(function, owners, index) for index, function in enumerate(functions)]
        theirs = [item for item in existing or () if not owners.has(item)]
        if entries or theirs:
            remaining.add(field)
            yield from _function_edits(field, existing or [], entries, owners)
        elif field in present:
            remaining.discard(field)
            yield DeleteKey((_PIPELINE, field))
    if _PIPELINE in kptfile and not remaining:
        yield DeleteKey((_PIPELINE,))


def own_functions(spec: PackageVariantSpec) -> Iterator[tuple[str, Sequence[Function]]]:
    """Yield both lists of a variant's functions by their names."""
    pipeline = spec.pipeline
    yield "validators", (pipeline.validators if pipeline else None) or ()
    yield "mutators", (pipeline.mutators if pipeline else None) or ()


def _function_edits(
    field: str, existing: list[Any], entries: list[dict[str, Any]], owners: FunctionOwners
) -> Iterator[Edit]:
    # Functions that are there already keep every byte.
    former = [index for index, item in enumerate(existing) if owners.has(item)]
    if former == list(range(len(entries))) and existing[: len(entries)] == entries:
        return
    path = (_PIPELINE, field)
    for index, function in enumerate(entries):
        yield InsertItem(path, index, function)
    # The inserted functions have moved the former ones up.
    for index in reversed(former):
        yield DeleteItem((*path, index + len(entries)))


def _entry(function: Function, owners: FunctionOwners, index: int) -> dict[str, Any]:
    data = function.model_dump(exclude_none=True)
    data["name"] = own_name(owners, function.name or "", index)
    return {field: data[field] for field in _FUNCTION_FIELDS if field in data}


def _values(data: bytes) -> tuple[Any, ...]:
    """Return the read-only values of a file's documents: equal short files share them."""
    return _shared_values(data) if len(data) <= _LONG else _load(data)


@lru_cache(maxsize=_CACHED_FUNCTIONS)
def _shared_values(data: bytes) -> tuple[Any, ...]:
    # Edits of the file need its tree too. JSON, several documents and errors are left to the loader.
    if data[:1] != b"{":
        with suppress(YamlError, UnicodeDecodeError):
            tree = Tree.parse(data.decode())
            return (tree.value,) if tree.root is not None else ()
    return _load(data)


def _load(data: bytes) -> tuple[Any, ...]:
    return tuple(document.value for document in load_documents(data, KPTFILE_LIMITS))


def kptfile_value(data: bytes) -> dict[str, Any]:
    """Return the value of a Kptfile; empty if it is no YAML mapping."""
    try:
        values = _values(data)
    except YamlError:
        return {}
    value = values[0] if values else None
    return value if isinstance(value, dict) else {}


def owner_header(files: Files) -> KptfileHeader:
    """Return the owner and the location that a package's Kptfile names."""
    value = kptfile_value(files[KPTFILE].data) if KPTFILE in files else {}
    annotations = mapping_at(value, *_ANNOTATIONS)
    return KptfileHeader(str(annotations.get(OWNER, "")), str(annotations.get(LOCATION, "")))


def unmet_gates(kptfile: bytes) -> tuple[str, ...]:
    """Return the readiness gates without a true condition, sorted. Total: what is no Kptfile has no gates."""
    return unmet_gates_of(kptfile_value(kptfile))


def unmet_gates_of(value: dict[str, Any]) -> tuple[str, ...]:
    """Return the readiness gates of a Kptfile without a true condition as "type: reason", sorted. Total.

    Source: porch pkg/cli/commands/rpkg, readiness check of propose and approve.
    """
    conditions = {str(c.get("type", "")): c for c in mappings_at(value, "status", "conditions")}
    gates = {str(gate.get("conditionType", "")) for gate in mappings_at(value, "info", "readinessGates")}
    return tuple(
        f"{name}: {_why(conditions.get(name))}"
        for name in sorted(gates - {""})
        if str((conditions.get(name) or {}).get("status")) != "True"
    )


def _why(condition: dict[str, Any] | None) -> str:
    if condition is None:
        return "the package has no such condition"
    return str(condition.get("message") or condition.get("reason") or "it is not True")
