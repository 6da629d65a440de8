"""Adoption x deletion x lifecycle x cause: the full product, each cell with its expected operation."""

from collections.abc import Mapping
from copy import deepcopy
from functools import cache
from itertools import product

import pytest

from reconciler.api.porch import Downstream, InjectionSelector, PackageContext, PackageVariantSpec, Upstream
from reconciler.base.errors import Location
from reconciler.inventory.inventory import Inventory
from reconciler.inventory.snapshot import Snapshot, SnapshotObject
from reconciler.names.objects import Files
from reconciler.plan.changes import Op
from tests.support.model import MAIN, ModelWorld, blueprint
from tests.support.points import team_point
from tests.support.values import replace

ADOPTIONS = ("adoptNone", "adoptExisting")
DELETIONS = ("delete", "orphan")
LIVES = (
    *("absent", "draft", "proposed", "published", "deletion-proposed"),
    *("theirs-draft", "theirs-published"),
)
CAUSES = ("none", "upstream", "context", "object", "draft-edit", "main-edit", "gone")

# A person's commit in a draft is told in the text of its pull request, once.
OPEN = {
    "none": Op.KEEP,
    "upstream": Op.UPDATE,
    "context": Op.EDIT,
    "object": Op.EDIT,
    "draft-edit": Op.UPDATE,
}
ON_MAIN = {**OPEN, "main-edit": Op.PUBLISH}
MINE = {
    "draft": OPEN,
    "proposed": OPEN,
    "published": ON_MAIN,
    "deletion-proposed": {**ON_MAIN, "none": Op.CLOSE},
}
NOTHING = "what does not exist and nobody wants is no package"
NO_DRAFT, NOT_ON_MAIN = "there is no draft that a person could edit", "it is not on main yet"
IMPOSSIBLE = {
    ("absent", "gone"): NOTHING,
    ("absent", "draft-edit"): NO_DRAFT,
    ("published", "draft-edit"): NO_DRAFT,
    ("deletion-proposed", "draft-edit"): NO_DRAFT,
    ("theirs-published", "draft-edit"): NO_DRAFT,
    ("absent", "main-edit"): NOT_ON_MAIN,
    ("draft", "main-edit"): NOT_ON_MAIN,
    ("proposed", "main-edit"): NOT_ON_MAIN,
    ("theirs-draft", "main-edit"): NOT_ON_MAIN,
}
POINT = team_point("optional")


def expected(adoption: str, deletion: str, life: str, cause: str) -> Op:
    """Return what the design says, cell by cell, without asking the planner."""
    if cause == "gone":
        is_first = life in {"draft", "proposed"}  # nothing is there to be let go of
        if life.startswith("theirs") or life == "deletion-proposed" or (deletion == "orphan" and is_first):
            return Op.KEEP
        return Op.ORPHAN if deletion == "orphan" else Op.DELETE
    if life in MINE:
        return MINE[life][cause]
    if life == "absent":
        return Op.CREATE
    if adoption == "adoptNone":
        return Op.KEEP
    return Op.ADOPT if life == "theirs-published" else Op.KEEP


class ClusterWorld(ModelWorld):
    """A world with one object in its cluster."""

    code = "old"

    def inventory(self) -> Inventory:
        kind = ("hr.example.com/v1", "Team")
        team = SnapshotObject(
            *kind, "default", "red", {}, {}, {"spec": {"code": self.code}}, Location("s.yaml")
        )
        return replace(super().inventory(), snapshot=Snapshot(present=True, objects={kind: (team,)}))


