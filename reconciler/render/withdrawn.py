"""Take out of packages what their variants wrote there and do not ask for any more.

Functions need this for Kptfiles and the package context alone: both sides of an update are rendered with
the functions that the Kptfile lists, and these files are not.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from msgspec.structs import replace

from reconciler.api.kptfile import KPTFILE, PACKAGE_CONTEXT_FILE, PACKAGE_CONTEXT_NAME
from reconciler.api.porch import PackageContext, PackageVariantSpec
from reconciler.functions.pipeline import RunPipelines
from reconciler.inventory.inventory import Inventory
from reconciler.krm.documents import ResourceDocument, documents_of
from reconciler.krm.merge import Node, root_of
from reconciler.krm.values import is_same, mapping_at
from reconciler.krm.yaml import SetValue
from reconciler.names.ids import ObjectName, Oid
from reconciler.names.objects import Files, tree_id
from reconciler.render.charts import ChartContents
from reconciler.render.injection import INJECTED, NAME, PACKAGE_PATH, asks_for, ensure_context, find_context
from reconciler.render.kptfile import (
    FunctionOwners,
    edit_kptfile,
    has_other_functions,
    kptfile_value,
    owner_header,
    upstream_functions,
)
from reconciler.render.merging import Contents, field_at, find_resource, injected_paths, with_fields
from reconciler.render.rendered import Blocked
from reconciler.resolve.ownership import find_owner, package_name
from reconciler.resolve.resolution import ResolvedVariant

Written = Mapping[str, str | None]
"""The keys of the package context that a variant wrote, with their values; None for one that it removed."""


def function_owners(
    files: Files, resolved: ResolvedVariant, inventory: Inventory, contents: Contents
) -> FunctionOwners:
    """Return the owners of a merged package's functions: upstream, the variant, and its former owner."""
    pins = (resolved.pin, resolved.base, resolved.draft_base)
    upstream = upstream_functions(contents.get(pin.tree, {}) for pin in pins if pin is not None)
    former = find_owner(owner_header(files), resolved.downstream, inventory)
    return FunctionOwners(resolved.variant.key, upstream, former)


def context_keys(spec: PackageContext | None) -> dict[str, str | None]:
    """Return what a variant writes into the package context."""
    return {**(spec.data or {}), **dict.fromkeys(spec.remove_keys or ())} if spec else {}


def take_back(
    variants: Iterable[ResolvedVariant], contents: Contents, inventory: Inventory, run: RunPipelines
) -> tuple[tuple[ResolvedVariant, ...], Contents]:
    """Return the variants with their packages as they would be without what is withdrawn. Total.

    These are the packages on main, and the drafts that people committed to. What people changed since stays,
    and so does what no record has, or a function that fails now wrote.
    """
    more = ChartContents(contents)
    variants = tuple(variants)
    sides = {(r.variant.key, side.is_draft): (r, side) for r in variants for side in _sides(r, contents)}
    bare = {}
    for place, (resolved, side) in sides.items():
        local = contents[side.local]
        owners = function_owners(local, resolved, inventory, contents)
        files = _bare(local, contents[side.base], resolved.variant.spec, owners)
        if files is not None and PACKAGE_CONTEXT_FILE in local.keys() - files.keys():
            files = _with_context(files, resolved, _written_context(local, resolved, inventory), inventory)
        if files is not None:
            bare[place] = files
    rendered = dict(zip(bare, run([*bare.values()]), strict=True)) if bare else {}
    taken: dict[tuple[ObjectName, bool], Oid] = {}
    for place, (resolved, side) in sides.items():
        local = contents[side.local]
        files = without_withdrawn(
            local,
            contents[side.base],
            resolved.variant.spec,
            _written_context(local, resolved, inventory),
            keeps_context=inventory.repositories[resolved.view].deployment,
            made=(bare[place], rendered[place].files) if place in bare and rendered[place].ok else ({}, {}),
        )
        if files != local:
            taken[place] = tree_id(files)
            more[taken[place]] = files
    return tuple(_taken_back(resolved, taken) for resolved in variants), more


def _written_context(local: Files, resolved: ResolvedVariant, inventory: Inventory) -> Written:
    former = find_owner(owner_header(local), resolved.downstream, inventory)
    record = inventory.records.get(former or resolved.variant.key)
    return record.context if record is not None else {}


def _with_context(
    files: Files, resolved: ResolvedVariant, written: Written, inventory: Inventory
) -> Files | None:
    """Return a package with the package context that its functions began with."""
    data = {key: value for key, value in written.items() if value is not None}
    spec = PackageContext(data=data, remove_keys=sorted(written.keys() - data.keys()))
    package = package_name(inventory.repositories[resolved.view], resolved.downstream.path)
    made = ensure_context(files, deployment=True, package=package, spec=spec)
    return None if isinstance(made, Blocked) else made


class _Side(NamedTuple):
    """A package that a variant has: on main, or in a draft with commits of people."""

    base: Oid
    local: Oid
    is_draft: bool


