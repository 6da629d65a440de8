"""`.krmignore`: which YAML files of a package are not resources."""

import re
from collections.abc import Iterable
from functools import lru_cache

from reconciler.objects import Files

IGNORE_FILE = ".krmignore"


def ignored_paths(files: Files) -> frozenset[str]:
    """Return the paths of one package that its `.krmignore` hides.

    Gitignore patterns without `a/**/b`; a later `!pattern` takes a path back. The file of a
    package does not reach into its sub-packages, whose files are not passed here.
    """
    ignore = files.get(IGNORE_FILE)
    if ignore is None:
        return frozenset()
    rules = _rules(ignore.data)
    return frozenset(path for path in files if path != IGNORE_FILE and _is_ignored(path, rules))


_Rule = tuple[bool, bool, re.Pattern[str]]


@lru_cache(maxsize=256)
def _rules(data: bytes) -> tuple[_Rule, ...]:
    """Return (hides, directories only, pattern) of each line."""
    rules: list[_Rule] = []
    for raw in data.decode(errors="replace").splitlines():
        line = raw.rstrip()
        if not line or line.startswith("#"):
            continue
        hides = not line.startswith("!")
        body = line if hides else line[1:]
        rules.append((hides, body.endswith("/"), re.compile(_translate(body.rstrip("/")))))
    return tuple(rules)


def _translate(pattern: str) -> str:
    anchored = "/" in pattern
    parts = re.split(r"(\*\*/|\*\*|\*|\?|\[[^\]]*\])", pattern.lstrip("/"))
    wild = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    body = "".join(wild.get(part, part if part[:1] == "[" else re.escape(part)) for part in parts)
    return ("" if anchored else "(?:.*/)?") + body + r"\Z"


def _is_ignored(path: str, rules: Iterable[_Rule]) -> bool:
    parts = path.split("/")
    prefixes = ["/".join(parts[:depth]) for depth in range(1, len(parts))]
    hidden = False
    for hides, directories_only, pattern in rules:
        candidates = prefixes if directories_only else [*prefixes, path]
        if any(pattern.match(candidate) for candidate in candidates):
            hidden = hides
    return hidden
