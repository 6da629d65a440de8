"""Where a package update wanted here differs from kpt's: rules over the input and both results.

A rule is the name of a row of `docs/contributing/divergences.md` and a predicate. It sees one value that
differs: in the three sides, in kpt's result and in ours. An update that no rule explains fails, whatever
package it is from.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatch
from typing import Any, Final, NamedTuple

from reconciler.names.objects import Files
from tests.support.merges import comments, documents, is_yaml, without_nothing

ABSENT: Final = "<absent>"
"""The value of a field, document or file that is not there."""
COMMENTS: Final = ("#",)
"""The field of a row about the comments of a file."""
OF_THE_TOOL: Final = ("upstream", "upstreamLock")
"""Fields of a package's Kptfile that say where it is from; each test has an address of its own."""


class Outcome(NamedTuple):
    """What an update made: the files, the error that ended it, and each (file, resource) with a conflict."""

    files: Files
    error: str = ""
    conflicts: frozenset[tuple[str, str]] = frozenset()


class Update(NamedTuple):
    """An update of a package by kpt and by us; `asked` is ours with conflicts left to a person."""

    original: Files
    upstream: Files
    local: Files
    strategy: str
    kpts: Outcome
    ours: Outcome
    asked: Outcome
    compatible: bool = False


class Row(NamedTuple):
    """One value that differs, in a file's document, on every side."""

    update: Update
    path: str
    at: tuple[Any, ...]
    base: Any
    upstream: Any
    local: Any
    kpts: Any
    ours: Any

    def __str__(self) -> str:
        values = {name: getattr(self, name) for name in ("base", "upstream", "local", "kpts", "ours")}
        where = f"{self.path} {'.'.join(map(str, self.at))}"
        return "\n".join((where, *(f"    {name:9}{str(value)[:300]}" for name, value in values.items())))


def unexplained(update: Update) -> list[str]:
    """Return what no rule explains: values that differ from kpt's, an error of one of both, lost edits."""
    found = [] if update.compatible else [f"lost: {edit}" for edit in lost_edits(update)]
    if bool(update.kpts.error) is bool(update.ours.error) is False:
        return found + [str(row) for row in rows(update) if not rules_of(row)]
    if not (update.kpts.error and update.ours.error) and not any(
        applies(update) for applies in FAILURES.values()
    ):
        found.append(f"kpt: {update.kpts.error or 'no error'}; ours: {update.ours.error or 'no error'}")
    return found


def rules_of(row: Row) -> list[str]:
    """Return the names of the rules that explain a row."""
    rules = BOTH if row.update.compatible else {**BOTH, **DEFAULT}
    return [name for name, explains in rules.items() if explains(row)]


def names_of(update: Update) -> set[str]:
    """Return the names of the rules that an update needs."""
    failures = {name for name, applies in FAILURES.items() if applies(update)}
    compared = not update.kpts.error and not update.ours.error
    return {name for row in rows(update) for name in rules_of(row)} if compared else failures


# Rows: what differs, by file, document and field.


def rows(update: Update) -> Iterator[Row]:
    """Yield every value that differs between kpt's result and ours."""
    ours, kpts = documents_of(update.ours.files), documents_of(update.kpts.files)
    sides = [documents_of(side) for side in (update.original, update.upstream, update.local)]
    for key in sorted(ours.keys() | kpts.keys(), key=str):
        found = [*(_side(side, key) for side in sides), kpts.get(key, ABSENT), ours.get(key, ABSENT)]
        for at, values in differences((), found):
            yield Row(update, key[0], at, *values)
    if update.compatible:
        for path in sorted(update.ours.files.keys() & update.kpts.files.keys()):
            found = [
                _comments(files.get(path)) for files in (*update[:3], update.kpts.files, update.ours.files)
            ]
            is_text = any(
                "#" in str(documents(files[path].data))
                for files in (update.ours.files, update.upstream)
                if path in files
            )
            if found[3] != found[4] and not path.endswith("Kptfile") and not is_text:
                yield Row(update, path, COMMENTS, *found)


def _comments(file: Any) -> Any:
    return comments(file.data) if file else []


Key = tuple[str, str, int]
"""A document: its file, the name of its resource, and which of those of that name it is."""


def documents_of(files: Files) -> dict[Key, Any]:
    """Return the documents of all files; a file that is no YAML is one of bytes."""
    found: dict[Key, Any] = {}
    for path, file in files.items():
        read = documents(file.data) if is_yaml(path) or path.endswith(".json") else file.data
        if isinstance(read, bytes):
            found[path, "", 0] = read
            continue
        seen: Counter[str] = Counter()
        for document in read:
            name = "" if path.endswith("Kptfile") else _identity(document)
            if path == "Kptfile" and isinstance(document, dict):
                document = {key: value for key, value in document.items() if key not in OF_THE_TOOL}  # noqa: PLW2901
            found[path, name, seen[name]] = document
            seen[name] += 1
    return found


