"""What is fuzzed: each target takes bytes and asserts a law, not only that nothing unforeseen is raised."""

import posixpath
from collections.abc import Callable, Iterator
from typing import Any

import yaml

from reconciler.api.kptfile import KPTFILE, LOCATION, OWNER
from reconciler.base.errors import ConfigurationError
from reconciler.base.values import read_record
from reconciler.dependencies.lock.format import PackageLock
from reconciler.dependencies.model.instances import record_bytes as lock_record_bytes
from reconciler.functions.protocol import ProtocolError, check_path, from_items, parse_results
from reconciler.git.commits import parse_commit
from reconciler.git.trees import UnsafeEntry, check_entry, parse_tree
from reconciler.krm.documents import split_file
from reconciler.krm.yaml import (
    DeleteKey,
    Edit,
    SetLineComment,
    SetValue,
    Tree,
    YamlError,
    apply_edits,
    edited,
    emit,
    load_documents,
)
from reconciler.names.ids import Oid
from reconciler.names.objects import File, Signature, commit_bytes, file_path_error
from reconciler.names.refs import parse_ref, ref_error
from reconciler.plan.changes import Plan  # noqa: F401 - the packages below import each other in this order
from reconciler.read.configuration import parse_configuration
from reconciler.records.state import PackageVariantRecord, SetRecord, UpstreamLock, lock_bytes, record_bytes
from reconciler.render.kptfile import stamp_kptfile, strip_ownership
from reconciler.render.rendered import Blocked
from reconciler.render.update import UpdateRefused, update_package
from tests.support.git import format_tree
from tools.fuzz import archives, readers, servers
from tools.fuzz.archives import bounded
from tools.fuzz.shapes import SEPARATOR

Target = Callable[[bytes], None]
_OID = Oid("0" * 40)
_RECORDS: tuple[Any, ...] = (PackageVariantRecord, SetRecord, UpstreamLock, PackageLock)


def read_yaml(data: bytes) -> None:
    """Documents join to the bytes that were split; what is read and written again reads the same."""
    assert split_file(data).data == data
    try:
        documents = load_documents(data)
    except YamlError:
        return
    for document in documents:
        try:
            written = emit(document.value)
        except YamlError:
            continue  # JSON may have keys that are too long for YAML
        (again,) = load_documents(f"{written}\n".encode())
        assert _same(again.value, document.value), "written and read again it is another value"


def edit_yaml(data: bytes) -> None:
    """An edit makes the edited data; every line that holds nothing of it stays; undone, all is as before."""
    choice, text = data[:2], data[2:].decode("utf-8", "replace")
    try:
        tree = Tree.parse(text)
        value = tree.value
    except YamlError:
        return
    if len(choice) < 2:
        return
    paths = list(_paths(value))
    path, old = paths[choice[0] % len(paths)]
    edits: list[Edit] = [
        SetValue(path, "x: #y"),
        SetValue(path, old),
        DeleteKey(path),
        SetLineComment(path, "n"),
    ]
    edit = edits[choice[1] % len(edits)]
    try:
        result = apply_edits(text, [edit])
    except YamlError:
        return
    after = Tree.parse(result.text).value
    wanted = value if isinstance(edit, SetLineComment) else edited(value, edit)
    assert _same(after, wanted), f"{edit} made another value"
    if edit is edits[1] and not result.fallbacks and _is_plain(old):
        again = apply_edits(result.text, [edit])
        assert again.text == result.text, "setting the same value twice changes text"


def merge_yaml(data: bytes) -> None:
    """A merge of what nobody changed is what is there; of what one side changed, that side."""
    parts = data.split(SEPARATOR)
    if len(parts) != 3:
        return
    base, upstream, local = ({"r.yaml": File.of(part)} for part in parts)
    assert _merged(base, base, local) in (None, local), "nothing came from upstream, and local changed"
    assert _merged(base, local, local) in (None, local), "both sides are equal, and local changed"
    first = _merged(base, upstream, local)
    assert first == _merged(base, upstream, local), "the same merge twice differs"
    if first is not None:
        again = _merged(upstream, upstream, first)
        assert again in (None, first), "the merged package changes without any news"


