"""Packages and merges in tests: directories as files, and results compared as kpt's answers must be."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from reconciler.names.objects import File, Files, Mode
from reconciler.render.update import Conflict, UpdateRefused, update_package

IDENTIFIER = "internal.kpt.dev/upstream-identifier"
MINIMAL = "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: pkg\n"
_COMMENT = re.compile(r"(?:^|(?<=\s))#.*$", re.MULTILINE)


class _Texts(yaml.CSafeLoader):
    """Reads every scalar as its text and nulls as None, as kyaml compares them."""

    yaml_implicit_resolvers: dict[Any, Any] = {}  # noqa: RUF012 - PyYAML's own name

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if len(set(names)) < len(names):
            raise yaml.YAMLError("a key twice")
        return super().construct_mapping(node, deep)


def _text(_: Any, node: yaml.ScalarNode) -> str | None:
    plain = not node.style
    return None if plain and node.value in ("", "~", "null", "Null", "NULL") else node.value


_Texts.add_constructor("tag:yaml.org,2002:str", _text)


def files_of(texts: Mapping[str, str]) -> dict[str, File]:
    return {path: File.of(text.encode()) for path, text in texts.items()}


def files_of_bytes(contents: Mapping[str, bytes]) -> dict[str, File]:
    return {path: File.of(data) for path, data in contents.items()}


def read_tree(directory: Path) -> dict[str, File]:
    """Read the regular files of a directory; in tests they are all that there is."""
    found = sorted(path for path in directory.rglob("*") if path.is_file())
    return {
        path.relative_to(directory).as_posix(): File.of(
            path.read_bytes(), Mode.EXECUTABLE if path.stat().st_mode & 0o100 else Mode.REGULAR
        )
        for path in found
    }


def documents(data: bytes) -> Any:
    """Return a file's documents as texts, without kpt's identifiers; the bytes of what is no YAML."""
    try:
        found = [document for document in yaml.load_all(data.decode(), _Texts) if document is not None]
    except (yaml.YAMLError, UnicodeDecodeError):
        return data
    for document in found:
        metadata = document.get("metadata") if isinstance(document, dict) else None
        annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
        if isinstance(metadata, dict) and isinstance(annotations, dict) and IDENTIFIER in annotations:
            del annotations[IDENTIFIER]
            if not annotations:
                del metadata["annotations"]
    return found


def comments(data: bytes) -> list[str]:
    """Return the comments of a file in a stable order, without kpt's own."""
    found = (match.group().strip() for match in _COMMENT.finditer(data.decode(errors="replace")))
    return sorted(comment for comment in found if "kpt-merge:" not in comment)


def is_yaml(path: str) -> bool:
    return path.endswith((".yaml", ".yml", "Kptfile"))


def without_nothing(value: Any) -> Any:
    """Return data without nulls, which kpt drops, and without maps that hold nothing, which it leaves."""
    if isinstance(value, list):
        return [without_nothing(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {key: without_nothing(child) for key, child in value.items() if child is not None}
    return {key: child for key, child in kept.items() if child != {}}


def difference(
    got: Files, want: Files, *, with_comments: bool = False, loose: bool = False
) -> dict[str, tuple[Any, Any]]:
    """Return what differs, by path: (got, want). Comments of Kptfiles do not count: kpt loses them.

    A `loose` comparison takes no notice of nulls and empty maps.
    """
    found: dict[str, tuple[Any, Any]] = {}
    for path in sorted(got.keys() | want.keys()):
        mine, theirs = got.get(path), want.get(path)
        if mine is None or theirs is None:
            found[path] = ("absent" if mine is None else "present", "absent" if theirs is None else "present")
            continue
        read = (lambda data: without_nothing(documents(data))) if loose else documents
        read = read if is_yaml(path) else bytes
        if read(mine.data) != read(theirs.data):
            found[path] = (read(mine.data), read(theirs.data))
        elif with_comments and is_yaml(path) and not path.endswith("Kptfile"):
            pair = comments(mine.data), comments(theirs.data)
            if pair[0] != pair[1]:
                found[path] = pair
    return found


def attempt(
    original: Files, upstream: Files, local: Files, **options: Any
) -> tuple[Files, tuple[Conflict, ...], bool]:
    """Return the package after an update, its conflicts, and whether the update was refused."""
    try:
        updated = update_package(original, upstream, local, **options)
    except UpdateRefused as refused:
        return local, refused.conflicts, True
    return updated.files, updated.conflicts, False
