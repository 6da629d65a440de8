"""The pipeline of a Kptfile: a variant's own functions, put before the package's."""

from collections.abc import Iterator, Sequence
from typing import Any

from reconciler.api.kptfile import KPTFILE
from reconciler.api.porch import Function, PackageVariantSpec
from reconciler.krm.yaml import (
    PACKAGE_LIMITS,
    DeleteItem,
    DeleteKey,
    Edit,
    InsertItem,
    YamlError,
    load_documents,
)
from reconciler.objects import Files
from reconciler.reasons import Reason
from reconciler.render.editing import edit_file
from reconciler.render.rendered import Blocked

PREFIX = "PackageVariant"
_PIPELINE = "pipeline"
_FIELDS = ("name", "image", "exec", "tag", "configPath", "configMap", "selectors", "exclude")


def add_functions(files: Files, spec: PackageVariantSpec, variant: str) -> Files | Blocked:
    """Return the package with the variant's functions first in its pipeline, its former ones gone.

    Idempotent: a pipeline that is right already keeps every byte, and the package's own functions
    keep theirs in any case. A list that is emptied goes, and the pipeline with the last one.

    Source: porch packagevariant_controller.go, ensureKRMFunctions.
    Differs: names with dots are recognised too, so that no function is added twice.
    """
    file = files.get(KPTFILE)
    if file is None:
        return files
    try:
        documents = load_documents(file.data, PACKAGE_LIMITS)
        value = documents[0].value if documents else None
        if not isinstance(value, dict):
            return files
        return {**files, KPTFILE: edit_file(file, list(_edits(value, spec, variant)))}
    except YamlError as error:
        return Blocked(Reason.INVALID_PACKAGE, f"The pipeline of the Kptfile cannot be edited: {error}")


def function_name(variant: str, function: str, index: int) -> str:
    """Return the name that marks a function as a variant's own.

    Source: porch packagevariant_controller.go, generatePVFuncName.
    Differs: a dot in the function's name becomes a dash, or the name would not be known again.
    """
    return f"{PREFIX}.{variant}.{function.replace('.', '-')}.{index}"


def is_own_function(name: str, variant: str) -> bool:
    """Whether a function of this name was put there by the variant.

    Source: porch packagevariant_controller.go, isPackageVariantFunc.
    Differs: the variant's name may have dots.
    """
    start = f"{PREFIX}.{variant}."
    if not name.startswith(start):
        return False
    function, dot, index = name.removeprefix(start).rpartition(".")
    number = index.removeprefix("-")
    return bool(dot) and "." not in function and number.isascii() and number.isdigit()


def _edits(kptfile: dict[str, Any], spec: PackageVariantSpec, variant: str) -> Iterator[Edit]:
    pipeline = kptfile.get(_PIPELINE)
    present: dict[str, Any] = pipeline if isinstance(pipeline, dict) else {}
    left = set(present)
    for field, functions in _wanted(spec):
        existing = present.get(field) if isinstance(present.get(field), list) else []
        own = [_entry(function, variant, index) for index, function in enumerate(functions)]
        theirs = [item for item in existing or () if not _is_own(item, variant)]
        if own or theirs:
            left.add(field)
            yield from _list_edits(field, existing or [], own, variant)
        elif field in present:
            left.discard(field)
            yield DeleteKey((_PIPELINE, field))
    if _PIPELINE in kptfile and not left:
        yield DeleteKey((_PIPELINE,))


def _wanted(spec: PackageVariantSpec) -> Iterator[tuple[str, Sequence[Function]]]:
    given = spec.pipeline
    yield "validators", (given.validators if given else None) or ()
    yield "mutators", (given.mutators if given else None) or spec.mutators or ()


def _list_edits(field: str, existing: list[Any], own: list[dict[str, Any]], variant: str) -> Iterator[Edit]:
    former = [index for index, item in enumerate(existing) if _is_own(item, variant)]
    if former == list(range(len(own))) and existing[: len(own)] == own:
        return
    path = (_PIPELINE, field)
    for index, function in enumerate(own):
        yield InsertItem(path, index, function)
    for index in reversed(former):
        yield DeleteItem((*path, index + len(own)))


def _entry(function: Function, variant: str, index: int) -> dict[str, Any]:
    data = function.model_dump(mode="json", by_alias=True, exclude_none=True)
    data["name"] = function_name(variant, function.name or "", index)
    return {field: data[field] for field in _FIELDS if field in data}


def _is_own(item: Any, variant: str) -> bool:
    name = item.get("name") if isinstance(item, dict) else None
    return isinstance(name, str) and is_own_function(name, variant)
