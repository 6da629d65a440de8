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


def test_too_many_documents_are_one_problem_and_none_is_taken() -> None:
    limits = yaml_limits(Limits(yaml_documents=3))
    three = b"a: 1\n---\nb: 2\n---\nc: 3\n"

    assert len(parse_file("f.yaml", three, limits).objects) == 3
    content = parse_file("f.yaml", three + b"---\nd: 4\n", limits)
    assert content.objects == ()
    (broken,) = content.broken
    assert broken.problem.message == "The file has more than 3 documents"


def test_limits_of_manifests_are_those_of_the_configuration() -> None:
    given = Limits(manifest_bytes=1, yaml_documents=2, yaml_nodes=3, yaml_depth=4)

    limits = yaml_limits(given)

    assert (limits.max_bytes, limits.max_documents, limits.max_nodes, limits.max_depth) == (1, 2, 3, 4)


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
def test_identity_of_a_broken_document_is_guessed_from_its_lines(
    text: str, identity: ClaimedIdentity
) -> None:
    assert guess_identity(text.encode()) == identity
