"""The files of a draft after a person's answer to one of its conflicts (D10). Pure."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from reconciler.base.errors import RefusedError, UsageError
from reconciler.krm.documents import documents_of, edit_document, join_documents, resources_in
from reconciler.krm.merge import Node, TextFormat, merge_text, path_text, root_of
from reconciler.krm.yaml import (
    AddKey,
    DeleteItem,
    DeleteKey,
    Edit,
    InsertItem,
    Path,
    Raw,
    SetValue,
    YamlError,
    emit,
    load_documents,
)
from reconciler.names.objects import File, Files
from reconciler.render.answers import current_value, find_document, has_keys
from reconciler.render.update import Conflict
from reconciler.render.update.conflicts import SUBPACKAGE
from reconciler.render.update.sides import file_text

_BY_HAND = "Check out the draft, edit the file, commit and push: `reconciler explain` shows both values."


class UpstreamFiles(NamedTuple):
    """The package that is merged into a draft, and the revision of it that the draft was made from."""

    base: Files
    new: Files


def take_upstream(files: Files, conflict: Conflict, upstream: UpstreamFiles) -> Files:
    """Return the files with upstream's side of a conflict; all other bytes stay the same.

    Raises:
        RefusedError: Only an edit by hand can put upstream's value there.
    """
    is_package = conflict.resource == "Kptfile" and conflict.field == "upstream" and "/" in conflict.path
    if conflict.resource == SUBPACKAGE or is_package:
        inside = f"{conflict.path.rpartition('/')[0] if is_package else conflict.path}/"
        others = {path: file for path, file in files.items() if not path.startswith(inside)}
        return others | {path: file for path, file in upstream.new.items() if path.startswith(inside)}
    value = current_value(upstream.new, conflict) if conflict.hidden else conflict.upstream
    if not conflict.resource:
        return _take_file(files, conflict, value, upstream)
    if not conflict.field:
        theirs = upstream.new.get(conflict.path)
        if conflict.path not in files and theirs is not None and _plain(theirs) == value:
            return {**files, conflict.path: theirs}
        return _take_resource(files, conflict, value)
    return _with_field(files, conflict, None if value is None else Raw(value), upstream.new)


def set_value(files: Files, conflict: Conflict, text: str, upstream: UpstreamFiles) -> Files:
    """Return the files with a value of a person's choice, as YAML, in place of a field, or of lines.

    Raises:
        RefusedError: An edit cannot put the value there.
        UsageError: The conflict is about a whole file or resource, or the value is no YAML.
    """
    if conflict.resource and conflict.field:
        return _with_field(files, conflict, _typed(text, conflict), upstream.new)
    if not conflict.resource and None not in (conflict.local, conflict.upstream):
        lines = text if text.endswith("\n") else f"{text}\n"
        if (answered := _with_lines(files, conflict, lines)) is not None:
            return answered
    raise UsageError(f"One value cannot answer {conflict}: it is about all of it", hint=_BY_HAND)


def _typed(text: str, conflict: Conflict) -> Raw:
    """Return a value as YAML; it is a string where both sides have strings, as `'5'` in an environment."""
    sides = [_parsed(side) for side in (conflict.upstream, conflict.local) if side is not None]
    try:
        value = _parsed(text)
    except YamlError as error:
        raise UsageError(f"{text!r} is no YAML: {error}", hint="Quote it, as in \"'a: b'\".") from error
    is_text = bool(sides) and all(isinstance(side, str) for side in sides)
    return Raw(emit(text) if is_text and not isinstance(value, str | list | dict) else text)


def _parsed(text: str) -> Any:
    return next((document.value for document in load_documents(text.encode())), None)


def _take_file(files: Files, conflict: Conflict, value: str | None, upstream: UpstreamFiles) -> Files:
    if value is None:
        return {path: file for path, file in files.items() if path != conflict.path}
    theirs, ours = upstream.new.get(conflict.path), files.get(conflict.path)
    if theirs is not None and (ours is None or value in (file_text(theirs), _plain(theirs))):
        return {**files, conflict.path: theirs}
    answered = _with_lines(files, conflict, value)
    base = upstream.base.get(conflict.path)
    if answered is None and ours is not None and theirs is not None and base is not None:
        sides = (side.data.decode("utf-8", "surrogateescape") for side in (base, theirs, ours))
        merged = merge_text(*sides, prefer_upstream=True)
        if merged is not None and len(merged.hunks) == 1:
            data = merged.text.encode("utf-8", "surrogateescape")
            answered = {**files, conflict.path: File.of(data, ours.mode)}
    if answered is None:
        raise RefusedError(f"Several places of {conflict.path} are alike", hint=_BY_HAND)
    return answered


def _plain(file: File) -> str:
    """Return the text of a file as conflicts have it."""
    return TextFormat.split(file_text(file) or "")[1]


def _with_lines(files: Files, conflict: Conflict, value: str) -> Files | None:
    """Return the files with other lines in place of local's, None where these are not in one place."""
    file, local = files.get(conflict.path), conflict.local
    if file is None or not local:
        return None
    form, text = TextFormat.split(file.data.decode("utf-8", "surrogateescape"))
    local, value = (TextFormat.split(side)[1] for side in (local, value))
    if f"\n{text}".count(f"\n{local}") != 1:
        return None
    replaced = f"\n{text}".replace(f"\n{local}", f"\n{value}")[1:]
    data = form.joined(replaced).encode("utf-8", "surrogateescape")
    return {**files, conflict.path: File.of(data, file.mode)}


