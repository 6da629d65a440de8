"""Commits of any bytes: parsed without failing, as git shows them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.git.commits import PackageAnnotation, decode_text, parse_annotations, parse_commit, valid_time
from reconciler.names.ids import Oid
from reconciler.names.objects import Signature
from reconciler.plan.drafts import clone_task, commit_message

OID = Oid("1" * 40)
names = st.from_regex(r"[a-z0-9][a-z0-9-]{0,10}", fullmatch=True)
TREE, PARENT = b"2" * 40, b"3" * 40


def commit(*lines: bytes, message: bytes = b"Fix\n") -> bytes:
    return b"\n".join([b"tree " + TREE, *lines]) + b"\n\n" + message


@pytest.mark.parametrize(
    "encoding",
    [b"undefined", b"idna", b"punycode", b"no-such-codec", b"base64", b"\xff\xfe", b"utf-8\0x", b""],
)
def test_message_in_unusable_encoding_is_read_as_utf8(encoding: bytes) -> None:
    parsed = parse_commit(OID, commit(b"encoding " + encoding, message="Grüße\n".encode()))

    assert parsed is not None
    assert parsed.message == "Grüße\n"


def test_message_in_known_encoding_is_decoded() -> None:
    parsed = parse_commit(OID, commit(b"encoding ISO-8859-1", message="Grüße\n".encode("latin-1")))

    assert parsed is not None
    assert parsed.message == "Grüße\n"


def test_commit_without_author_and_committer_keeps_tree_and_parents() -> None:
    parsed = parse_commit(OID, commit(b"parent " + PARENT))

    assert parsed is not None
    assert (parsed.tree, parsed.parents) == (TREE.decode(), (PARENT.decode(),))
    assert parsed.author == parsed.committer == Signature("", "", 0)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"Kim <kim@example.com> 1700000000 +0100", Signature("Kim", "kim@example.com", 1_700_000_000)),
        (b"Kim <kim@example.com>", Signature("Kim", "kim@example.com", 0)),
        (b"<> 5 +0000", Signature("", "", 5)),
        (b"Kim <k> -7 +0000", Signature("Kim", "k", 0)),
        (b"Kim <k> 99999999999999999 +0000", Signature("Kim", "k", 253_402_300_799)),
        (b"no address at all", Signature("", "", 0)),
    ],
)
def test_person_of_a_commit_is_read_leniently(line: bytes, expected: Signature) -> None:
    parsed = parse_commit(OID, commit(b"author " + line))

    assert parsed is not None
    assert parsed.author == expected


def test_object_without_tree_is_no_commit() -> None:
    assert parse_commit(OID, b"parent " + PARENT + b"\n\nFix\n") is None


def test_time_outside_of_formattable_dates_is_clamped() -> None:
    assert [valid_time(t) for t in (-1, 0, 1, 2**63)] == [0, 0, 1, 253_402_300_799]


@given(data=st.binary(), encoding=st.binary())
def test_parsing_any_bytes_raises_nothing(data: bytes, encoding: bytes) -> None:
    parse_commit(OID, data)
    assert parse_commit(OID, commit(data, b"encoding " + encoding, message=data)) is not None
    assert isinstance(decode_text(data, encoding), str)


@given(names, names)
def test_annotation_of_a_draft_reads_back(path: str, workspace: str) -> None:
    task = clone_task("bp.nginx.v1")

    annotations = parse_annotations(commit_message("Title", path, workspace, task))

    assert annotations == (PackageAnnotation(path, workspace, "0", task),)


@given(st.text(max_size=60))
def test_malformed_annotations_are_left_out(text: str) -> None:
    valid = 'kpt:{"package": "a"}'
    annotations = parse_annotations(f"x\nkpt:{text}\nkpt:[]\nkpt:{'[' * 2000}\n{valid}")

    assert annotations[-1] == PackageAnnotation("a")
    assert all(isinstance(annotation, PackageAnnotation) for annotation in annotations)
