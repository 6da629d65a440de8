"""What we write into a package, and what its pipeline makes of function configuration, is no local edit."""

from typing import Any

import pytest

from reconciler.api.porch import (
    Downstream,
    Function,
    InjectionSelector,
    PackageContext,
    PackageVariantSpec,
    Pipeline,
    Upstream,
)
from reconciler.base.errors import Location
from reconciler.inventory.inventory import Inventory
from reconciler.inventory.snapshot import Snapshot, SnapshotObject
from reconciler.names.objects import Files
from reconciler.plan.changes import Change
from tests.support.identifiers import without_identifiers
from tests.support.model import ModelWorld, blueprint
from tests.support.values import replace

TEAM = """\
apiVersion: hr.example.com/v1
kind: Team
metadata:
  name: blue
  annotations:
    owner: {owner}
    kpt.dev/config-injection: optional
spec:
  code: {code}
  size: {size}
"""
CONTEXT = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: kptfile.kpt.dev
  annotations:
    config.kubernetes.io/local-config: "true"
data:
  name: example
  region: {region}
  tier: {tier}
"""
LABELS = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: labels\ndata:\n  size: {}\n"
SET_LABELS = "gcr.io/kpt-fn/set-labels:v0.2.0"


class ClusterWorld(ModelWorld):
    """A world whose cluster has a team, while `code` is not empty."""

    code = "cluster"

    def inventory(self) -> Inventory:
        key = ("hr.example.com/v1", "Team")
        spec = {"spec": {"code": self.code, "people": [1, 2]}}
        team = SnapshotObject(*key, "default", "blue", {}, {}, spec, Location("s.yaml"))
        objects = {key: (team,) if self.code else ()}
        return replace(super().inventory(), snapshot=Snapshot(present=True, objects=objects))


def start(before: dict[str, str], after: dict[str, str], **spec: Any) -> ClusterWorld:
    """Publish two revisions upstream and the package of the first one downstream."""
    world = ClusterWorld()
    world.add_repository("blueprints")
    world.add_repository("edge")
    for number, files in enumerate((before, after), start=1):
        world.publish("blueprints", "web", blueprint("web", **files), number)
    world.variants["web"] = PackageVariantSpec(
        upstream=Upstream(repo="blueprints", package="web", revision=1),
        downstream=Downstream(repo="edge", package="web"),
        **spec,
    )
    world.run()
    world.merge("edge", world.drafts("edge")[0])
    world.run()
    return world


def update(world: ModelWorld) -> tuple[Change, Files]:
    """Ask for the second revision, and see that the run after it writes nothing."""
    upstream = Upstream(repo="blueprints", package="web", revision=2)
    world.variants["web"] = world.variants["web"].model_copy(update={"upstream": upstream})
    (change,) = world.run().changes
    assert world.plan().is_empty
    return change, world.repositories["edge"].at(world.drafts("edge")[0]).packages["web"]


def text(files: Files, path: str) -> str:
    return without_identifiers(files[path].data.decode())


INJECTORS = [InjectionSelector(name="blue")]


@pytest.mark.parametrize("code", ["cluster", "another", ""], ids=["same", "changed", "gone"])
def test_another_placeholder_upstream_is_no_conflict(code: str) -> None:
    before, after = (TEAM.format(owner=n, code=n, size=n) for n in ("one", "two"))
    world = start({"team_yaml": before}, {"team_yaml": after}, injectors=INJECTORS)
    world.code = code

    change, files = update(world)

    assert (change.conflicts, change.answers) == ((), ())
    assert f"  code: {code or 'cluster'}\n" in text(files, "team.yaml")
    assert "    owner: two\n" in text(files, "team.yaml")
    assert "size:" not in text(files, "team.yaml")


def test_point_that_upstream_makes_an_ordinary_resource_takes_upstreams_values() -> None:
    before, after = (TEAM.format(owner=n, code=n, size=n) for n in ("one", "two"))
    after = after.replace("    kpt.dev/config-injection: optional\n", "")
    world = start({"team_yaml": before}, {"team_yaml": after}, injectors=INJECTORS)

    change, files = update(world)

    assert change.conflicts == ()
    assert text(files, "team.yaml") == after


def test_injected_resource_that_upstream_removed_goes() -> None:
    team = TEAM.format(owner="a", code="b", size="c")
    other = LABELS.format("small")
    world = start({"team_yaml": team, "o_yaml": other}, {"o_yaml": other}, injectors=INJECTORS)

    change, files = update(world)

    assert change.conflicts == ()
    assert "team.yaml" not in files


def test_edit_of_another_field_of_an_injected_resource_is_still_asked_about() -> None:
    before, after = (TEAM.format(owner=n, code=n, size=n) for n in ("one", "two"))
    world = start({"team_yaml": before}, {"team_yaml": after}, injectors=INJECTORS)
    there = world.repositories["edge"].at("refs/heads/main").packages["web"]["team.yaml"].data.decode()
    world.edit("edge", "web", {"team.yaml": there.replace("owner: one", "owner: me")})
    world.run()

    change, _ = update(world)

    assert [(c.field, c.upstream, c.local) for c in change.conflicts] == [
        ("metadata.annotations.owner", "two", "me")
    ]


def test_context_value_of_the_variant_is_no_edit_of_a_person() -> None:
    files = [{"package-context_yaml": CONTEXT.format(region=n, tier=n)} for n in ("one", "two")]
    context = PackageContext(data={"region": "east"}, remove_keys=["tier"])
    world = start(*files, package_context=context)

    change, made = update(world)

    assert (change.conflicts, change.answers) == ((), ())
    assert "  region: east\n" in text(made, "package-context.yaml")
    assert "tier:" not in text(made, "package-context.yaml")


def labelled(path: str) -> Pipeline:
    marks = Function(name="mark", image=SET_LABELS, config_map={"team": "web"})
    return Pipeline(mutators=[marks, Function(name="sized", image=SET_LABELS, config_path=path)])


def test_function_configuration_that_upstream_removed_goes_although_a_mutator_changed_it() -> None:
    before = {"labels_yaml": LABELS.format("small"), "o_yaml": LABELS.format("x")}
    world = start(before, {"o_yaml": LABELS.format("y")}, pipeline=labelled("labels.yaml"))
    plain = Pipeline(mutators=[Function(name="mark", image=SET_LABELS, config_map={"team": "web"})])
    world.variants["web"] = world.variants["web"].model_copy(update={"pipeline": plain})

    change, files = update(world)

    assert change.conflicts == ()
    assert "labels.yaml" not in files


@pytest.mark.parametrize("edited", [False, True])
def test_function_configuration_that_upstream_changed_is_asked_about_only_if_a_person_did_too(edited) -> None:
    before, after = ({"labels_yaml": LABELS.format(n)} for n in ("small", "large"))
    world = start(before, after, pipeline=labelled("labels.yaml"))
    if edited:
        there = world.repositories["edge"].at("refs/heads/main").packages["web"]["labels.yaml"].data.decode()
        world.edit(
            "edge", "web", {"labels.yaml": there.replace("data:\n  size: small", "data:\n  size: mine")}
        )
        world.run()

    change, files = update(world)

    assert [(c.field, c.upstream, c.local) for c in change.conflicts] == (
        [("data.size", "large", "mine")] if edited else []
    )
    assert ("size: mine" if edited else "size: large") in text(files, "labels.yaml")
