"""Loading: documents, positions, JSON, and hostile texts."""

import threading
import tracemalloc
from typing import NamedTuple

import pytest

from reconciler.krm.yaml import (
    MANIFEST_LIMITS,
    PACKAGE_LIMITS,
    Aliases,
    Path,
    YamlError,
    YamlLimits,
    load_documents,
    load_json,
)

TEXT = b"""# a comment
a: 1
b:
- x: on
  "y z": [p, {q: r}]
---
# only a comment
---
on: push
"""


class Place(NamedTuple):
    document: int
    path: Path
    value: tuple[int, int]
    key: tuple[int, int]


PLACES = [
    Place(0, (), (2, 1), (2, 1)),
    Place(0, ("a",), (2, 4), (2, 1)),
    Place(0, ("b",), (4, 1), (3, 1)),
    Place(0, ("b", 0), (4, 3), (4, 3)),
    Place(0, ("b", 0, "x"), (4, 6), (4, 3)),
    Place(0, ("b", 0, "y z", 1, "q"), (5, 18), (5, 15)),
    Place(0, ("b", 0, "absent", "below"), (4, 3), (4, 3)),
    Place(0, ("b", 7), (4, 1), (4, 1)),
    Place(1, ("true",), (9, 5), (9, 1)),
]


@pytest.mark.parametrize("newline", [b"\n", b"\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize("prefix", [b"", b"\xef\xbb\xbf"], ids=["no-bom", "bom"])
@pytest.mark.parametrize("place", PLACES, ids=lambda place: repr(place.path))
def test_position_of_a_field(place: Place, prefix: bytes, newline: bytes) -> None:
    documents = load_documents(prefix + TEXT.replace(b"\n", newline))

    found = documents[place.document]

    assert (found.mark(place.path), found.key_mark(place.path)) == (place.value, place.key)


def test_empty_and_comment_only_documents_are_skipped() -> None:
    assert [(document.value, document.line) for document in load_documents(TEXT)] == [
        ({"a": 1, "b": [{"x": True, "y z": ["p", {"q": "r"}]}]}, 2),
        ({"true": "push"}, 9),
    ]
    assert load_documents(b"") == load_documents(b"\n---\n# c\n---\n") == ()


def test_positions_in_a_file_with_directives() -> None:
    text = b"%TAG !k! tag:k,2000:\n---\na: !k!x 1\n...\n%TAG !l! tag:l,2000:\n---\nb: !l!x 2\n"

    first, second = load_documents(text)

    assert (first.mark(("a",)), second.mark(("b",))) == ((3, 4), (7, 4))


def test_json_has_values_and_positions() -> None:
    document = load_json(b'{\n "a": {"b": [1e3, "\\ud83d\\ude00"]}\n}\n')

    assert document.value == {"a": {"b": [1000.0, "😀"]}}
    document = load_json(b'\n{"a": {"b": 1}}\n')
    assert (document.mark(("a", "b")), document.key_mark(("a", "b"))) == ((2, 13), (2, 8))


def test_duplicate_json_keys_are_refused_unless_unchecked() -> None:
    data = b'{"a": {"b": 1, "b": 2}}'

    with pytest.raises(YamlError, match="'b' is set twice"):
        load_json(data)
    with pytest.raises(YamlError, match="'b' is set twice"):
        load_documents(data)
    assert load_json(data, check_duplicates=False).value == {"a": {"b": 2}}


class Hostile(NamedTuple):
    reason: str
    data: bytes
    line: int


def _bomb(levels: int) -> bytes:
    lines = ["a0: &a0 [x, x]"]
    lines += [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}, *a{n - 1}]" for n in range(1, levels)]
    return "\n".join(lines).encode()


HOSTILE = [
    Hostile("1,000 levels of lists", b"a: " + b"[" * 1000 + b"]" * 1000, 1),
    Hostile("100,000 open brackets", b"[" * 100_000, 1),
    Hostile("100,000 open braces", b"{a: " * 100_000, 1),
    Hostile("100,000 dashes", b"- " * 100_000, 1),
    Hostile("100,000 question marks", b"? " * 100_000, 1),
    Hostile("1,000 levels of blocks", b"".join(b" " * n + b"a:\n" for n in range(1000)), 0),
    Hostile("JSON, 1,000 levels", b'{"a":' * 1000 + b"1" + b"}" * 1000, 1),
    Hostile("a value that contains itself", b"a: &a [*a]", 1),
    Hostile("an alias bomb", _bomb(30), 0),
    Hostile("an alias to nothing", b"a: *b", 1),
    Hostile("a key set twice", b"a: 1\nb: 2\na: 3", 3),
    Hostile("an inherited key set twice", b"c:\n  <<: {a: 1}\n  a: 2\n  a: 3", 4),
    Hostile("a key set twice in other words", b"1: 1\n'1': 2", 2),
    Hostile("a NUL byte", b"a: 1\nb: \x00", 2),
    Hostile("a control character", b"a: 1\nb: \x07", 2),
    Hostile("invalid UTF-8", b"a: 1\nb: \xff\xfe", 2),
    Hostile("half a UTF-16 character", b"\xff\xfea", 0),
    Hostile("a Helm template", b"{{- if .Values.x }}\na: {{ .Values.y }}\n{{- end }}\n", 1),
    Hostile("a tab as indentation", b"a:\n\tb: 1", 2),
    Hostile("a merge of a scalar", b"<<: 1", 1),
    Hostile("an unknown directive's tag", b"a: !x!y 1", 1),
    Hostile("an unterminated string", b'a: "x', 1),
    Hostile("binary", bytes(range(256)), 2),
]


@pytest.mark.parametrize("aliases", list(Aliases))
@pytest.mark.parametrize("case", HOSTILE, ids=lambda case: case.reason)
def test_hostile_input_is_an_error_with_a_position(case: Hostile, aliases: Aliases) -> None:
    limits = PACKAGE_LIMITS if aliases is Aliases.BOUNDED else MANIFEST_LIMITS

    with pytest.raises(YamlError) as caught:
        load_documents(case.data, limits)

    assert caught.value.message
    if case.line:
        assert caught.value.line == case.line


@pytest.mark.parametrize("limits", [PACKAGE_LIMITS, MANIFEST_LIMITS], ids=["package", "manifest"])
def test_fifty_megabytes_are_an_error(limits: YamlLimits) -> None:
    with pytest.raises(YamlError):
        load_documents(b"#" * (50 << 20), limits)


def test_deep_input_does_not_crash_the_smaller_stack_of_a_thread() -> None:
    caught: list[str] = []

    def load() -> None:
        for data in (b"[" * 900, b"- " * 900, b"{a: " * 100_000):
            try:
                load_documents(data, PACKAGE_LIMITS)
            except YamlError as error:
                caught.append(error.message)

    thread = threading.Thread(target=load)
    thread.start()
    thread.join()

    assert len(caught) == 3


def test_anchors_are_refused_in_manifests_and_followed_in_packages() -> None:
    data = b"a: &x {b: 1}\nc: *x\n'd&e': \"&f\"\n"

    with pytest.raises(YamlError) as caught:
        load_documents(data, MANIFEST_LIMITS)
    (document,) = load_documents(data, PACKAGE_LIMITS)

    assert (caught.value.line, caught.value.column) == (1, 4)
    assert document.value == {"a": {"b": 1}, "c": {"b": 1}, "d&e": "&f"}


@pytest.mark.parametrize(
    "text", ["a: x &b c", "a: '&b'", "a: |\n  &b\n", "# &b\na: 1", "a: b&c", "a: x\n  &b c"]
)
def test_ampersand_in_text_is_no_anchor(text: str) -> None:
    assert len(load_documents(text.encode(), MANIFEST_LIMITS)) == 1


def test_too_many_nodes_are_refused_before_they_fill_the_memory() -> None:
    limits = YamlLimits(max_bytes=10_000_000, max_documents=2, max_nodes=1_000)
    text = b"- a\n" * 100_000
    tracemalloc.start()

    with pytest.raises(YamlError, match="more than 1000 nodes"):
        load_documents(text, limits)

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5 * len(text), "a node takes a hundred times its text"


def test_the_number_of_documents_and_nodes_is_bounded() -> None:
    small = YamlLimits(max_bytes=10_000, max_documents=2, max_nodes=10)

    assert len(load_documents(b"a: 1\n---\nb: 1\n", small)) == 2
    with pytest.raises(YamlError, match="more than 2 documents"):
        load_documents(b"a: 1\n---\nb: 1\n---\nc: 1\n", small)
    with pytest.raises(YamlError, match="more than 10 nodes"):
        load_documents(b"[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]", small)
    assert load_documents(b'{"a": [1, 2, 3, 4, "5,6,7,8,9,10"]}', small)[0].value["a"][4] == "5,6,7,8,9,10"
    with pytest.raises(YamlError, match="more than 10 nodes"):
        load_documents(b'{"a": [1, 2, 3, 4, 5, 6, 7, 8]}', small)


def test_error_has_position_and_hint() -> None:
    with pytest.raises(YamlError) as caught:
        load_documents(b"a: 1\nb: &x 2\n", MANIFEST_LIMITS)

    assert str(caught.value) == "line 2, column 4: Anchors and aliases are not allowed here"
    assert caught.value.hint == "Write the value out."


class PositionCase(NamedTuple):
    reason: str
    text: str
    find: str
    line: int
    column: int


CASES = [
    PositionCase("a plain scalar starts at its mark", "e: target.nope\n", "nope", 1, 11),
    PositionCase("a plain scalar over two lines is folded", "e: target.name +\n  nope\n", "nope", 2, 3),
    PositionCase("a single-quoted one starts behind its quote", "e: 'target.nope'\n", "nope", 1, 12),
    PositionCase("a doubled quote is one character", "e: '''a'' + nope'\n", "nope", 1, 13),
    PositionCase("an escape is one character", 'e: "\\"a\\" + nope"\n', "nope", 1, 13),
    PositionCase("a literal block starts on the next line", "e: |\n  'a' +\n  nope\n", "nope", 3, 3),
    PositionCase("a literal block keeps deeper indentation", "e: |-\n  'a' +\n    nope\n", "nope", 3, 5),
    PositionCase("a folded block joins lines", "e: >-\n  'a' +\n  nope\n", "nope", 3, 3),
    PositionCase("a block inside a list", "l:\n- e: |\n    true ?\n    nope : 'b'\n", "nope", 4, 5),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.reason)
def test_position_inside_a_scalar(case: PositionCase) -> None:
    document = load_documents(case.text.encode())[0]
    path = ("e",) if "e" in document.value else ("l", 0, "e")
    value = document.value["e"] if len(path) == 1 else document.value["l"][0]["e"]

    assert document.mark_inside(path, value.index(case.find)) == (case.line, case.column)


def test_position_beyond_the_end_is_the_last_character_and_in_a_collection_its_start() -> None:
    assert load_documents(b"e: abc\n")[0].mark_inside(("e",), 99) == (1, 6)
    document = load_documents(b"e:\n  f: 1\n")[0]
    assert document.mark_inside(("e",), 3) == document.mark(("e",))
