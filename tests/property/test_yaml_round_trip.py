"""The laws of YAML: what is written is read, edits do what they say, and no other byte moves."""

import os
import random
import re
from collections.abc import Iterator
from pathlib import Path as FilePath
from typing import Any

import orjson
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from reconciler.krm.documents import DocumentKind, split_file
from reconciler.krm.yaml import (
    PACKAGE_LIMITS,
    AddKey,
    DeleteItem,
    DeleteKey,
    Edit,
    Indentation,
    InsertItem,
    Mapping,
    Path,
    Scalar,
    Sequence,
    SetHeadComment,
    SetLineComment,
    SetValue,
    Slot,
    Style,
    Tree,
    YamlError,
    apply_edits,
    emit,
    load_documents,
)
from reconciler.krm.yaml.apply import edited, plan_splice, splice
from reconciler.krm.yaml.tree import line_comment
from tests.support.corpus import ABSENT, CORPUS

pytestmark = pytest.mark.slow

FUZZ = int(os.environ.get("RECONCILER_FUZZ", "1"))
_WORDS = "on y 0777 1e3 2001-01-01 1:30 null ~ << = .inf --- ... - ? : #a a#b &a *a !a %a @a `a 'a \"a [a {a"
TRICKY = _WORDS.split()
TEXTS = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=12),
    st.text("ab \n#:-'\"[]{},\t|>&*!%@0123456789.eE_+~<=\u2028\x85\ufeff\r", max_size=10),
    st.sampled_from(
        [*TRICKY, "- a", "? a", ": a", "a: b", "a #b", "--flag", "a:", " a", "a ", "a\nb\n", "\na", ""]
    ),
)
SCALARS = st.one_of(
    TEXTS,
    st.integers(-(2**63), 2**63 - 1),
    st.booleans(),
    st.none(),
    st.floats(allow_nan=False, allow_infinity=False).filter(lambda number: not number.is_integer()),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
    max_leaves=12,
)
USUAL_KEYS = st.sampled_from(["a", "ab", "b", "a-b", "0", "y"])
USUAL_VALUES = st.recursive(
    st.one_of(st.sampled_from(["a", "b 1", "1", "a#", "x\ny\n", ""]), st.integers(0, 9), st.none()),
    lambda inner: st.one_of(
        st.dictionaries(USUAL_KEYS, inner, min_size=1, max_size=3),
        st.lists(st.dictionaries(USUAL_KEYS, inner, min_size=1, max_size=3), min_size=1, max_size=2),
        st.lists(inner, max_size=2),
    ),
    max_leaves=10,
)
LAYOUTS = st.builds(Indentation, st.sampled_from([2, 3, 4]), st.booleans())


_INDICATORS = [
    "a:",
    "b: ",
    "- ",
    "{",
    "}",
    "[",
    "]",
    ", ",
    "? ",
    ": ",
    "|\n",
    "  >-\n",
    "|+\n\n",
    "---\n",
    "...\n",
]
_OTHERS = [
    "  ",
    "\n",
    "\r\n",
    "\r",
    "\t",
    "\u2028",
    "x",
    "é",
    "1",
    "~",
    "'y'",
    '"z"',
    "# c",
    "&k ",
    "*k",
    "!!str ",
    "<<: ",
]
PIECES = st.sampled_from([*_INDICATORS, *_OTHERS])


def _same(left: Any, right: Any) -> bool:
    return orjson.dumps(left, option=orjson.OPT_SORT_KEYS) == orjson.dumps(right, option=orjson.OPT_SORT_KEYS)


@given(VALUES, LAYOUTS, st.booleans())
def test_emitted_value_reads_back(value: Any, layout: Indentation, flow: bool) -> None:
    text = emit(value, layout, flow=flow)

    (document,) = load_documents(f"{text}\n".encode())

    assert orjson.dumps(document.value) == orjson.dumps(value)


