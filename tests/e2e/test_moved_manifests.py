"""A manifest names another package, of Carvel or Porter: what both need stays, what one needs goes (D36)."""

import json
from pathlib import Path

import pytest

from tests.support.needy_fleet import install, needy_fleet, package

Texts = dict[str, str]


def bundle(host: str, name: str, *needs: str) -> Texts:
    requires = [{"name": need, "bundle": {"reference": f"{host}/{need}:v1.0.0"}} for need in needs]
    value = {"schemaVersion": "1.0.0", "name": name, "version": "1.0.0", "registry": host, "mixins": ["exec"]}
    header = {"apiVersion": "reconciler.dev/v1alpha1", "kind": "PackageVersion", "version": "1.0.0"}
    return {
        f"index/{host}/{name}/porter.yaml": json.dumps({**value, "dependencies": {"requires": requires}}),
        f"index/{host}/{name}/version.yaml": json.dumps({**header, "source": f"{host}/{name}"}),
    }


def installation(reference: str) -> Texts:
    value = {
        "schemaType": "Installation",
        "schemaVersion": "1.0.2",
        "name": "app",
        "namespace": "shop",
        "bundle": {"repository": reference, "version": "1.0.0"},
    }
    return {"manifests/clusters/dev/app.yaml": json.dumps(value)}


CARVEL = (
    package("app.io", "1.0.0", "db.io", "log.io")
    | package("new.io", "1.0.0", "db.io")
    | package("db.io")
    | package("log.io")
)
PORTER = (
    bundle("g.io", "app", "db", "log")
    | bundle("g.io", "new", "db")
    | bundle("g.io", "db")
    | bundle("g.io", "log")
)
MOVES = [
    (CARVEL, install("app", "app.io"), install("app", "new.io"), "packageinstalls/shop/{}.io.yaml"),
    (PORTER, installation("g.io/app"), installation("g.io/new"), "installations/shop/app-{}.yaml"),
]


@pytest.mark.parametrize(("index", "before", "after", "file"), MOVES, ids=["Carvel", "Porter"])
def test_what_both_packages_need_stays(
    tmp_path: Path, index: Texts, before: Texts, after: Texts, file: str
) -> None:
    fleet = needy_fleet(tmp_path / "w", index | before)
    fleet.settle()
    database, log = (f"dependencies/{file.format(name)}" for name in ("db", "log"))
    assert {database, log} <= fleet.placed()
    fleet.want({**after})

    (change,) = json.loads(fleet.run("plan", "-o", "json").out)["changes"]

    assert change["op"] == "update"
    removed = [risk for risk in change["risks"] if "removes" in str(risk)]
    assert len(removed) == 1
    assert "log" in str(removed)
    fleet.settle()
    assert fleet.placed() & {database, log} == {database}
    refs = fleet.all_refs()
    fleet.run("apply", cache="another")
    assert fleet.all_refs() == refs


def test_a_bundle_moves_to_another_registry_with_what_it_needs(tmp_path: Path) -> None:
    index = bundle("g.io", "app", "db") | bundle("g.io", "db") | bundle("h.io", "app", "db")
    fleet = needy_fleet(tmp_path / "w", index | bundle("h.io", "db") | installation("g.io/app"))
    fleet.settle()
    files = fleet.placed()
    fleet.want({**installation("h.io/app")})

    said = fleet.run("plan").out

    assert "removal" not in said
    assert "note:" not in said
    fleet.settle()
    assert fleet.placed() == files
