"""The package context: the ConfigMap that tells a package its own name, and what its variant adds."""

from collections.abc import Iterator, Mapping
from typing import Any

from reconciler.api.kptfile import PACKAGE_CONTEXT_FILE, PACKAGE_CONTEXT_NAME
from reconciler.api.porch import PackageContext
from reconciler.krm.yaml import (
    PACKAGE_LIMITS,
    DeleteKey,
    Document,
    Edit,
    SetValue,
    YamlError,
    load_documents,
)
from reconciler.objects import File, Files
from reconciler.reasons import Reason
from reconciler.render.editing import edit_file
from reconciler.render.rendered import Blocked

NAME = "name"
PACKAGE_PATH = "package-path"

_NEW = f"""\
apiVersion: v1
kind: ConfigMap
metadata:
  name: {PACKAGE_CONTEXT_NAME}
  annotations:
    config.kubernetes.io/local-config: "true"
data:
"""


def ensure_context(
    files: Files, *, deployment: bool, package: str, spec: PackageContext | None
) -> Files | Blocked:
    """Return the package with its context made, its own keys set, then the variant's set and removed.

    Idempotent. A context is made where a deployment repository or the variant asks for one; what
    a package brings along keeps its values, order and comments. Removal wins over setting.

    Source: porch packagevariant_controller.go, ensurePackageContext; kpt builtins, PackageContext.
    Differs: a missing context is created, and an upstream's is kept instead of dropped.
    """
    data = dict(spec.data or {}) if spec else {}
    removed = tuple(dict.fromkeys(spec.remove_keys or ())) if spec else ()
    if not (deployment or data or removed):
        return files
    name = package.rpartition("/")[2]
    own = {NAME: name, PACKAGE_PATH: package} if deployment else {}
    file = files.get(PACKAGE_CONTEXT_FILE) or File.of(f"{_NEW}  name: {name}\n".encode())
    edited = _edit(file, {**own, **data}, removed)
    return edited if isinstance(edited, Blocked) else {**files, PACKAGE_CONTEXT_FILE: edited}


def _edit(file: File, data: Mapping[str, str], removed: tuple[str, ...]) -> File | Blocked:
    try:
        found = _find(load_documents(file.data, PACKAGE_LIMITS))
        if found is None:
            return Blocked(
                Reason.CONTEXT_NOT_INJECTED,
                f"{PACKAGE_CONTEXT_FILE} has no ConfigMap named {PACKAGE_CONTEXT_NAME}",
                f"Add it to {PACKAGE_CONTEXT_FILE}, or delete that file and it is made anew.",
            )
        index, value = found
        return edit_file(file, _edits(value.get("data"), data, removed), index=index)
    except YamlError as error:
        return Blocked(Reason.CONTEXT_NOT_INJECTED, f"{PACKAGE_CONTEXT_FILE} cannot be edited: {error}")


def _edits(existing: Any, data: Mapping[str, str], removed: tuple[str, ...]) -> Iterator[Edit]:
    present: dict[str, Any] = existing if isinstance(existing, dict) else {}
    new = sorted(data.keys() - present.keys())
    for key in [*(k for k in present if k in data), *new]:
        if key not in removed and present.get(key) != data[key]:
            yield SetValue(("data", key), data[key])
    yield from (DeleteKey(("data", key)) for key in removed if key in present)


def _find(documents: tuple[Document, ...]) -> tuple[int, dict[str, Any]] | None:
    for index, document in enumerate(documents):
        value = document.value
        if isinstance(value, dict) and value.get("kind") == "ConfigMap":
            metadata = value.get("metadata")
            if isinstance(metadata, dict) and metadata.get("name") == PACKAGE_CONTEXT_NAME:
                return index, value
    return None
