"""Check the fields of a Kptfile: an unknown or mistyped one is an error, never taken as absent (D31)."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final, NamedTuple

from reconciler.api.kptfile import KPTFILE, KPTFILE_VERSION
from reconciler.base.suggestions import suggest
from reconciler.krm.yaml import PACKAGE_LIMITS, Document, Path, YamlError, load_documents, path_text
from reconciler.names.objects import File, Files, Mode


class KptfileError(NamedTuple):
    """One fault of a Kptfile: its file, its line from 1, what is wrong, and what to do."""

    path: str
    line: int
    message: str
    hint: str = ""

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}" if self.line else self.path
        return f"{place}: {self.message}{f'. {self.hint}' if self.hint else ''}"


_TEXT: Final = "text"
_TEXTS: Final = [_TEXT]
_MAP: Final = {"*": _TEXT}
_GIT: Final = {"repo": _TEXT, "directory": _TEXT, "ref": _TEXT}
_SELECTOR: Final = {
    **dict.fromkeys(("apiVersion", "kind", "name", "namespace"), _TEXT),
    "labels": _MAP,
    "annotations": _MAP,
}
_FUNCTION: Final = {
    **dict.fromkeys(("image", "exec", "configPath", "name", "tag"), _TEXT),
    "configMap": _MAP,
    "selectors": [_SELECTOR],
    "exclude": [_SELECTOR],
}
_KPTFILE: Final[dict[str, Any]] = {
    "apiVersion": _TEXT,
    "kind": _TEXT,
    # Kubernetes' own fields of metadata are no mistake.
    "metadata": {"name": _TEXT, "namespace": _TEXT, "labels": _MAP, "annotations": _MAP, "*": None},
    "upstream": {"type": _TEXT, "git": _GIT, "updateStrategy": _TEXT},
    "upstreamLock": {
        "type": _TEXT,
        "git": {**_GIT, "commit": _TEXT},
        "generic": dict.fromkeys(("storeID", "resourceID", "resourceVersion"), _TEXT),
    },
    "info": {
        **dict.fromkeys(("site", "license", "licenseFile", "description", "man"), _TEXT),
        "emails": _TEXTS,
        "keywords": _TEXTS,
        "readinessGates": [{"conditionType": _TEXT}],
    },
    "pipeline": {"mutators": [_FUNCTION], "validators": [_FUNCTION]},
    "inventory": {
        **dict.fromkeys(("namespace", "name", "inventoryID"), _TEXT),
        "labels": _MAP,
        "annotations": _MAP,
    },
    "status": {
        "conditions": [dict.fromkeys(("type", "status", "reason", "message"), _TEXT)],
        "renderStatus": None,
    },
}
"""Fields of a Kptfile by name: a text, a list, a mapping (`*` for any key), or None for what is not checked.

Source: kpt api/kptfile/v1, KptFile, which is decoded strictly.
"""
_OLD_VERSIONS: Final = ("kpt.dev/v1alpha1", "kpt.dev/v1alpha2")
_MIGRATION: Final = "Bring the package to kpt.dev/v1: https://kpt.dev/installation/migration."
_HINT: Final = "Write `apiVersion: kpt.dev/v1`, `kind: Kptfile` and `metadata.name` into it."


def check_kptfiles(files: Files) -> tuple[KptfileError, ...]:
    """Return the faults of all Kptfiles of a package, by file and line."""
    kptfiles = sorted(path for path in files if path.rpartition("/")[2] == KPTFILE)
    return tuple(error._replace(path=path) for path in kptfiles for error in _faults(files[path]))


@lru_cache(maxsize=1024)
def _faults(file: File) -> tuple[KptfileError, ...]:
    if file.mode == Mode.SYMLINK:
        return (KptfileError(KPTFILE, 0, "The Kptfile is a symbolic link", "Put the file itself there."),)
    try:
        documents = load_documents(file.data, PACKAGE_LIMITS)
    except YamlError as error:
        message = f"The Kptfile cannot be read: {error.message}"
        return (KptfileError(KPTFILE, error.line, message, error.hint),)
    value = documents[0].value if documents else None
    if not isinstance(value, dict):
        return (KptfileError(KPTFILE, 1, "The Kptfile cannot be read: it has no fields", _HINT),)
    found = _version_faults(documents[0]) or [*_fields(documents[0], value, _KPTFILE, ())]
    return tuple(sorted(found, key=lambda error: error.line))


def _version_faults(document: Document) -> list[KptfileError]:
    version, kind = document.value.get("apiVersion"), document.value.get("kind")
    if (version, kind) == (KPTFILE_VERSION, KPTFILE):
        return []
    line, _ = document.key_mark(("kind" if version == KPTFILE_VERSION else "apiVersion",))
    if kind == KPTFILE and version in _OLD_VERSIONS:
        message = f"The Kptfile has an old version ({version}) of its schema"
        return [KptfileError(KPTFILE, line, message, _MIGRATION)]
    message = (
        f"The Kptfile has an unknown resource type ({version or 'no apiVersion'}, kind {kind or 'none'})"
    )
    return [KptfileError(KPTFILE, line, message, _HINT)]


def _fields(document: Document, value: Any, shape: Any, path: Path) -> Iterator[KptfileError]:
    """Yield the unknown and mistyped fields of a value; a null is an absent field."""
    if value is None or shape is None:
        return
    kind = dict if isinstance(shape, dict) else list if isinstance(shape, list) else str
    if kind is str and isinstance(value, (dict, list)):
        yield _fault(document, path, "must be one value, and is a " + _NAMES[type(value)])
    elif kind is not str and not isinstance(value, kind):
        yield _fault(document, path, f"must be a {_NAMES[kind]}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _fields(document, item, shape[0], (*path, index))
    elif isinstance(value, dict):
        for name, item in value.items():
            if name in shape or "*" in shape:
                yield from _fields(document, item, shape.get(name, shape.get("*")), (*path, name))
            else:
                yield _fault(document, (*path, name), "is no field of a Kptfile", suggest(name, shape))


_NAMES: Final[dict[type, str]] = {dict: "mapping", list: "list"}


def _fault(document: Document, path: Path, message: str, hint: str = "") -> KptfileError:
    line, _ = document.key_mark(path)
    return KptfileError(KPTFILE, line, f"{path_text(path)} {message}", hint)