def _sides(resolved: ResolvedVariant, contents: Contents) -> Iterator[_Side]:
    draft = resolved.draft.tree if resolved.draft is not None and resolved.draft.append_only else None
    # What nobody edited is made anew.
    local = None if resolved.is_unedited else resolved.local
    both = ((resolved.base, local, False), (resolved.draft_base, draft, True))
    for base, side, is_draft in both if resolved.settled is None else ():
        if base and side and contents.keys() >= {base.tree, side}:
            yield _Side(base.tree, side, is_draft)


def _taken_back(resolved: ResolvedVariant, taken: Mapping[tuple[ObjectName, bool], Oid]) -> ResolvedVariant:
    local, draft = (taken.get((resolved.variant.key, is_draft)) for is_draft in (False, True))
    if local is None and draft is None:
        return resolved
    return replace(resolved, local=local or resolved.local, draft_local=draft)


def without_withdrawn(
    local: Files,
    original: Files,
    spec: PackageVariantSpec,
    written: Written,
    *,
    keeps_context: bool,
    made: tuple[Files, Files] = ({}, {}),
) -> Files:
    """Return a package with the original's values of what a variant wrote and does not ask for any more.

    These are the keys of the package context that are as `written`, the fields that were injected from an
    object that no injector names now, and of Kptfiles and the package context, which no update renders,
    the fields that are as in `made`: the original before and after all functions that local has. A context
    that was made for the variant alone goes, unless the repository `keeps_context`.
    """
    current = context_keys(spec.package_context)
    gone = {key: value for key, value in written.items() if key not in current}
    marks = [INJECTED.encode(), *([PACKAGE_CONTEXT_NAME.encode()] if gone or made[1] else [])]
    files = dict(local)
    for path, file in local.items():
        is_kptfile = path.rpartition("/")[2] == KPTFILE and path in made[1]
        if not is_kptfile and not any(mark in file.data for mark in marks):
            continue
        documents = documents_of(file)
        context = find_context(documents)
        for document in documents:
            keys = gone if document is context else {}
            data, there = mapping_at(document.data, "data"), find_resource(original, path, document.identity)
            is_made = path == PACKAGE_CONTEXT_FILE and there is None and not (current or keeps_context)
            if keys and is_made and len(documents) == 1 and not data.keys() - {*gone, NAME, PACKAGE_PATH}:
                del files[path]
                continue
            fields: list[tuple[str, ...]] = [("data", k) for k, v in keys.items() if data.get(k) == v]
            is_own = _source(document) != _source(there[1] if there is not None else None)
            if is_own and not asks_for(spec.injectors or (), document.data):
                fields += injected_paths(document)
            root = root_of(there[1].tree) if there is not None else None
            taken = _withdrawn_fields(path, document, *made) if is_kptfile or document is context else {}
            values = {name: field_at(root, name) for name in fields} | taken
            files[path] = with_fields(files[path], document, values)
    return files


_KPT = (("pipeline",), ("upstream",), ("upstreamLock",), ("status",))
"""Fields of a Kptfile that no function may keep."""


def _bare(local: Files, original: Files, spec: PackageVariantSpec, owners: FunctionOwners) -> Files | None:
    """Return the original with local's functions, None where the variant asks for all of its own."""
    value = kptfile_value(local[KPTFILE].data) if KPTFILE in local and KPTFILE in original else {}
    if not has_other_functions(value, spec, owners):
        return None
    name = mapping_at(value, "metadata").get("name")
    edits = (SetValue(("pipeline",), value["pipeline"]), SetValue(("metadata", "name"), name))
    files = edit_kptfile(original, lambda _: edits)
    return None if isinstance(files, Blocked) else files


def _withdrawn_fields(
    path: str, document: ResourceDocument, before: Files, made: Files
) -> dict[tuple[str, ...], Node | None]:
    """Return the former values of the fields of a document that functions wrote."""
    if path not in before or path not in made:
        return {}
    sides = zip(documents_of(before[path]), documents_of(made[path]), strict=False)
    for old, new in sides:
        if old.index == document.index:
            root = root_of(old.tree)
            return {name: field_at(root, name) for name in _written(document.data, new.data, old.data)}
    return {}


def _written(local: Any, made: Any, before: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the fields that functions changed, and that local has as they made them."""
    if not (isinstance(local, dict) and isinstance(made, dict)):
        return
    before = before if isinstance(before, dict) else {}
    for key in local.keys() & made.keys():
        if (*path, key) in _KPT or (key in before and is_same(before[key], made[key])):
            continue
        if is_same(local[key], made[key]):
            yield *path, key
        else:
            yield from _written(local[key], made[key], before.get(key), (*path, key))


def _source(document: ResourceDocument | None) -> object:
    """Return the name of the object that a resource was filled from; an upstream may have one of its own."""
    return mapping_at(document.data, "metadata", "annotations").get(INJECTED) if document else None
