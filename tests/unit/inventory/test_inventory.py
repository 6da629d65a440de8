"""By which Repository a package is named and judged, registered or not any more (D19, D36)."""

from typing import Any

import pytest

from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.inventory.inventory import FieldPath, Former, RepositoryView, Source
from reconciler.names.ids import PackageKey
from reconciler.names.problems import Problem
from tests.support.plan_values import URL, WEB
from tests.support.sets import repository, world


def view(name: str, **fields: Any) -> RepositoryView:
    """Return a registered place of the one Git repository."""
    return repository(name, **{"url": URL, **fields})


def former(name: str, *paths: str, reason: Reason = Reason.MOVED, **fields: Any) -> RepositoryView:
    """Return a place of recorded packages that no Repository is at."""
    return view(name, former=Former(reason, "", dict.fromkeys(paths, WEB), **fields))


UNREAD = former("unread", "apps/web", reason=Reason.OWNER_STALLED)
REFUSED = Problem(Location("a.yaml"), Reason.REPOSITORY_REFUSED, "Two addresses of one repository")
WHOLE, APPS, INNER = view("whole"), view("apps", directory="apps"), view("inner", directory="apps/inner")


@pytest.mark.parametrize(
    ("views", "path", "name"),
    [
        ((WHOLE, APPS, INNER), "web", "whole"),
        ((WHOLE, APPS, INNER), "apps", "apps"),
        ((WHOLE, APPS, INNER), "apps/web", "apps"),
        ((WHOLE, APPS, INNER), "apps/inner/deep/web", "inner"),
        ((WHOLE, APPS, INNER), "apps/innermost", "apps"),
        ((APPS, INNER), "web", None),
        ((view("apps", directory="apps", url="host/other"),), "apps/web", None),
        ((view("b"), view("a"), view("c")), "web", "a"),
        ((view("a", problem=REFUSED), view("b")), "web", "b"),
        ((view("a", problem=REFUSED),), "web", "a"),
        ((former("old", "apps/web"),), "apps/web", "old"),
        ((former("old", "apps/web"),), "apps/api", None),
        ((former("old", "apps/web"), WHOLE), "apps/web", "whole"),
        ((UNREAD, APPS), "apps/web", "unread"),
        ((UNREAD, APPS), "apps/api", "apps"),
        ((UNREAD, former("old", "apps/web"), APPS), "apps/web", "unread"),
        ((former("old", "apps/web", aside=frozenset({"apps/web"})),), "apps/web", None),
        ((former("old", "apps/web", "apps/api", aside=frozenset({"apps/web"})),), "apps/api", "old"),
    ],
)
@pytest.mark.parametrize("order", [1, -1])
def test_package_is_of_the_nearest_repository_unless_its_own_is_not_understood(
    views: tuple[RepositoryView, ...], path: str, name: str | None, order: int
) -> None:
    registered = tuple(v for v in views[::order] if v.former is None)
    places = {v.key: v for v in views[::order] if v.former is not None}

    place = world(views=registered, former=places).view_of(PackageKey(URL, path))

    assert (place and place.key.name) == name


class Marks:
    def mark(self, path: FieldPath) -> tuple[int, int]:
        return len(path), 0


class FineMarks(Marks):
    def mark_inside(self, path: FieldPath, offset: int) -> tuple[int, int]:
        return len(path), offset


@pytest.mark.parametrize(("marks", "column"), [(Marks(), 0), (FineMarks(), 7)])
def test_field_that_is_written_elsewhere_is_marked_there_to_the_character(marks: Marks, column: int) -> None:
    source = Source(Location("set.yaml"), marks=marks).moved(("spec", "upstream"), ("spec", "upstreams", 1))

    assert source.inside(7, "spec", "upstream", "repo") == Location("set.yaml", 4, column)
    assert source.inside(7, "spec", "targets") == Location("set.yaml", 2, column)
    assert source.at("spec", "upstream", "repo") == Location("set.yaml", 4, 0)
    assert source.written("spec", "upstream", "repo") == ("spec", "upstreams", 1, "repo")
