"""Tree objects as bytes: parsing them without loss, and judging the names and modes in them."""

from collections.abc import Iterable
from typing import NamedTuple

from reconciler.file_names import refuse_name
from reconciler.ids import Oid
from reconciler.objects import Entry, Mode

_GITLINK = 0o160000
_KNOWN_MODES = {
    0o040000: Mode.TREE,
    0o100644: Mode.REGULAR,
    0o100664: Mode.REGULAR,
    0o100755: Mode.EXECUTABLE,
    0o120000: Mode.SYMLINK,
}


class RawEntry(NamedTuple):
    """One entry of a tree exactly as it is stored, so that rewriting its siblings never changes it."""

    mode: bytes
    name: bytes
    oid: bytes

    @property
    def is_tree(self) -> bool:
        """Whether the entry is a directory, zero-padded mode or not."""
        return self.mode.lstrip(b"0") == b"40000"


class Refusal(NamedTuple):
    """An entry, or a path, that nothing may be read from or written to, and why."""

    name: str
    why: str


def parse_tree(data: bytes) -> list[RawEntry]:
    """Return the entries of a tree object's bytes, in their order.

    Raises: ValueError if the bytes are not a tree.
    """
    entries = []
    start, end = 0, len(data)
    while start < end:
        space = data.index(b" ", start)
        nul = data.index(b"\0", space)
        if nul + 21 > end:
            raise ValueError("truncated tree")
        entries.append(RawEntry(data[start:space], data[space + 1 : nul], data[nul + 1 : nul + 21]))
        start = nul + 21
    return entries


def format_tree(entries: Iterable[RawEntry]) -> bytes:
    """Return a tree object's bytes, its entries in Git's order (a directory sorts with a final slash)."""
    ordered = sorted(entries, key=lambda e: e.name + b"/" if e.is_tree else e.name)
    return b"".join(b"%b %b\0%b" % entry for entry in ordered)


def judge_entry(raw: RawEntry) -> Entry | Refusal:
    """Return the entry if its name and mode are safe to use, else why it is refused. Total."""
    try:
        name = raw.name.decode()
        mode = int(raw.mode, 8)
    except ValueError:
        return Refusal(repr(raw.name)[2:-1], "its name is not UTF-8 or its mode is not a number")
    if mode == _GITLINK:
        return Refusal(name, "it is a submodule")
    if mode not in _KNOWN_MODES:
        return Refusal(name, f"its mode {mode:o} is unknown")
    if why := refuse_name(name):
        return Refusal(name, why)
    return Entry(name, _KNOWN_MODES[mode], Oid(raw.oid.hex()))


def refuse_link(path: str, target: bytes) -> str:
    """Return why a symbolic link at `path` of a package cannot be kept, "" if its target stays inside.

    `..` is taken only at the start of a target: after a name it would leave from where another link leads.
    """
    try:
        segments = target.decode().split("/")
    except UnicodeDecodeError:
        return "the target of the link is not UTF-8"
    ups = next((i for i, segment in enumerate(segments) if segment != ".."), len(segments))
    if ups > path.count("/"):
        return "the target of the link is outside the package"
    why = next((why for segment in segments[ups:] if segment != "." and (why := refuse_name(segment))), "")
    return f"in the target of the link, {why}" if why else ""
