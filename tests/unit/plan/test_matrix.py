"""Adoption x deletion x lifecycle x cause: the full product, each cell with its expected operation."""

from itertools import product

import pytest

from reconciler.api.porch import Downstream, PackageContext, PackageVariantSpec, Upstream
from reconciler.plan.changes import Op
from tests.support.model import MAIN, ModelWorld, blueprint

ADOPTIONS = ("adoptNone", "adoptExisting")
DELETIONS = ("delete", "orphan")
LIVES = ("absent", "draft", "proposed", "published", "theirs-draft", "theirs-published")
CAUSES = ("none", "upstream", "context", "gone")

MINE = {
    ("draft", "none"): Op.KEEP,
    ("draft", "upstream"): Op.UPDATE,
    ("draft", "context"): Op.EDIT,
    ("proposed", "none"): Op.KEEP,
    ("proposed", "upstream"): Op.UPDATE,
    ("proposed", "context"): Op.EDIT,
    ("published", "none"): Op.KEEP,
    ("published", "upstream"): Op.UPDATE,
    ("published", "context"): Op.EDIT,
}
IMPOSSIBLE = {
    ("absent", "gone"): "what does not exist and nobody wants is no package",
}


def expected(adoption: str, deletion: str, life: str, cause: str) -> Op:
    """Return what the design says, cell by cell, without asking the planner."""
    if cause == "gone":
        if life.startswith("theirs"):
            return Op.KEEP
        return Op.ORPHAN if deletion == "orphan" else Op.DELETE
    if (life, cause) in MINE:
        return MINE[life, cause]
    if life == "absent":
        return Op.CREATE
    if adoption == "adoptNone":
        return Op.KEEP
    return Op.ADOPT if life == "theirs-published" else Op.CREATE


def a_world(adoption: str, deletion: str, life: str) -> ModelWorld:
    world = ModelWorld()
    world.add_repository("blueprints")
    edge = world.add_repository("edge")
    for number in (1, 2):
        world.publish("blueprints", "web", blueprint("web", a_yaml=f"a: {number}\n"), number)
    world.variants["other"] = spec(adoption, deletion, package="other")
    if life in {"draft", "proposed", "published"}:
        world.variants["web"] = spec(adoption, deletion)
    world.run()
    (draft,) = [ref for ref in world.drafts("edge") if "/web/" in ref] or [""]
    if life == "proposed":
        edge.refs[draft.replace("/drafts/", "/proposed/")] = edge.refs.pop(draft)
    elif life == "published":
        world.merge("edge", draft)
    elif life == "theirs-draft":
        edge.refs["refs/heads/drafts/web/theirs"] = edge.refs[MAIN]
        world.push("edge", {"web": blueprint("web")}, ref="refs/heads/drafts/web/theirs")
    elif life == "theirs-published":
        world.push("edge", {"web": blueprint("web")})
    world.run()
    return world


def spec(adoption: str, deletion: str, *, package: str = "web", cause: str = "none") -> PackageVariantSpec:
    return PackageVariantSpec(
        upstream=Upstream(repo="blueprints", package="web", revision=2 if cause == "upstream" else 1),
        downstream=Downstream(repo="edge", package=package),
        adoption_policy=adoption,
        deletion_policy=deletion,
        package_context=PackageContext(data={"a": "b"}) if cause == "context" else None,
    )


CELLS = list(product(ADOPTIONS, DELETIONS, LIVES, CAUSES))
POSSIBLE = [cell for cell in CELLS if (cell[2], cell[3]) not in IMPOSSIBLE]


def test_the_product_is_whole() -> None:
    assert len(CELLS) == 96
    assert len(CELLS) - len(POSSIBLE) == 4 * len(IMPOSSIBLE)
    assert all(IMPOSSIBLE.values())


@pytest.mark.parametrize(("adoption", "deletion", "life", "cause"), POSSIBLE)
def test_cell(adoption: str, deletion: str, life: str, cause: str) -> None:
    world = a_world(adoption, deletion, life)
    theirs = {ref: oid for ref, oid in world.repositories["edge"].refs.items() if ref.endswith("/theirs")}
    if cause == "gone":
        world.variants.pop("web", None)
    else:
        world.variants["web"] = spec(adoption, deletion, cause=cause)

    plan = world.run()

    (change,) = [c for c in plan.changes if c.package.path == "web"]
    assert change.op is expected(adoption, deletion, life, cause), change
    assert theirs.items() <= world.repositories["edge"].refs.items(), "nobody else's draft is touched"
    again = world.plan()
    assert again.is_empty
    assert again.records == world.state
