"""Which versions change between two resolutions, why, and in which clusters."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from reconciler.dependencies.lock.format import (
    LockedDependency,
    LockedInstance,
    LockedPackage,
    LockedSlot,
    LockOp,
    Resolution,
)
from reconciler.dependencies.lock.write import USER
from reconciler.dependencies.update.changes import (
    VersionChange,
    object_version_changes,
    resolution_changes,
    version_changes,
)


def instance(name: str) -> LockedInstance:
    return LockedInstance(ecosystem="carvel", name=name, slot=LockedSlot(kind="cluster"))


def package(name: str, version: str = "1.0.0", *by: str, **fields: Any) -> LockedPackage:
    return LockedPackage(
        instance=instance(name),
        dialect="carvel",
        version=version,
        requested_by=by,
        **{"owner": by[0] if by else "", **fields},
    )


def asking(name: str, constraints: str, *, of: str = "db", dialect: str = "carvel") -> LockedPackage:
    """Return a package that asks for versions of another one."""
    need = LockedDependency(
        signature="s",
        need="package",
        id=f"carvel:{of}",
        dialect=dialect,
        constraints=constraints,
        resolved=instance(of),
        via="candidate",
    )
    return package(name, dependencies=(need,))


def changes(old: list[LockedPackage], new: list[LockedPackage]) -> list[tuple[str, str, str, str, str]]:
    found = resolution_changes(Resolution(packages=tuple(old)), Resolution(packages=tuple(new)))
    return [(str(c.op), c.instance.partition("@")[0], c.before, c.after, c.why) for c in found]


FITS = "the version that fits best now"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ([package("db")], [package("db")], []),
        ([package("db")], [], [("remove", "carvel:db", "1.0.0", "", "nothing requires it any more")]),
        (
            [],
            [package("db", "1.0.0", USER, "a")],
            [("add", "carvel:db", "", "1.0.0", "a manifest asks for it; a asks for it")],
        ),
        (
            [],
            [package("db", "1.0.0", "a", "b", "c", "d", "e")],
            [("add", "carvel:db", "", "1.0.0", "a asks for it; b asks for it; c asks for it; and 2 more")],
        ),
        ([package("db")], [package("db", "2.0.0")], [("change", "carvel:db", "1.0.0", "2.0.0", FITS)]),
        (
            [package("db")],
            [package("db", "2.0.0", USER)],
            [("change", "carvel:db", "1.0.0", "2.0.0", "its manifest asks for it")],
        ),
        (
            [package("db", digest="sha256:1")],
            [package("db", digest="sha256:2")],
            [("change", "carvel:db", "1.0.0", "1.0.0", "its content changed under the same version")],
        ),
    ],
)
def test_change_of_a_version_has_its_cause(
    old: list[LockedPackage], new: list[LockedPackage], expected: list[tuple[str, ...]]
) -> None:
    assert changes(old, new) == expected


@pytest.mark.parametrize(
    ("constraints", "dialect", "excludes"),
    [
        (">=2.0.0", "carvel", True),
        (">=1.0.0", "carvel", False),
        ("", "carvel", False),
        (">=v2", "crossplane", True),
        ("v1.0.0", "crossplane", False),
        (f"sha256:{'0' * 64}", "crossplane", True),
        ("no range", "carvel", False),
    ],
)
def test_requirement_that_excludes_the_old_version_is_the_cause(
    constraints: str, dialect: str, excludes: bool
) -> None:
    parent = asking("web", constraints, dialect=dialect)

    ((*_, why),) = changes([package("db"), parent], [package("db", "2.0.0"), parent])

    assert why == (f"carvel:web@cluster asks for {constraints}" if excludes else FITS)


def test_causes_are_sorted_and_a_few_are_told() -> None:
    parents = [asking(name, ">=2.0.0") for name in ("d", "b", "a", "c")]
    elsewhere = asking("e", ">=2.0.0", of="other")

    others = [*parents, elsewhere]

    ((*_, why),) = changes([package("db"), *others], [package("db", "2.0.0"), *others])

    assert why == "; ".join(f"carvel:{name}@cluster asks for >=2.0.0" for name in "abc")


def scope(cluster: str, before: Resolution | None, after: Resolution | None) -> Any:
    wrapped = (SimpleNamespace(resolution=each) if each else None for each in (before, after))
    return SimpleNamespace(cluster=cluster, **dict(zip(("before", "after"), wrapped, strict=True)))


def test_equal_changes_of_several_clusters_are_one() -> None:
    one, two = Resolution(packages=(package("db"),)), Resolution(packages=(package("db", "2.0.0"),))
    decision = cast(
        "Any",
        SimpleNamespace(
            scopes=[scope("b", one, two), scope("a", one, two), scope("c", None, two), scope("d", one, None)]
        ),
    )

    assert version_changes(decision) == (
        VersionChange(LockOp.ADD, "carvel:db@cluster", "", "2.0.0", "nothing requires it", ("c",)),
        VersionChange(LockOp.CHANGE, "carvel:db@cluster", "1.0.0", "2.0.0", FITS, ("b", "a")),
        VersionChange(
            LockOp.REMOVE, "carvel:db@cluster", "1.0.0", "", "nothing requires it any more", ("d",)
        ),
    )


def test_changes_of_objects_are_told_by_path_or_by_their_package() -> None:
    new = {"a.yaml": package("db", "2.0.0", USER), "b.yaml": package("log", "1.0.0", "x")}
    before = {"a.yaml": "1.0.0", "c.yaml": "1.0.0", "same.yaml": "1.0.0"}
    after = {"a.yaml": "2.0.0", "b.yaml": "1.0.0", "same.yaml": "1.0.0"}

    found = object_version_changes(before, after, new, Resolution(), "edge")

    assert found == (
        VersionChange(
            LockOp.CHANGE, "carvel:db@cluster", "1.0.0", "2.0.0", "its manifest asks for it", ("edge",)
        ),
        VersionChange(LockOp.ADD, "carvel:log@cluster", "", "1.0.0", "x asks for it", ("edge",)),
        VersionChange(LockOp.REMOVE, "c.yaml", "1.0.0", "", "nothing requires it any more", ("edge",)),
    )


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [("1", "2", "db 1 -> 2: why"), ("", "2", "db 2: why"), ("1", "", "db 1: why")],
)
def test_text_of_a_change(before: str, after: str, text: str) -> None:
    assert str(VersionChange(LockOp.CHANGE, "db", before, after, "why", ())) == text
