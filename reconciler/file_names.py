"""Names of files in repositories: safe on every file system, whoever wrote them."""

import re
import unicodedata
from functools import lru_cache

_LONGEST_NAME = 255
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")
_SHORT_NAME = re.compile(r"git~[0-9]+")


@lru_cache(maxsize=1 << 16)
def refuse_name(name: str) -> str:
    """Return why `name` cannot be one segment of a path, "" if it can.

    What some file system would take for `.git` or for another directory is refused on every one.
    """
    if _PLAIN_NAME.fullmatch(name) and "git" not in name.lower() and len(name) <= _LONGEST_NAME:
        return ""
    if name in {"", ".", ".."}:
        return "its name is empty or stands for another directory"
    if "/" in name or "\\" in name:
        return "its name contains a slash"
    if any(unicodedata.category(c) in {"Cc", "Cs"} for c in name):
        return "its name contains a control character"
    if len(name.encode()) > _LONGEST_NAME:
        return f"its name is longer than {_LONGEST_NAME} bytes"
    return _refuse_git(name)


def refuse_path(path: str, *, depth: int = 50) -> str:
    """Return why `path` cannot be a path in a repository, "" if it can; `depth` bounds its segments."""
    segments = path.split("/")
    if len(segments) > depth:
        return f"it is deeper than {depth} directories"
    return next((why for segment in segments if (why := refuse_name(segment))), "")


def folded(name: str) -> str:
    """Return the key under which two names are one file on some file system."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def _refuse_git(name: str) -> str:
    visible = "".join(c for c in name if unicodedata.category(c) != "Cf")
    plain = unicodedata.normalize("NFKC", visible).casefold().partition(":")[0].rstrip(". ")
    if plain in {".git", ".gitmodules"} or _SHORT_NAME.fullmatch(plain):
        return "some file systems take its name for Git's own"
    return ""
