"""Which documents of three packages are one resource, and what becomes of each whole resource."""

from collections.abc import Mapping
from typing import Any

import pytest

from reconciler.krm.documents import ResourceFile, resources_in
from reconciler.names.objects import File
from reconciler.render.update import Conflict, update_package
from reconciler.render.update.resources import ResourceSides, match_resources
from tests.support.merges import files_of

ROOT = "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: pkg\n"


def cm(name: str, namespace: str = "", value: str = "x") -> str:
    where = f"  namespace: {namespace}\n" if namespace else ""
    return f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n{where}data:\n  a: {value}\n"


def side(texts: Mapping[str, str]) -> dict[str, ResourceFile]:
    files = {path: resources_in(File.of(text.encode())) for path, text in texts.items()}
    return {path: file for path, file in files.items() if file is not None}


def matched(
    base: Mapping[str, str],
    upstream: Mapping[str, str],
    local: Mapping[str, str],
    *,
    follow_moves: bool = True,
) -> list[tuple[str, str, str]]:
    """Return for each resource the `file/namespace/name` of each side, "" where a side has it not."""
    found = match_resources(side(base), side(upstream), side(local), follow_moves=follow_moves)
    return [(place(r, "base"), place(r, "upstream"), place(r, "local")) for r in found]


def place(resource: ResourceSides, name: str) -> str:
    document = getattr(resource, name)
    if document is None:
        return ""
    identity = document.document.identity
    return f"{document.path}:{identity.namespace}/{identity.name}"


A, B = cm("a"), cm("b")


@pytest.mark.parametrize(
    ("sides", "want"),
    [
        pytest.param(({"f": A}, {"g": A}, {"f": A}), [("f:/a", "g:/a", "f:/a")], id="upstream moved it"),
        pytest.param(({"f": A}, {"f": A}, {"g": A}), [("f:/a", "f:/a", "g:/a")], id="local moved it"),
        pytest.param(({"f": A}, {"g": A}, {"h": A}), [("f:/a", "g:/a", "h:/a")], id="both moved it"),
        pytest.param(({"f": A}, {"g": A}, {"g": A}), [("f:/a", "g:/a", "g:/a")], id="both to one file"),
        pytest.param(({"f": A}, {"g": A}, {}), [("f:/a", "g:/a", "")], id="moved and deleted"),
        pytest.param(
            ({"f": A}, {"g": A, "h": A}, {"f": A}),
            [("f:/a", "", "f:/a"), ("", "g:/a", ""), ("", "h:/a", "")],
            id="copied to two files",
        ),
        pytest.param(
            ({"f": A, "i": A}, {"g": A}, {"f": A, "i": A}),
            [("f:/a", "", "f:/a"), ("i:/a", "", "i:/a"), ("", "g:/a", "")],
            id="one of two moved",
        ),
    ],
)
def test_resource_is_followed_to_another_file_if_exactly_one_fits(
    sides: tuple[dict[str, str], dict[str, str], dict[str, str]], want: list[tuple[str, str, str]]
) -> None:
    named = [{f"{path}.yaml": text for path, text in files.items()} for files in sides]

    assert [tuple(text.replace(".yaml", "") for text in row) for row in matched(*named)] == want


def test_two_namespaces_of_one_upstream_are_each_matched_once() -> None:
    two = f"{cm('a', 'east')}---\n{cm('a', 'west')}"

    assert matched({"f.yaml": two}, {"f.yaml": two}, {"f.yaml": cm("a", "prod")}) == [
        ("f.yaml:east/a", "f.yaml:east/a", "f.yaml:prod/a"),
        ("f.yaml:west/a", "f.yaml:west/a", ""),
    ]


@pytest.mark.parametrize(
    ("local", "upstream"),
    [
        pytest.param({"g.yaml": cm("a", "prod")}, {"f.yaml": A}, id="in another file"),
        pytest.param({"f.yaml": cm("c", "prod")}, {"f.yaml": A}, id="of another name"),
        pytest.param({"f.yaml": f"{cm('a', 'prod')}---\n{cm('a', 'test')}"}, {"f.yaml": A}, id="of two"),
        pytest.param({"f.yaml": cm("a", "prod")}, {}, id="that upstream deleted"),
    ],
)
def test_other_namespace_is_another_resource(local: dict[str, str], upstream: dict[str, str]) -> None:
    found = matched({"f.yaml": A}, upstream, local)

    assert all(row[2] == "" for row in found if row[0])


def test_any_side_is_local_else_upstream_else_base() -> None:
    (resource,) = match_resources(
        side({"b.yaml": A}), side({"u.yaml": A}), side({"l.yaml": A}), follow_moves=True
    )

    assert resource.any_side.path == "l.yaml"
    assert resource.paths == {"b.yaml", "u.yaml", "l.yaml"}
    assert ResourceSides(resource.base, resource.upstream).any_side.path == "u.yaml"
    assert ResourceSides(resource.base).any_side.path == "b.yaml"
    assert [
        each.is_incomplete
        for each in (
            resource,
            ResourceSides(resource.base, resource.upstream),
            ResourceSides(resource.base, None, resource.local),
            ResourceSides(None, resource.upstream),
        )
    ] == [False, True, True, False]


# Conflicts about whole resources


def update(
    original: Mapping[str, str], upstream: Mapping[str, str], local: Mapping[str, str], **options: Any
) -> tuple[dict[str, str], list[Conflict]]:
    done = update_package(
        *(files_of({"Kptfile": ROOT, **files}) for files in (original, upstream, local)), **options
    )
    texts = {path: file.data.decode() for path, file in done.files.items() if path != "Kptfile"}
    return texts, list(done.conflicts)


CHANGED = cm("a", value="y")
ENCRYPTED = A + "sops:\n  mac: {}\n"


@pytest.mark.parametrize(
    ("sides", "reason", "paths"),
    [
        pytest.param(({"f": A}, {}, {"f": CHANGED}), "DeletedUpstream", "f", id="deleted upstream"),
        pytest.param(({"f": A}, {"f": CHANGED}, {}), "DeletedLocally", "f", id="deleted here"),
        pytest.param(({"f": A}, {"g": CHANGED}, {}), "DeletedLocally", "g", id="deleted here, moved"),
        pytest.param(
            (
                {"f": ENCRYPTED.format("1")},
                {"f": ENCRYPTED.format("2")},
                {"g": ENCRYPTED.format("3")},
            ),
            "BothChanged",
            "g",
            id="encrypted, moved here",
        ),
    ],
)
def test_conflict_about_a_whole_resource_is_where_the_resource_is(
    sides: tuple[dict[str, str], dict[str, str], dict[str, str]], reason: str, paths: str
) -> None:
    base, upstream, local = ({f"{p}.yaml": text for p, text in files.items()} for files in sides)

    texts, conflicts = update(base, upstream, local)

    assert list(texts.values()) == list(local.values())
    assert [(c.path, c.field, c.reason) for c in conflicts] == [(f"{paths}.yaml", "", reason)]