def stamp(data: bytes) -> None:
    """Stamping is idempotent, sets both annotations, and stripping takes them away; other files stay."""
    files = {KPTFILE: File.of(data), "other.yaml": File.of(b"a: 1\n")}
    stamped = stamp_kptfile(files, name="web", pin=None, owner="o", location="l")
    if isinstance(stamped, Blocked):
        return
    assert stamped["other.yaml"] == files["other.yaml"]
    annotations = load_documents(stamped[KPTFILE].data)[0].value["metadata"]["annotations"]
    assert (annotations[OWNER], annotations[LOCATION]) == ("o", "l")
    assert stamp_kptfile(stamped, name="web", pin=None, owner="o", location="l") == stamped
    stripped = strip_ownership(stamped)
    assert not isinstance(stripped, Blocked)
    assert strip_ownership(stripped) == stripped
    assert OWNER.encode() not in b"".join(stripped[KPTFILE].data.split()) or OWNER.encode() in data


def resource_list(data: bytes) -> None:
    """A file that a function may write can be read again; results are values or refused."""
    try:
        documents = load_documents(data)
    except YamlError:
        return
    for document in documents:
        value = document.value
        if not isinstance(value, dict):
            continue
        items = value.get("items")
        try:
            parse_results(value.get("results"))
            found = from_items(items if isinstance(items, list) else [], (), "pkg")
        except ProtocolError:
            continue
        for resource in found:
            path = posixpath.normpath(resource.path)  # as the pipeline takes it
            assert check_path(path) or not file_path_error(path), path


def configuration(data: bytes) -> None:
    """A configuration is a policy, the same one twice, or a configuration error."""
    try:
        policy = parse_configuration(data, "reconciler.yaml", {})
    except ConfigurationError:
        return
    assert parse_configuration(data, "reconciler.yaml", {}) == policy


def ref_name(data: bytes) -> None:
    """A ref that is understood is legal in Git, and its parts make the same ref again."""
    ref = data.decode("utf-8", "replace")
    parsed = parse_ref(ref)
    if parsed is None:
        return
    again = parse_ref(ref)
    assert again == parsed
    assert parsed.path
    if not ref_error(ref):
        assert not file_path_error(parsed.path) or parsed.path in ref


def records(data: bytes) -> None:
    """A record of state or lock that is read is written to bytes that read the same, and stay the same."""
    for model in _RECORDS:
        try:
            record: Any = read_record(data, model)
        except ValueError:
            continue
        write: Any = record_bytes
        if model is UpstreamLock:
            write = lock_bytes
        elif model is PackageLock:
            write = lock_record_bytes
        written = write(record)
        assert read_record(written, model) == record
        assert write(read_record(written, model)) == written


def commit(data: bytes) -> None:
    """A commit that is read is whole: ids, texts and times that can be written and read again."""
    read = parse_commit(_OID, data)
    if read is None:
        return
    for who in (read.author, read.committer):
        assert 0 <= who.time < 1 << 38
    name = read.author.name.encode("utf-8", "replace").decode()
    if any(c in f"{name}{read.author.email}{read.message}" for c in "\n\0<>"):
        return
    who = Signature(name, read.author.email, read.author.time)
    written = commit_bytes(read.tree, read.parents, who, who, read.message)
    again = parse_commit(_OID, written)
    assert again is not None
    assert (again.tree, again.parents, again.message) == (read.tree, read.parents, read.message)


def tree(data: bytes) -> None:
    """A tree in Git's order is written as it was read; a name that is let through is one safe segment."""
    try:
        entries = parse_tree(data)
    except ValueError:
        return
    assert sorted(parse_tree(format_tree(entries))) == sorted(entries)
    assert format_tree(parse_tree(format_tree(entries))) == format_tree(entries)
    for entry in entries:
        checked = check_entry(entry)
        if isinstance(checked, UnsafeEntry):
            assert checked.reason
            continue
        assert checked.name.encode() == entry.name
        assert "/" not in checked.name
        assert checked.name.casefold() not in {"", ".", "..", ".git"}


_TARGETS: dict[str, Target] = {
    "yaml": read_yaml,
    "edit": edit_yaml,
    "merge": merge_yaml,
    "kptfile": stamp,
    "resource-list": resource_list,
    "configuration": configuration,
    "ref": ref_name,
    "record": records,
    "commit": commit,
    "tree": tree,
    **archives.TARGETS,
    **readers.TARGETS,
    **servers.TARGETS,
}
TARGETS = {name: bounded(target) for name, target in _TARGETS.items()}


def _merged(base: Any, upstream: Any, local: Any) -> Any:
    try:
        return update_package(base, upstream, local).files
    except UpdateRefused:
        return None


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    yield path, value
    children = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, child in children:
        yield from _paths(child, (*path, key))


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | bool) or value is None


def _same(one: Any, other: Any) -> bool:
    """Whether two values are equal, types and all; what is no number equals itself."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other) or repr(one) == repr(other) == "nan"


assert yaml.__with_libyaml__, "the parser that is fuzzed is the one that runs"