def _identity(document: Any) -> str:
    metadata = document.get("metadata") if isinstance(document, dict) else None
    name = metadata.get("name", "") if isinstance(metadata, dict) else ""
    return f"{document['kind']} {name}" if name and "kind" in document else ""


def _side(side: dict[Key, Any], key: Key) -> Any:
    """Return a document as one side has it, in its file or wherever it was moved."""
    if key in side or not key[1]:
        return side.get(key, ABSENT)
    return next((side[other] for other in side if other[1:] == key[1:]), ABSENT)


def differences(
    at: tuple[Any, ...], values: Sequence[Any]
) -> Iterator[tuple[tuple[Any, ...], Sequence[Any]]]:
    """Yield the fields of which the last two of five values differ; lists of other lengths are one value."""
    kpts, ours = values[3:]
    if kpts == ours:
        return
    if isinstance(kpts, dict) and isinstance(ours, dict):
        for key in sorted(kpts.keys() | ours.keys()):
            yield from differences((*at, key), [_field(value, key) for value in values])
    elif isinstance(kpts, list) and isinstance(ours, list) and _are_alike(values):
        named = [elements(value) for value in values]
        for key in named[-1]:
            yield from differences((*at, key), [value.get(key, ABSENT) for value in named])
    else:
        yield at, values


def _field(value: Any, key: str) -> Any:
    return value.get(key, ABSENT) if isinstance(value, dict) else ABSENT


def _are_alike(lists: Sequence[Any]) -> bool:
    """Whether both results have the same elements in one order, and no side has two of one key."""
    named = [elements(value) for value in lists]
    return list(named[-1]) == list(named[-2]) and not any(key.endswith("+") for keys in named for key in keys)


def elements(value: Any) -> dict[str, Any]:
    """Return the elements of a list by what tells them apart: a port, a path, a name, an image, or all."""
    found: dict[str, Any] = {}
    for element in value if isinstance(value, list) else []:
        fields = element if isinstance(element, dict) else {}
        key = next(
            (f"{k}={fields[k]}" for k in ("containerPort", "port", "mountPath", "name") if k in fields), ""
        )
        key = key or str(fields.get("image", element)).partition(":v")[0]
        found[f"{key}+" if key in found else key] = element
    return found


# What is right, whatever kpt does.


def is_merged(row: Row) -> bool:
    """Whether ours is the side that changed; where both did, they are merged or a conflict is listed."""
    return _is_right(row, row.base, row.upstream, row.local, row.ours)


def _is_right(row: Row, base: Any, upstream: Any, local: Any, ours: Any) -> bool:
    if local in (base, upstream):
        return without_nothing(ours) == without_nothing(upstream)
    if upstream == base:
        return without_nothing(ours) == without_nothing(local)
    if isinstance(upstream, dict) and isinstance(local, dict) and isinstance(ours, dict):
        keys = upstream.keys() | local.keys() | ours.keys()
        return all(_is_right(row, *(_field(v, k) for v in (base, upstream, local, ours))) for k in keys)
    if isinstance(upstream, list) and isinstance(local, list) and _is_union(base, upstream, local, ours):
        return True
    if row.update.compatible:
        return bool(ours == upstream or (ABSENT in (upstream, local) and ours == local))
    return any(path == row.path for path, _ in row.update.asked.conflicts)


def is_union(row: Row) -> bool:
    """Whether ours has upstream's elements and those that local added, and no other."""
    return _is_union(row.base, row.upstream, row.local, row.ours)


def _is_union(*sides: Any) -> bool:
    base, upstream, local, ours = (side if isinstance(side, list) else [] for side in sides)
    kept = [element for element in upstream if element in local or element not in base]
    added = [element for element in local if element not in base and element not in kept]
    return sorted(map(str, ours)) == sorted(map(str, kept + added))


def lost_edits(update: Update) -> list[str]:
    """Return the edits of a person that are neither in the result nor in a listed conflict."""
    if update.asked.error or update.strategy != "resource-merge":
        return []
    base, local, upstream, asked = map(
        documents_of, (update.original, update.local, update.upstream, update.asked.files)
    )
    lost = []
    for key in sorted(base.keys() | local.keys(), key=str):
        if any(path in (key[0], _place(asked, key)) for path, _ in update.asked.conflicts):
            continue
        sides = (_side(side, key) for side in (base, local, upstream, asked))
        lost += [f"{key[0]} {key[1]} {edit}" for edit in _lost(*sides)]
    return lost


def _place(side: dict[Key, Any], key: Key) -> str:
    return next((other[0] for other in side if key[1] and other[1:] == key[1:]), "")