@st.composite
def documents(draw: st.DrawFn, *, usual: bool = False) -> str:
    """Draw a text with comments, blank lines, flow parts, odd ends and either kind of line break."""
    keys, values = (USUAL_KEYS, USUAL_VALUES) if usual else (TEXTS, VALUES)
    text = emit(draw(st.dictionaries(keys, values, min_size=1, max_size=4)), draw(LAYOUTS))
    lines: list[str] = []
    for line in text.split("\n"):
        if re.match(r"[ -]*[a-b]+:", line) and draw(st.booleans()):
            pad = " " * (len(line) - len(line.lstrip(" ")))
            lines += draw(st.sampled_from([[f"{pad}# head"], [""], [f"{pad}# one", "", f"{pad}# two"]]))
        lines.append(line)
        if re.fullmatch(r"[ -]*[a-b]+: (?:[a-b0-9]+|\{\}|\[\])", line) and draw(st.booleans()):
            lines[-1] += draw(st.sampled_from([" # line", "   # far", " "]))
    text = "\n".join(lines) + draw(st.sampled_from(["", "\n", "\n\n", "\n# end\n"]))
    return text.replace("\n", draw(st.sampled_from(["\n", "\r\n"]))) if "\r" not in text else text


def _paths(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    yield path, value
    if isinstance(value, dict):
        for key, child in value.items():
            yield from _paths(child, (*path, key))
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from _paths(child, (*path, index))


@st.composite
def edits_of(draw: st.DrawFn, value: Any) -> Edit:
    """Draw an edit that means something for this value."""
    path, found = draw(st.sampled_from(list(_paths(value))))
    kinds: list[Edit] = [SetValue(path, draw(VALUES))]
    if isinstance(found, dict):
        key = draw(TEXTS.filter(lambda text: text not in found))
        kinds.append(AddKey(path, key, draw(VALUES), before=draw(st.sampled_from([None, *found]))))
        kinds.append(AddKey(path, key, draw(VALUES), after=draw(st.sampled_from([None, *found]))))
    if isinstance(found, list):
        kinds.append(InsertItem(path, draw(st.integers(0, len(found))), draw(VALUES)))
    if path:
        kinds.append(DeleteKey(path) if isinstance(path[-1], str) else DeleteItem(path))
    return draw(st.sampled_from(kinds))


@given(st.data())
def test_edited_text_parses_to_the_edited_data(data: st.DataObject) -> None:
    text = data.draw(documents())
    try:
        value = Tree.parse(text).value
    except YamlError:
        return  # a comment that was put into a folded text
    edits: list[Edit] = []
    for _ in range(data.draw(st.integers(1, 4))):
        edits.append(data.draw(edits_of(value)))
        value = edited(value, edits[-1])

    result = apply_edits(text, edits)

    assert _same(Tree.parse(result.text).value, value)
    assert _line_ends(result.text) <= (_line_ends(text) or {"\n"})


def _line_ends(text: str) -> set[str]:
    return set(re.findall(r"\r?\n", text))


@given(st.data())
def test_comments_are_set_and_removed_without_changing_data(data: st.DataObject) -> None:
    text = data.draw(documents())
    try:
        tree = Tree.parse(text)
        path, _ = data.draw(st.sampled_from(list(_paths(tree.value))[1:]))
        kind = data.draw(st.sampled_from([SetLineComment, SetHeadComment]))
        added = apply_edits(text, [kind(path, "new")])
    except YamlError:
        return  # no YAML, or a place that has no comment of its own
    after = Tree.parse(added.text)
    removed = Tree.parse(apply_edits(added.text, [kind(path, None)]).text)

    assert _same(after.value, tree.value)
    found = after.slot(path)
    assert found is not None
    assert "# new" in (found.comments.line if kind is SetLineComment else found.comments.head)
    left = removed.slot(path)
    assert left is not None
    assert (left.comments.line if kind is SetLineComment else left.comments.head) == ""


@st.composite
def frequent_edits(draw: st.DrawFn, value: Any) -> Edit:
    """Draw an edit of the kinds that functions make most: a scalar, a key, a comment."""
    path, found = draw(st.sampled_from(list(_paths(value))))
    texts = draw(st.sampled_from(["x", "a b", "1", ""]))
    kinds: list[Edit] = []
    if isinstance(found, dict) and found:
        key = draw(st.sampled_from(["n1", "n2", "n3", "n4"]).filter(lambda name: name not in found))
        after = draw(st.sampled_from([None, "n1", "n2", *found]))
        kinds.append(AddKey(path, key, draw(st.sampled_from([texts, {"q": texts}])), after=after))
    elif path and not isinstance(found, list):
        kinds += [SetValue(path, texts), SetLineComment(path, "note")]
    if path and isinstance(path[-1], str):
        kinds.append(DeleteKey(path))
    return draw(st.sampled_from(kinds)) if kinds else SetValue(path, texts)


@given(st.data())
def test_edits_at_once_equal_successive_splices(data: st.DataObject) -> None:
    text = data.draw(documents(usual=True))
    try:
        value = Tree.parse(text).value
    except YamlError:
        return
    edits: list[Edit] = []
    for _ in range(data.draw(st.integers(1, 4))):
        edits.append(data.draw(frequent_edits(value)))
        value = edited(value, edits[-1])

    try:
        result = apply_edits(text, edits)
    except YamlError:
        return  # a comment at a place that has none
    if not result.fallbacks:
        # A block scalar at the end of the text is closed where text comes behind it.
        assert result.text in {_spliced(text, edits), _spliced(Tree.parse(text).closed(), edits)}


def _spliced(text: str, edits: list[Edit]) -> str:
    for edit in edits:
        text = splice(text, [plan_splice(Tree.parse(text), edit)])
    return text


def _slots(node: Any) -> Iterator[Slot]:
    for slot in (
        node.entries if isinstance(node, Mapping) else node.items if isinstance(node, Sequence) else ()
    ):
        yield slot
        yield from _slots(slot.value)


@given(st.one_of(documents(usual=True), documents(), st.lists(PIECES, max_size=14).map("".join)))
def test_line_comment_equals_the_one_of_the_index(text: str) -> None:
    try:
        tree = Tree.parse(text)
    except YamlError:
        return
    for slot in _slots(tree.root):
        assert line_comment(slot) == slot.comments.line


@given(
    st.one_of(st.binary(max_size=60), documents().map(str.encode)),
    st.sampled_from([b"", b"---\n", b"# x\n---\n"]),
)
def test_documents_join_to_the_bytes_that_were_split(data: bytes, head: bytes) -> None:
    assert split_file(head + data).data == head + data


@given(st.lists(PIECES, max_size=14).map("".join), st.data())
def test_no_text_and_no_edit_crashes(text: str, data: st.DataObject) -> None:
    try:
        tree = Tree.parse(text)
        value = tree.value
    except YamlError:
        return
    path = data.draw(st.sampled_from([path for path, _ in _paths(value)]))
    comments = [SetLineComment(path, "new"), SetHeadComment(path, "new"), SetLineComment(path, None)]
    deletes: list[Edit] = [DeleteKey(path), DeleteItem(path)]
    puts = [SetValue(path, {"q": ["r", "s\n"]}), AddKey(path, "k", "v"), InsertItem(path, 0, "v")]
    edit = data.draw(st.sampled_from([*comments, *deletes, *puts]))
    try:
        result = apply_edits(text, [edit])
    except YamlError:
        return
    assert _same(Tree.parse(result.text).value, edited(value, edit))


# The same laws on real packages.


def _corpus_files() -> list[FilePath]:
    if not CORPUS.is_dir():
        return []
    return sorted(
        path for path in CORPUS.rglob("*") if path.name == "Kptfile" or path.suffix in (".yaml", ".yml")
    )


def _corpus_documents() -> Iterator[tuple[str, str]]:
    files = _corpus_files()
    if not files:
        pytest.skip(ABSENT)
    for path in files if FUZZ > 1 else files[::3]:  # a third in the test suite, all by `make laws`
        for part in split_file(path.read_bytes(), path.name).documents:
            if part.kind in (DocumentKind.KRM, DocumentKind.DATA):
                yield str(path.relative_to(CORPUS)), part.text


def _sample(items: list[Any], size: int, seed: str) -> list[Any]:
    """Take all of a few and some of many, the same ones each time."""
    return items if len(items) <= size else random.Random(seed).sample(items, size)


def test_real_files_are_split_without_loss() -> None:
    files = _corpus_files()
    if not files:
        pytest.skip(ABSENT)

    assert len(files) > 100
    for path in files:
        data = path.read_bytes()
        file = split_file(data, path.name)
        assert file.problem is None, path
        assert file.data == data, path


def _leaves(node: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from _leaves(value, (*path, key.value))
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from _leaves(value, (*path, index))
    else:
        yield path, node


def _expected(text: str, node: Any, new: str) -> str:
    """Say what a single-field edit must give, from PyYAML's own marks."""
    start, end = node.start_mark.index, node.end_mark.index
    if start == end:
        return f"{text[:start]} {new}{text[end:]}"
    quote = node.style if node.style in ("'", '"') else ""
    return f"{text[:start]}{quote}{new}{quote}{text[end:]}"


def test_each_single_field_edit_of_a_real_file_changes_exactly_the_expected_bytes() -> None:
    edits = 0
    for name, text in _corpus_documents():
        leaves = list(_leaves(yaml.compose(text, yaml.CSafeLoader)))
        size = 10_000 if len(text) < 2_000 else max(2, 60_000 // len(text)) * FUZZ
        for path, node in _sample(leaves, size, name):
            if node.style in ("|", ">") or text[node.start_mark.index : node.start_mark.index + 1] in "&!*":
                continue
            result = apply_edits(text, [SetValue(path, "edited")])
            edits += 1
            assert result.text == _expected(text, node, "edited"), (name, path)
    assert edits > 1_000


def _mix(tree: Tree, seed: str) -> Iterator[Edit]:
    """Yield the fixed mix of edits of one document: every kind, at places chosen by its name."""
    spots = list(_paths(tree.value))
    for path, found in _sample(spots, 2 * FUZZ, seed):
        if isinstance(found, dict):
            yield AddKey(path, "added", {"a": ["b"]})
        elif isinstance(found, list):
            yield InsertItem(path, 0, {"a": "b"})
        else:
            yield SetValue(path, "first\nsecond\n")
            yield SetValue(path, ["a", {"b": "on"}])
        if path:
            yield DeleteKey(path) if isinstance(path[-1], str) else DeleteItem(path)
            yield SetHeadComment(path, "about this")


def _allowed(tree: Tree, edit: Edit) -> tuple[int, int]:
    """Return the lines that an edit may touch: its field's, or those of the collection that it empties."""
    slot = tree.slot(edit.path)
    siblings = len(slot.parent.raw.value) if slot else 0
    if isinstance(edit, (DeleteKey, DeleteItem)) and siblings == 1:
        slot = tree.slot(edit.path[:-1])
    if slot is None or slot.parent.style is Style.FLOW:
        return 0, len(tree.text)
    start, end = tree.extent(slot)
    start = max(tree.text.rfind("\n", 0, start), 0)
    end = tree.text.find("\n", end) + 1 or len(tree.text)
    if (
        isinstance(edit, (DeleteKey, DeleteItem)) and slot.index == 0
    ):  # its successor may move behind the dash
        end += len(tree.text[end:]) - len(tree.text[end:].lstrip(" "))
    return start, end


def test_every_kind_of_edit_stays_in_its_field_and_rarely_falls_back() -> None:
    files: set[str] = set()
    fallen: set[str] = set()
    refused = edits = 0
    for name, text in _corpus_documents():
        tree = Tree.parse(text)
        files.add(name)
        for edit in _mix(tree, name):
            try:
                result = apply_edits(text, [edit])
            except YamlError:
                assert isinstance(edit, SetHeadComment), (name, edit)
                refused += 1  # within flow style
                continue
            edits += 1
            fallen |= {name} if result.fallbacks else set()
            start, end = _allowed(tree, edit)
            assert result.text.startswith(text[:start]), (name, edit)
            assert result.text.endswith(text[end:]), (name, edit)
            wanted = edited(tree.value, edit)
            assert _same(Tree.parse(result.text).value, wanted), (name, edit)
    assert edits > 500
    assert refused < edits * 0.05
    assert len(fallen) <= 0.01 * len(files)


def test_every_real_scalar_has_a_node() -> None:
    checked = 0
    for name, text in _corpus_documents():
        tree = Tree.parse(text, PACKAGE_LIMITS)
        for path, found in _sample(list(_paths(tree.value)), 50, name):
            checked += 1
            node = tree.find(path)
            assert node is not None, (name, path)
            assert _same(node.value, found), (name, path)
            if isinstance(node, Scalar) and node.style in (Style.SINGLE, Style.DOUBLE):
                assert node.text[0] == node.text[-1], (name, path)
    assert checked > 1_000
