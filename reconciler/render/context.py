"""Write the package context: the ConfigMap with a package's own name, and the variant's keys."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from reconciler.api.kptfile import KPTFILE, PACKAGE_CONTEXT_FILE, PACKAGE_CONTEXT_NAME
from reconciler.api.porch import PackageContext
from reconciler.base.reasons import Reason
from reconciler.krm.documents import ResourceDocument, documents_of, edit_document, resources_in
from reconciler.krm.merge import UPSTREAM_IDENTIFIER
from reconciler.krm.values import mapping_at
from reconciler.krm.yaml import DeleteKey, Edit, SetValue, YamlError
from reconciler.names.objects import File, Files
from reconciler.render.rendered import Blocked

NAME = "name"
PACKAGE_PATH = "package-path"
_NAME = PACKAGE_CONTEXT_NAME.encode()

_NEW = f"""\
apiVersion: v1
kind: ConfigMap
metadata: # kpt-merge: /{PACKAGE_CONTEXT_NAME}
  name: {PACKAGE_CONTEXT_NAME}
  annotations:
    config.kubernetes.io/local-config: "true"
    {UPSTREAM_IDENTIFIER}: '|ConfigMap|default|{PACKAGE_CONTEXT_NAME}'
data:
"""


def ensure_context(
    files: Files, *, deployment: bool, package: str, spec: PackageContext | None
) -> Files | Blocked:
    """Create the package context if needed, set its own keys, then set and remove the variant's keys.

    Idempotent. A context is created for a deployment repository, or if the variant sets or removes keys; an
    existing one keeps its other values, order and comments, and has its own name again if a function renamed
    it. Removal wins over setting.

    Source: porch packagevariant_controller.go, ensurePackageContext; kpt builtins, PackageContext.
    Differs: a missing context is created, and an upstream's is kept instead of dropped.
    """
    data = dict(spec.data or {}) if spec else {}
    removed = tuple(dict.fromkeys(spec.remove_keys or ())) if spec else ()
    path = _context_file(files)
    if not (deployment or data or removed):
        split = resources_in(files[path]) if path in files else None
        context = find_context(split.documents) if split is not None else None
        if context is None or context.data["metadata"].get("name") == PACKAGE_CONTEXT_NAME:
            return files
    name = package.rpartition("/")[2]
    fields = {NAME: name, PACKAGE_PATH: package} if deployment else {}
    file = files.get(path) or File.of(f"{_NEW}  name: {name}\n".encode())
    edited = _edit(path, file, {**fields, **data}, removed)
    return edited if isinstance(edited, Blocked) else {**files, path: edited}


def _context_file(files: Files) -> str:
    """Return the file of the package context: Porch's, unless only another file of the package has one.

    A second ConfigMap of that name would make the package invalid. Sub-packages have their own.
    """
    if PACKAGE_CONTEXT_FILE in files:
        return PACKAGE_CONTEXT_FILE
    inner = tuple(path.removesuffix(KPTFILE) for path in files if path.endswith(f"/{KPTFILE}"))
    for path in sorted(files):
        if path.startswith(inner) or not path.endswith((".yaml", ".yml")) or _NAME not in files[path].data:
            continue
        if find_context(documents_of(files[path])) is not None:
            return path
    return PACKAGE_CONTEXT_FILE


def _edit(path: str, file: File, data: Mapping[str, str], removed: tuple[str, ...]) -> File | Blocked:
    split = resources_in(file)
    if split is None:
        return Blocked(Reason.CONTEXT_NOT_INJECTED, f"{path} is no YAML that can be edited")
    context = find_context(split.documents)
    if context is None:
        return Blocked(
            Reason.CONTEXT_NOT_INJECTED,
            f"{path} has no ConfigMap named {PACKAGE_CONTEXT_NAME}",
            f"Add it to {path}, or delete the file to have it created again.",
        )
    try:
        return edit_document(file, _edits(context.data, data, removed), index=context.index)
    except YamlError as error:
        return Blocked(Reason.CONTEXT_NOT_INJECTED, f"{path} cannot be edited: {error}")


def _edits(context: Any, data: Mapping[str, str], removed: tuple[str, ...]) -> Iterator[Edit]:
    if context["metadata"].get("name") != PACKAGE_CONTEXT_NAME:
        yield SetValue(("metadata", "name"), PACKAGE_CONTEXT_NAME)
    present = mapping_at(context, "data")
    new = sorted(data.keys() - present.keys())
    for key in [*(k for k in present if k in data), *new]:
        if key not in removed and present.get(key) != data[key]:
            yield SetValue(("data", key), data[key])
    yield from (DeleteKey(("data", key)) for key in removed if key in present)


def find_context(documents: Iterable[ResourceDocument]) -> ResourceDocument | None:
    """Return the context by its identity, else the ConfigMap that a function gave a prefix or suffix."""
    maps = [
        d for d in documents if d.identity.kind == "ConfigMap" and isinstance(d.data.get("metadata"), dict)
    ]
    # A function may rename the ConfigMap; its identity has the name of the merge comment.
    named = [d for d in maps if d.identity.name == PACKAGE_CONTEXT_NAME]
    renamed = [d for d in maps if PACKAGE_CONTEXT_NAME in str(d.data["metadata"].get("name"))]
    return next(iter(named or renamed), None)