def _lost(base: Any, local: Any, upstream: Any, result: Any, at: str = "") -> Iterator[str]:
    if local in (base, result) or without_nothing(local) == without_nothing(result):
        return
    if isinstance(result, dict) and (
        isinstance(local, dict) or (local == ABSENT and at and isinstance(base, dict))
    ):
        for key in sorted({key for side in (base, local) if isinstance(side, dict) for key in side}):
            yield from _lost(*(_field(v, key) for v in (base, local, upstream, result)), f"{at}.{key}")
    elif isinstance(local, list) and isinstance(result, list):
        of_base, of_local, of_result = (elements(v) for v in (base, local, result))
        for name in of_base.keys() | of_local.keys():
            values = (of_base.get(name, ABSENT), of_local.get(name, ABSENT))
            yield from _lost(*values, ABSENT, of_result.get(name, ABSENT), f"{at}[{name}]")
    else:
        yield f"{at or 'whole'}: {str(base)[:80]} -> {str(local)[:80]}, and is {str(result)[:80]}"


# The rules. Each has a row of its name in docs/contributing/divergences.md, which says why.


def _is_whole(update: Update) -> bool:
    return bool(update.ours.error) and update.ours.files == update.local


def _all_right(update: Update) -> bool:
    """Whether nothing was refused, and every document is the one that should come out."""
    ours = documents_of(update.ours.files)
    sides = [documents_of(side) for side in update[:3]]
    every = {key for side in (*sides, ours) for key in side if key[0] != "Kptfile"}
    found = (Row(update, k[0], (), *(_side(s, k) for s in sides), ABSENT, _side(ours, k)) for k in every)
    return not update.ours.error and all(map(is_merged, found))


def _fails(*words: str) -> Callable[[Update], bool]:
    return lambda update: any(word in update.kpts.error for word in words)


FAILURES: dict[str, Callable[[Update], bool]] = {
    "type-change": lambda u: _fails("wrong node kind")(u) and _all_right(u),
    "duplicate": lambda u: _fails("found duplicate")(u) and (_is_whole(u) if u.compatible else _all_right(u)),
    "sub-package-on-both-sides": lambda u: (
        _fails("added in both upstream and local")(u) and (_is_whole(u) if u.compatible else _all_right(u))
    ),
    "directory-becomes-sub-package": lambda u: _fails("missing Resource metadata")(u) and _all_right(u),
    "fast-forward": lambda u: _fails("local package files have been modified")(u) and _is_whole(u),
    "copy-merge": lambda u: (
        _fails("unrecognized update strategy copy-merge")(u)
        and not u.ours.error
        and all(
            u.ours.files[path].data == file.data for path, file in u.upstream.items() if path != "Kptfile"
        )
        and not {path for path in u.ours.files if path in u.original and path not in u.upstream}
    ),
}
"""Updates that kpt ends with an error, half written."""


def _in_order(row: Row) -> bool:
    """Whether elements are the same as kpt's, and stand in upstream's order where local has not its own."""
    if not isinstance(row.ours, list) or elements(row.ours) != elements(row.kpts):
        return False
    base, upstream, local, ours = (
        [*elements(side)] for side in (row.base, row.upstream, row.local, row.ours)
    )
    pairs = ((base, local), (upstream, ours))
    return all([k for k in one if k in other] == [k for k in other if k in one] for one, other in pairs)


def _is_ignored(row: Row) -> bool:
    for path, file in {**row.update.local, **row.update.upstream}.items():
        folder, _, name = path.rpartition("/")
        if name == ".krmignore" and row.path.startswith(folder):
            inside = row.path[len(folder) :].strip("/")
            patterns = [line.strip().rstrip("/") for line in file.data.decode().splitlines() if line.strip()]
            parents = ["/".join(inside.split("/")[: n + 1]) for n in range(inside.count("/") + 1)]
            if any(fnmatch(part, p) for p in patterns for part in (*parents, inside.rpartition("/")[2])):
                return True
    return False


def _has_alias(row: Row) -> bool:
    return any(
        b": *" in side[row.path].data or b"- *" in side[row.path].data
        for side in row.update[:3]
        if row.path in side
    )


def _has_key_twice(row: Row) -> bool:
    sides = (side[row.path].data for side in row.update[:3] if row.path in side)
    return is_yaml(row.path) and any(isinstance(documents(data), bytes) for data in sides)


def _follows_text(row: Row) -> bool:
    """Whether a file has upstream's text, or lines of both sides where a conflict is not listed."""
    texts = [side.get(row.path) for side in (*row.update[:3], row.update.ours.files)]
    base, upstream, local, ours = (set(file.data.splitlines()) if file else set() for file in texts)
    is_listed = any(path == row.path for path, _ in row.update.asked.conflicts)
    return ours == upstream or is_listed or ours <= base | upstream | local


