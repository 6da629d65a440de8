"""Sub-packages at the revisions that a variant sets, on each side of its update."""

import pytest

from reconciler.names.objects import Files, tree_id
from reconciler.render.kptfile import kptfile_value
from reconciler.render.rendered import Blocked
from reconciler.render.subpackages import compose_upstreams
from reconciler.resolve.resolution import Pin, SubpackagePin
from tests.support.git import kptfile
from tests.support.model import package
from tests.support.plan_values import a_draft, a_pin, a_resolved, oid, world

LINK = "upstream:\n  type: git\n  git: {{repo: up, directory: db, ref: db/v{0}}}\nupstreamLock:\n"
LINK += "  type: git\n  git: {{repo: up, directory: db, ref: db/v{0}, commit: {1}}}\n"


def data(value: int, more: str = "") -> str:
    return f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: db\ndata:\n  a: '{value}'\n{more}"


def database(revision: int) -> Files:
    return package({"Kptfile": kptfile("db"), "a.yaml": data(revision)})


def web(revision: int, text: str = "", note: str = "") -> Files:
    """Return a package that has the database at a revision."""
    head = kptfile("web").replace("name: web\n", f"name: web\n{note}")
    link = LINK.format(revision, oid(f"a{revision}"))
    return package(
        {"Kptfile": head, "db/Kptfile": kptfile("db", more=link), "db/a.yaml": text or data(revision)}
    )


def pinned(revision: int, files: Files) -> Pin:
    return a_pin(revision, ref=f"db/v{revision}", tree=tree_id(files))


NOTE = "  annotations:\n    reconciler.dev/on-conflict: upstream\n"
EDITED = web(1, data(7))


@pytest.mark.parametrize(
    ("upstream", "main", "draft", "composed"),
    [
        (web(1), web(1), None, [2, 1]),
        (web(1), web(2), None, [2, 2]),
        (web(2), web(1), None, [2, 1]),
        (EDITED, web(1), None, "db/a.yaml"),
        (EDITED, web(1, note=NOTE), None, [2, 7]),
        (EDITED, web(1), web(1, note=NOTE), [2, 7]),
        (EDITED, web(1, note=NOTE), web(1), "db/a.yaml"),
    ],
)
def test_new_side_has_the_revision_that_is_set_and_the_old_one_that_of_the_package(
    upstream: Files, main: Files, draft: Files | None, composed: list[int] | str
) -> None:
    databases = [database(1), database(2)]
    trees = (upstream, main, *([draft] if draft else []), *databases)
    first, second = (pinned(number, files) for number, files in enumerate(databases, 1))
    pin = a_pin(tree=tree_id(upstream))
    drafted = a_draft(tree=tree_id(draft), base_tree=tree_id(main)) if draft else None
    resolved = a_resolved(
        pin=pin,
        base=pin,
        local=tree_id(main),
        draft=drafted,
        draft_base=pin if draft else None,
        subpackages=(SubpackagePin("db", second, (first,)),),
    )

    made = compose_upstreams((resolved,), {tree_id(files): files for files in trees}, world())

    why = made.blocked.get(resolved.variant.key)
    if isinstance(composed, str):
        assert isinstance(why, Blocked)
        assert composed in why.message
        return
    (variant,) = made.variants
    assert variant.base
    sides = [made.contents[side.tree] for side in (variant.pin, variant.base)]
    assert [side["db/a.yaml"].data.decode()[-4:-2] for side in sides] == [f"'{value}" for value in composed]
    links = [kptfile_value(side["db/Kptfile"].data)["upstreamLock"]["git"] for side in (*sides, main)]
    assert (links[0]["ref"], links[0]["commit"], links[1]) == ("db/v2", oid("a2"), links[2])
