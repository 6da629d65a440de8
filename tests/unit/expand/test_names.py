"""Names and UIDs of generated variants."""

import uuid

import pytest

from reconciler.expand.variants import is_object_name, stable_uid, variant_name


def test_character_that_the_cut_splits_is_replaced() -> None:
    name = variant_name("x" * 53 + "ü" * 10)

    assert name[:55] == "x" * 53 + "\ufffd-"
    assert not is_object_name(name)


@pytest.mark.parametrize(
    ("name", "valid"),
    [
        ("a", True), ("a.b-c", True), ("A", False), ("a/b", False), ("-a", False), ("a-", False),
        ("a..b", False), ("", False), ("x" * 253, True), ("x" * 254, False),
    ],
)  # fmt: skip
def test_object_names(name: str, valid: bool) -> None:
    assert is_object_name(name) is valid


def test_uid_is_a_uuid5_of_instance_namespace_and_name() -> None:
    uids = {
        stable_uid("i", "n", "a"),
        stable_uid("j", "n", "a"),
        stable_uid("i", "m", "a"),
        stable_uid("i", "n", "b"),
    }

    assert len(uids) == 4
    assert {uuid.UUID(uid).version for uid in uids} == {5}
    base = uuid.uuid5(uuid.NAMESPACE_DNS, "reconciler.dev")
    assert stable_uid("i", "n", "a") == str(uuid.uuid5(base, "i\0n\0a"))