def _is_in_pieces(row: Row) -> bool:
    """Whether kpt's list has elements that no side has."""
    sides = [side for side in (row.base, row.upstream, row.local) if isinstance(side, list)]
    lists = isinstance(row.kpts, list) and isinstance(row.ours, list)
    return lists and any(all(e not in side for side in sides) for e in row.kpts if e not in row.ours)


def _has_no_key(row: Row) -> bool:
    """Whether a list has elements without the key of the others, or two of one key."""
    for side in (row.base, row.upstream, row.local):
        found = [e for e in side if isinstance(e, dict)] if isinstance(side, list) else []
        names = [e.get("name") for e in found]
        if len(set(names)) != len(names) or (None in names and set(names) != {None}):
            return True
        if len({"protocol" in e for e in found}) > 1:  # with the port a key of ports
            return True
    return False


def _moves(row: Row) -> bool:
    """Whether a resource stands in another file on one side."""
    if not is_yaml(row.path):
        return False
    update = row.update
    names = {
        name
        for files in (*update[:3], update.kpts.files)
        for path, name, _ in documents_of(files)
        if path == row.path and name
    }
    places = [{(p, n) for p, n, _ in documents_of(side) if n in names} for side in update[:3]]
    moved = {p for place in places for p, _ in place} > {row.path}
    kept = {n for _, n, _ in documents_of(update.ours.files)}
    is_kept = row.ours == ABSENT and names - kept == set()
    return moved and (is_kept or is_merged(row))


def _is_plain(row: Row) -> bool:
    return isinstance(row.ours, bytes) or isinstance(row.kpts, bytes) or not is_yaml(row.path)


def _one_port(row: Row) -> bool:
    """Whether elements that differ by a merge key that one of them leaves out are one."""
    if not (isinstance(row.kpts, list) and isinstance(row.ours, list)) or len(row.kpts) <= len(row.ours):
        return False
    if not all(isinstance(element, dict) for element in row.kpts):
        return False
    joined: list[dict[str, Any]] = []
    for element in row.kpts:
        same = [j for j in joined if all(j.get(k, v) == v for k, v in element.items())]
        if same:
            same[0].update(element)
        else:
            joined.append(dict(element))
    return joined == row.ours


def _functions(row: Row) -> bool:
    """Whether each function is merged by itself."""
    named = [elements(value) for value in (row.base, row.upstream, row.local, row.ours)]
    keys = {key for side in named for key in side}
    return all(_is_right(row, *(side.get(key, ABSENT) for side in named)) for key in keys)


Explains = Callable[[Row], bool]
BOTH: dict[str, Explains] = {
    "element-without-key": lambda r: (
        _has_no_key(r)
        and (is_union(r) if r.update.compatible else r.ours in (r.upstream, r.local) and is_merged(r))
    ),
    "alias": lambda r: _has_alias(r) and r.kpts == ABSENT and is_merged(r),
    "ignored-file": lambda r: _is_ignored(r) and is_merged(r),
    "key-twice": lambda r: _has_key_twice(r) and _follows_text(r),
}
"""In both modes."""

DEFAULT: dict[str, Explains] = {
    "null": lambda r: r.kpts == ABSENT and r.ours is None and None in (r.upstream, r.local),
    "empty-map": lambda r: r.ours == r.upstream == ABSENT and without_nothing({"": r.kpts}) == {},
    "order": _in_order,
    "element-in-pieces": lambda r: _is_in_pieces(r) and is_merged(r),
    "list-deleted": lambda r: r.upstream == ABSENT and isinstance(r.local, list) and is_union(r),
    "default-of-key": _one_port,
    "file-moved": _moves,
    "plain-file": lambda r: _is_plain(r) and not r.path.endswith(".json") and is_merged(r),
    "json": lambda r: r.path.endswith(".json") and is_merged(r),
    "functions": lambda r: (r.path.endswith("Kptfile") and r.at[:1] == ("pipeline",
        ) and (is_merged(r) or _functions(r))),
    "keywords": lambda r: r.path.endswith("Kptfile") and r.at == ("info", "keywords") and is_union(r),
    "package-context": lambda r: (r.path.endswith("package-context.yaml") and r.at in (("data", "name"),
        ("data", "package-path")) and r.ours == r.local),
    "kptfile-replaced": lambda r: (
        r.update.strategy == "force-delete-replace" and r.path.endswith("Kptfile") and is_merged(r)
    ),
}  # fmt: skip
"""In the default mode, with conflicts decided for upstream."""
RULES: Final[Iterable[str]] = (*FAILURES, *BOTH, *DEFAULT)
