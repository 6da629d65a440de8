"""Edits as people and upstream authors make them: one change of one package's files, with a token."""

import re
from collections.abc import Mapping
from random import Random
from typing import Any

Files = Mapping[str, bytes]
Changes = dict[str, bytes | None]
VALUE = re.compile(r"^(\s*(?:- )?[\w./-]+): ([\w./:-]+)(\s+#.*)?$")
PROTECTED = ("apiVersion", "kind", "name", "namespace", "package-path", "image", "configPath", "branch")
KINDS = (
    "value",
    "value",
    "value",
    "comment",
    "note",
    "file",
    "document",
    "rename",
    "drop",
    "remove",
    "describe",
)
CONFIG_MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {token}\ndata:\n  word: {token}\n"


def draw_edit(random: Random, files: Files) -> dict[str, Any] | None:
    """Choose an edit of a package; None where nothing fits."""
    kind = random.choice(KINDS)
    names = sorted(path for path in files if _is_editable(path, files[path]))
    if kind in ("file", "describe"):
        return {"kind": kind, "file": "Kptfile", "line": ""}
    if kind == "note":
        readme = [path for path in sorted(files) if path.endswith(".md")]
        return {"kind": kind, "file": random.choice(readme), "line": ""} if readme else None
    if not names:
        return None
    file = random.choice(names)
    lines = _lines(files[file], kind)
    if kind in ("remove", "document"):
        return {"kind": kind, "file": file, "line": ""}
    return {"kind": kind, "file": file, "line": random.choice(lines)} if lines else None


def value_lines(files: Files) -> list[tuple[str, str]]:
    """Return the lines of a package whose value people may change, each with its file."""
    editable = (path for path in sorted(files) if _is_editable(path, files[path]))
    return [(path, line) for path in editable for line in _lines(files[path], "value")]


def apply_edit(files: Files, edit: Mapping[str, Any], token: str) -> Changes:
    """Return the changed files; nothing where the edit does not fit any more."""
    file, kind = edit["file"], edit["kind"]
    if kind == "file":
        return {f"{token}.yaml": CONFIG_MAP.format(token=token).encode()}
    if file not in files:
        return {}
    if kind == "remove":
        return {file: None}
    text = files[file].decode()
    end = "\r\n" if "\r\n" in text else "\n"
    text = text.replace("\r\n", "\n")
    changed = _in_lines(text, edit["line"], kind, token) if edit["line"] else _in_text(text, kind, token)
    return {file: changed.replace("\n", end).encode()} if changed != text else {}


def _in_text(text: str, kind: str, token: str) -> str:
    if kind == "note":
        return f"{text.rstrip()}\n\nSee {token}.\n"
    if kind == "document":
        separator = "" if text.endswith("\n") else "\n"
        return f"{text}{separator}---\n{CONFIG_MAP.format(token=token)}"
    if kind == "describe":
        return re.sub(r"^(  description): .*$", rf"\1: {token}", text, count=1, flags=re.MULTILINE)
    return text


def _in_lines(text: str, line: str, kind: str, token: str) -> str:
    lines = text.split("\n")
    if line not in lines:
        return text
    number = lines.index(line)
    if kind == "comment":
        lines.insert(number, f"{line[: len(line) - len(line.lstrip())]}# {token}")
    elif kind == "drop":
        del lines[number]
    elif parts := VALUE.match(line):
        lines[number] = f"{parts[1]}: {token}{parts[3] or ''}"
    return "\n".join(lines)


def _is_editable(path: str, data: bytes) -> bool:
    """Whether functions, injection and context leave what is written there alone."""
    made = (b"StarlarkRun", b"kptfile.kpt.dev", b"config-injection")
    return path.endswith(".yaml") and not any(word in data for word in made)


def _lines(data: bytes, kind: str) -> list[str]:
    lines = [line for line in data.decode().split("\n") if VALUE.match(line) and "kpt-set" not in line]
    if kind == "rename":
        return [line for line in lines if re.match(r"^  name: ", line)]
    plain = [line for line in lines if _key(line) not in PROTECTED and "injected" not in line]
    return [line for line in plain if "local-config" not in line and "config-injection" not in line]


def _key(line: str) -> str:
    return line.strip().removeprefix("- ").partition(":")[0]