@cache
def a_world(adoption: str, deletion: str, life: str) -> ClusterWorld:
    """Return a world before any cause; each cell takes a copy."""
    world = ClusterWorld()
    world.add_repository("blueprints")
    edge = world.add_repository("edge")
    for number in (1, 2):
        files = blueprint("web", a_yaml=f"a: {number}\n", team_yaml=POINT)
        world.publish("blueprints", "web", files, number)
    world.variants["other"] = spec(adoption, deletion, package="other")
    if life in MINE:
        was = "delete" if life == "deletion-proposed" else deletion
        world.variants["web"] = spec(adoption, was)
    world.run()
    (draft,) = [ref for ref in world.drafts("edge") if "/web/" in ref] or [""]
    if life == "proposed":
        edge.refs[draft.replace("/drafts/", "/proposed/")] = edge.refs.pop(draft)
    elif life in {"published", "deletion-proposed"}:
        world.merge("edge", draft)
    elif life == "theirs-draft":
        edge.refs["refs/heads/drafts/web/theirs"] = edge.refs[MAIN]
        world.push("edge", {"web": blueprint("web")}, ref="refs/heads/drafts/web/theirs")
    elif life == "theirs-published":
        world.push("edge", {"web": blueprint("web")})
    world.run()
    if life == "deletion-proposed":
        del world.variants["web"]
        world.run()
        assert "refs/heads/reconciler/fleet/delete/web" in edge.refs
    return world


def bring_about(world: ClusterWorld, adoption: str, deletion: str, cause: str) -> None:
    """Do what the cause says; whoever wants the package says so."""
    if cause == "gone":
        world.variants.pop("web", None)
        return
    world.variants["web"] = spec(adoption, deletion, cause=cause)
    if cause == "object":
        world.code = "new"
    elif cause == "main-edit":
        world.edit("edge", "web", {"notes.txt": "mine\n"})
    elif cause == "draft-edit":
        (draft,) = [ref for ref in world.drafts("edge") if "/web/" in ref]
        world.edit("edge", "web", {"notes.txt": "mine\n"}, ref=draft)


def spec(adoption: str, deletion: str, *, package: str = "web", cause: str = "none") -> PackageVariantSpec:
    return PackageVariantSpec(
        upstream=Upstream(repo="blueprints", package="web", revision=2 if cause == "upstream" else 1),
        downstream=Downstream(repo="edge", package=package),
        adoption_policy=adoption,
        deletion_policy=deletion,
        package_context=PackageContext(data={"a": "b"}) if cause == "context" else None,
        injectors=[InjectionSelector(name="red")],
    )


CELLS = list(product(ADOPTIONS, DELETIONS, LIVES, CAUSES))
POSSIBLE = [cell for cell in CELLS if (cell[2], cell[3]) not in IMPOSSIBLE]


def test_the_product_is_whole() -> None:
    assert len(CELLS) == 2 * 2 * 7 * 7
    assert len(CELLS) - len(POSSIBLE) == 4 * len(IMPOSSIBLE) == 36
    assert all(IMPOSSIBLE.values())


@pytest.mark.parametrize(("adoption", "deletion", "life", "cause"), POSSIBLE)
def test_cell(adoption: str, deletion: str, life: str, cause: str) -> None:
    world = deepcopy(a_world(adoption, deletion, life))
    bring_about(world, adoption, deletion, cause)
    theirs = {ref: oid for ref, oid in world.repositories["edge"].refs.items() if ref.endswith("/theirs")}

    plan = world.run()

    (change,) = [c for c in plan.changes if c.package.path == "web"]
    assert change.op is expected(adoption, deletion, life, cause), change
    assert theirs.items() <= world.repositories["edge"].refs.items(), "nobody else's draft is touched"
    if cause.endswith("-edit"):
        edited = [c for c in world.repositories["edge"].commits.values() if _is_edited(c.packages)]
        reached = {o for r in world.repositories["edge"].refs.values() for o in _ancestors(world, r)}
        assert edited
        assert {c.oid for c in edited} <= reached, "no edit is lost"
    again = world.plan()
    assert again.is_empty
    assert again.records == world.state


def _is_edited(packages: Mapping[str, Files]) -> bool:
    return "notes.txt" in packages.get("web", {})


def _ancestors(world: ModelWorld, oid: str) -> set[str]:
    return set(world.repositories["edge"].ancestors(oid))
