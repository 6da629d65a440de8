"""Take out of packages what their variants wrote there and do not ask for any more.

Functions need little of this: the Kptfile lists them, and both sides of an update are rendered with them.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from reconciler.api.kptfile import KPTFILE, PACKAGE_CONTEXT_FILE, PACKAGE_CONTEXT_NAME
from reconciler.api.porch import PackageContext, PackageVariantSpec
from reconciler.inventory.inventory import Inventory
from reconciler.krm.documents import ResourceDocument, documents_of
from reconciler.krm.merge import Node, root_of
from reconciler.krm.values import mapping_at
from reconciler.names.objects import Files, tree_id
from reconciler.render.charts import ChartContents
from reconciler.render.context import NAME, PACKAGE_PATH, find_context
from reconciler.render.injection import INJECTED, asks_for
from reconciler.render.kptfile import FunctionOwners, kptfile_value, owner_header, upstream_functions
from reconciler.render.merging import Contents, field_at, find_resource, injected_paths, with_fields
from reconciler.resolve.ownership import find_owner
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
    variants: Iterable[ResolvedVariant], contents: Contents, inventory: Inventory
) -> tuple[tuple[ResolvedVariant, ...], Contents]:
    """Return the variants with the packages on main as they would be without what is withdrawn. Total.

    What people changed since stays, and so does what no record has.
    """
    more = ChartContents(contents)
    result = []
    for resolved in variants:
        base, local = resolved.base, resolved.local
        is_read = base and local and contents.keys() >= {base.tree, local}
        if resolved.settled is None and base and local and is_read:
            record = inventory.records.get(resolved.variant.key)
            view = inventory.repositories[resolved.view]
            files = without_withdrawn(
                contents[local],
                contents[base.tree],
                resolved.variant.spec,
                record.context if record is not None else {},
                function_owners(contents[local], resolved, inventory, contents),
                keeps_context=view.deployment,
            )
            if files != contents[local]:
                tree = tree_id(files)
                more[tree] = files
                resolved = replace(resolved, local=tree)  # noqa: PLW2901
        result.append(resolved)
    more.refused = getattr(contents, "refused", {})
    return tuple(result), more


def without_withdrawn(
    local: Files,
    original: Files,
    spec: PackageVariantSpec,
    written: Written,
    owners: FunctionOwners,
    *,
    keeps_context: bool,
) -> Files:
    """Return a package with the original's values of what a variant wrote and does not ask for any more.

    These are the keys of the package context that are as `written`, the fields that were injected from an
    object that no injector names now, and labels and annotations of the Kptfile and the package context,
    which no update renders. A context that was made for the variant alone goes, unless the
    repository `keeps_context`.
    """
    noted = dict(_metadata(local, spec, owners))
    current = context_keys(spec.package_context)
    gone = {key: value for key, value in written.items() if key not in current}
    marks = [INJECTED.encode(), *([PACKAGE_CONTEXT_NAME.encode()] if gone or noted else [])]
    files = dict(local)
    for path, file in local.items():
        is_kptfile = path == KPTFILE and bool(noted)
        if not is_kptfile and not any(mark in file.data for mark in marks):
            continue
        documents = documents_of(file)
        context = find_context(documents)
        for document in documents:
            keys = gone if document is context else {}
            if keys and _is_made(path, document, original) and not (current or keeps_context):
                rest = mapping_at(document.data, "data").keys() - gone.keys() - {NAME, PACKAGE_PATH}
                if not rest and len(documents) == 1:
                    del files[path]
                    continue
            fields: list[tuple[str, ...]] = [("data", k) for k, v in keys.items() if _value(document, k) == v]
            there = find_resource(original, path, document.identity)
            if is_kptfile and KPTFILE in original:
                there = next(((path, document) for document in documents_of(original[KPTFILE])), None)
            root = root_of(there[1].tree) if there is not None else None
            if is_kptfile or document is context:
                fields += _withdrawn_metadata(document, root, noted)
            is_own = _source(document) != _source(there[1] if there is not None else None)
            if is_own and not asks_for(spec.injectors or (), document.data):
                fields += injected_paths(document)
            files[path] = with_fields(files[path], document, {name: field_at(root, name) for name in fields})
    return files


_METADATA = {"set-labels": "labels", "set-annotations": "annotations"}
"""Functions that write metadata of every file, the Kptfile and the package context among them."""


def _metadata(
    local: Files, spec: PackageVariantSpec, owners: FunctionOwners
) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield the labels and annotations that functions of a variant wrote, and which it does not ask for."""
    functions = (*((spec.pipeline and spec.pipeline.mutators) or ()), *(spec.mutators or ()))
    present = {(_field(function.image), key) for function in functions for key in function.config_map or {}}
    pipeline = mapping_at(kptfile_value(local[KPTFILE].data), "pipeline") if KPTFILE in local else {}
    for item in pipeline.get("mutators") or ():
        if not owners.has(item):
            continue
        field = _field(item.get("image"))
        for key, value in mapping_at(item, "configMap").items() if field else ():
            if (field, key) not in present:
                yield (field, key), value


def _field(image: object) -> str:
    """Return the field of metadata that a function writes, "" of others."""
    return _METADATA.get(re.split("[:@]", str(image).rpartition("/")[2])[0], "")


def _withdrawn_metadata(
    document: ResourceDocument, original: Node | None, noted: Mapping[tuple[str, str], str]
) -> Iterator[tuple[str, ...]]:
    """Yield the fields of a document's metadata that are as functions wrote them, whole maps if all are."""
    for field in ("labels", "annotations"):
        there = mapping_at(document.data, "metadata", field)
        ours = {key for (name, key), value in noted.items() if name == field and there.get(key) == value}
        if ours and ours == there.keys() and field_at(original, ("metadata", field)) is None:
            yield "metadata", field
        else:
            yield from (("metadata", field, key) for key in sorted(ours))


def _is_made(path: str, document: ResourceDocument, original: Files) -> bool:
    return path == PACKAGE_CONTEXT_FILE and find_resource(original, path, document.identity) is None


def _source(document: ResourceDocument | None) -> object:
    """Return the name of the object that a resource was filled from; an upstream may have one of its own."""
    return mapping_at(document.data, "metadata", "annotations").get(INJECTED) if document else None


def _value(document: ResourceDocument, key: str) -> object:
    return mapping_at(document.data, "data").get(key)
