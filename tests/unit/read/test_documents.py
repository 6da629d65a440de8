"""Objects of a file and where they are in it, also beside documents that are no YAML."""

from typing import Any

import pytest

from reconciler.base.errors import Location
from reconciler.policy import Limits
from reconciler.read.files import ClaimedIdentity, ParsedObject, guess_identity, parse_file, yaml_limits

LIMITS = yaml_limits(Limits())
LIST = """\
apiVersion: v1
kind: ThingList
items:
- name: a
- name: b
  kind: Other
- plain
"""


def parsed(text: str) -> tuple[ParsedObject, ...]:
    return parse_file("f.yaml", text.encode(), LIMITS).objects


@pytest.mark.parametrize(("before", "above"), [("", 0), ("a: [\n---\n", 2)])
def test_items_of_a_list_are_objects_with_positions_of_their_own(before: str, above: int) -> None:
    first, second, third = parsed(f"{before}{LIST}")

    values: list[Any] = [item.value for item in (first, second, third)]
    assert values == [
        {"apiVersion": "v1", "kind": "Thing", "name": "a"},
        {"apiVersion": "v1", "kind": "Other", "name": "b"},
        "plain",
    ]
    assert [item.place.location.line for item in (first, second, third)] == [4 + above, 5 + above, 7 + above]
    assert second.place.mark(("name",)) == (5 + above, 9)
    assert second.place.key_mark(("kind",)) == (6 + above, 3)
    assert second.place.mark_inside(("kind",), 2) == (6 + above, 11)


def test_file_over_the_limit_is_one_broken_document() -> None:
    limits = yaml_limits(Limits(manifest_bytes=20))

    content = parse_file("f.yaml", b"kind: A\n---\n" + b"b: [\n---\n" * 3, limits)

    assert content.objects == ()
    (broken,) = content.broken
    assert (broken.problem.location, broken.identity.kind) == (Location("f.yaml"), "A")


@pytest.mark.parametrize(
    ("text", "identity"),
    [
        ("apiVersion: v1\nkind: 'A'\nmetadata:\n  name: \"x\" # c\n  namespace: n\nspec: [",
            ClaimedIdentity("v1", "A", "n", "x")),
        ("metadata:\n  labels:\n    name: no\n  name: x\n", ClaimedIdentity("", "", "", "x")),
        ("spec:\n  name: no\nkind: A\nkind: B\n", ClaimedIdentity("", "A")),
        ("metadata:\n  name: x\nspec:\n  name: y\nmetadata:\n    name: z\n", ClaimedIdentity(name="x")),
        ("no: yaml [", ClaimedIdentity()),
        ("metadata:\n    name: x\n  namespace: n\n", ClaimedIdentity(name="x")),
    ],
)  # fmt: skip
def test_identity_of_a_broken_document_is_guessed_from_its_lines(text, identity) -> None:
    assert guess_identity(text.encode()) == identity