def _take_resource(files: Files, conflict: Conflict, value: str | None) -> Files:
    """Return the files with a whole resource as upstream has it: changed, back, or gone."""
    path, index = next(_places(files, conflict), (conflict.path, -1))
    file = files.get(path)
    split = resources_in(file) if file is not None else None
    if file is None or split is None:
        return {**files, path: File.of((value or "").encode())} if value is not None else files
    pieces = [(document.above, document.text) for document in split.documents]
    if value is None:
        del pieces[index]
    elif index < 0:
        pieces.append(("", value))
    else:
        pieces[index] = (pieces[index][0], value)
    if not pieces:
        return {name: other for name, other in files.items() if name != path}
    return {**files, path: File.of(join_documents(pieces, split.below, split.format), file.mode)}


def _with_field(files: Files, conflict: Conflict, value: Raw | None, theirs: Files) -> Files:
    """Return the files with another value of one field, without it for None.

    A field that is not there comes to the place that it has in `theirs`.
    """
    place = next(_places(files, conflict), None)
    document = find_document(files, conflict)
    root = root_of(document.tree) if document is not None else None
    if place is None or root is None:
        raise RefusedError(f"The draft has no {conflict.resource}", hint=_BY_HAND)
    path, index = place
    model = find_document(theirs, conflict)
    edit = _edit(root, conflict.field, value, root_of(model.tree) if model is not None else None)
    if edit is None:
        raise RefusedError(
            f"The draft has no place for {conflict.field} of {conflict.resource}", hint=_BY_HAND
        )
    try:
        return {**files, path: edit_document(files[path], (edit,), index=index)}
    except YamlError as error:
        raise RefusedError(f"{conflict.field} cannot be written: {error}", hint=_BY_HAND) from error


def _edit(root: Node, field: str, value: Raw | None, theirs: Node | None) -> Edit | None:
    """Return the edit that gives a field a value, None where what holds the field is not there."""
    reached = list(_reach(root, field, ()))
    there = next((path for path, _, rest in reached if not rest), None)
    if there is not None:
        if value is not None:
            return SetValue(there, value)
        return DeleteItem(there) if isinstance(there[-1], int) else DeleteKey(there)
    for path, node, rest in reached:
        name = rest.removeprefix(".").removeprefix('"').removesuffix('"')
        if value is None:
            return None
        if node.is_sequence and rest.endswith("]") and rest.count("[") == 1:
            return InsertItem(path, len(node.items), _parsed(value.text))
        if node.is_mapping and path_text((name,)) == rest.removeprefix("."):
            return AddKey(path, name, _parsed(value.text), **_neighbour(node, name, field, theirs))
    return None


def _neighbour(ours: Node, name: str, field: str, theirs: Node | None) -> dict[str, str]:
    """Return the key that a field comes after, or before, as in another document."""
    for _, node, rest in _reach(theirs, field, ()) if theirs is not None else ():
        keys = [*node.children]
        if path_text((name,)) == rest.removeprefix(".") and name in keys:
            at = keys.index(name)
            after = next((key for key in reversed(keys[:at]) if key in ours.children), None)
            before = next((key for key in keys[at:] if key in ours.children), None)
            return {"after": after} if after is not None else {"before": before} if before is not None else {}
    return {}


def _reach(node: Node, rest: str, path: Path) -> Iterator[tuple[Path, Node, str]]:
    """Yield path and node of what a field path, as of `path_text`, names, and of what holds it; the rest."""
    if rest.startswith("["):
        for end in (index for index, letter in enumerate(rest) if letter == "]"):
            for number, item in enumerate(node.items):
                if has_keys(item, rest[1:end]):
                    yield from _reach(item, rest[end + 1 :], (*path, number))
    elif rest:
        inside = rest.removeprefix(".")
        for name, value in node.children.items():
            step = path_text((name,)) if not name.startswith("[") else name
            if inside.startswith(step) and inside[len(step) : len(step) + 1] in ("", ".", "["):
                yield from _reach(value, inside[len(step) :], (*path, name))
    yield path, node, rest


def _places(files: Files, conflict: Conflict) -> Iterator[tuple[str, int]]:
    """Yield the file that holds the resource of a conflict, and its number among the documents there."""
    document = find_document(files, conflict)
    if document is None:
        return
    first = [conflict.path] if conflict.path in files else []
    for path in [*first, *sorted(files)]:
        for index, other in enumerate(documents_of(files[path])):
            if other.identity == document.identity and other.text == document.text:
                yield path, index
