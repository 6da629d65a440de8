"""Downstream package paths on real Git: a bad one is told at its field, and nothing else suffers."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.combination import trees
from tests.support.git import Repo, kptfile
from tests.support.small_world import CONFIGURATION, write_fleet
from tests.support.world import World, refs

OBJECT = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: app\ndata:\n  size: small\n"


def variant(name: str, package: str, **spec: str) -> str:
    more = "".join(f"  {field}: {value}\n" for field, value in spec.items())
    return f"""\
apiVersion: config.porch.kpt.dev/v1alpha1
kind: PackageVariant
metadata:
  name: {name}
  namespace: default
spec:
  upstream:
    repo: blueprints
    package: app
    revision: 1
  downstream:
    repo: edge
    package: {json.dumps(package)}
{more}"""


class Fleet(World):
    """One blueprint, one downstream repository `edge`, and manifests."""

    @property
    def edge(self) -> Path:
        return self.root / "edge.git"

    def write(self, manifests: Mapping[str, str | None]) -> None:
        """Write manifests as one commit; None removes one."""
        with self.edit("control", "Change manifests") as copy:
            for name, text in manifests.items():
                file = copy / "manifests" / f"{name}.yaml"
                if text is None:
                    file.unlink()
                else:
                    file.write_text(text)

    def plan(self) -> dict[str, Any]:
        said: dict[str, Any] = json.loads(self.run("plan", "--output", "json").out)
        return said

    def ops(self) -> dict[str, str]:
        """Return what the plan does and why, by package."""
        return {c["package"]["path"]: f"{c['op']} {c['reason']}" for c in self.plan()["changes"]}

    def files(self, revision: str = "main") -> dict[str, str]:
        """Return the files of a branch of `edge` as text."""
        repo = Repo(self.edge)
        return {path: data.decode() for path, data in trees.files(repo, trees.root(repo, revision)).items()}


def make_fleet(root: Path, manifests: Mapping[str, str], edge: Mapping[str, str] | None = None) -> Fleet:
    named = {f"manifests/{name}.yaml": text for name, text in manifests.items()}
    write_fleet(root, "app", [{"Kptfile": kptfile("app"), "object.yaml": OBJECT}], ["edge"], named)
    if edge:
        Repo(root / "edge.git").commit(edge)
    return Fleet(root)


@pytest.mark.parametrize("package", ["../x", "a b", "a//b", ".git", ".", "Web", "con"])
def test_invalid_path_is_told_at_its_field_and_siblings_proceed(tmp_path: Path, package: str) -> None:
    fleet = make_fleet(tmp_path / "w", {"bad": variant("bad", package), "good": variant("good", "good")})

    applied = fleet.run("apply")

    assert applied.code == 3, applied
    assert "manifests/bad.yaml:13" in applied.out + applied.err
    assert [n for n in refs(fleet.edge) if "/drafts/" in n] == ["refs/heads/drafts/good/packagevariant-1"]
    (problem,) = fleet.plan()["problems"]
    assert (problem["reason"], problem["location"]["line"]) == ("InvalidName", 13)


def test_two_new_packages_that_nest_are_both_refused_and_one_of_them_suffices(tmp_path: Path) -> None:
    fleet = make_fleet(tmp_path / "w", {"grp": variant("grp", "grp"), "m": variant("m", "grp/m")})

    assert fleet.ops() == {"grp": "block NestedPackage", "grp/m": "block NestedPackage"}
    assert [p["location"]["path"] for p in fleet.plan()["problems"]] == [
        "manifests/grp.yaml",
        "manifests/m.yaml",
    ]

    fleet.write({"grp": None})
    assert fleet.run("apply").code == 0
    assert fleet.run("approve", "edge/grp/m").code == 0
    assert fleet.ops() == {"grp/m": "keep UpToDate"}


def test_branch_called_reconciler_keeps_a_deletion_from_being_proposed(tmp_path: Path) -> None:
    fleet = make_fleet(tmp_path / "w", {"web": variant("web", "web")})
    fleet.run("apply")
    fleet.run("approve", "edge/web")
    Repo(fleet.edge).point("refs/heads/reconciler", Repo(fleet.edge).oid("main"))
    fleet.write({"web": None})

    applied = fleet.run("apply")

    assert applied.code == 3, applied
    assert fleet.ops() == {"web": "block PathTaken"}


def test_paths_that_differ_in_case_only_are_refused(tmp_path: Path) -> None:
    fleet = make_fleet(tmp_path / "w", {"web": variant("web", "web")}, {"Web/Kptfile": kptfile("Web")})

    assert fleet.ops()["web"] == "block NestedPackage"


def deployment(image: str, replicas: int) -> str:
    return f"""\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: app
spec:
  replicas: {replicas}
  template:
    spec:
      containers:
      - name: main
        image: {image}
"""


def test_adopted_copy_without_a_lock_gets_all_of_the_new_revision_and_no_conflict(tmp_path: Path) -> None:
    edge = {"web/Kptfile": kptfile("web"), "web/app.yaml": deployment("app:1", 5), "web/mine.yaml": OBJECT}
    manifest = variant("web", "web", adoptionPolicy="adoptExisting")
    fleet = make_fleet(tmp_path / "w", {"web": manifest.replace("revision: 1", "revision: 3")}, edge)
    blueprints = Repo(fleet.root / "blueprints.git")
    for number in (2, 3, 4):  # revision 2 is what people copied
        files = {"app/object.yaml": None} if number == 2 else {f"app/new-{number}.yaml": OBJECT}
        blueprints.commit({**files, "app/app.yaml": deployment(f"app:{number - 1}", 1)})
        blueprints.tag(f"app/v{number}")

    assert fleet.run("apply").code == 0
    (change,) = fleet.plan()["changes"]
    assert (change["reason"], change["conflicts"]) == ("InReview", [])
    assert fleet.run("approve", "edge/web").code == 0
    adopted = fleet.files()
    assert ("image: app:2" in adopted["web/app.yaml"], "replicas: 5" in adopted["web/app.yaml"]) == (
        True,
        True,
    )
    assert adopted["web/mine.yaml"] == OBJECT
    assert "web/new-3.yaml" in adopted
    assert "ref: app/v3" in adopted["web/Kptfile"]

    fleet.write({"web": manifest.replace("revision: 1", "revision: 4")})
    assert fleet.run("apply").code == 0
    assert fleet.run("approve", "edge/web").code == 0
    updated = fleet.files()["web/app.yaml"]
    assert ("image: app:3" in updated, "replicas: 5" in updated) == (True, True)


@pytest.mark.parametrize(("most", "image"), [(1, "app:1"), (3, "app:3")])
def test_adoption_compares_with_as_many_revisions_as_configured(
    tmp_path: Path, most: int, image: str
) -> None:
    edge = {"web/Kptfile": kptfile("web"), "web/app.yaml": deployment("app:1", 5)}
    manifest = variant("web", "web", adoptionPolicy="adoptExisting")
    fleet = make_fleet(tmp_path / "w", {"web": manifest.replace("revision: 1", "revision: 4")}, edge)
    blueprints = Repo(fleet.root / "blueprints.git")
    for number in (2, 3, 4):  # revision 2 is what people copied, the newest is the pinned one
        blueprints.commit({"app/app.yaml": deployment(f"app:{number - 1}", 1)})
        blueprints.tag(f"app/v{number}")
    with fleet.edit("control", "Limit the search") as copy:
        (copy / "reconciler.yaml").write_text(f"{CONFIGURATION}  limits: {{baseCandidates: {most}}}\n")

    assert fleet.run("apply").code == 0

    assert f"image: {image}" in fleet.files("drafts/web/packagevariant-1")["web/app.yaml"]


def published(tmp_path: Path, edge: Mapping[str, str] | None = None) -> Fleet:
    fleet = make_fleet(tmp_path / "w", {"web": variant("web", "web")}, edge)
    for command in (("apply",), ("approve", "edge/web"), ("apply",)):
        assert fleet.run(*command).code == 0
    return fleet


def test_file_that_a_person_restores_in_a_deletion_stays(tmp_path: Path) -> None:
    fleet = published(tmp_path)
    fleet.write({"web": None})
    fleet.run("apply")
    Repo(fleet.edge).commit({"web/keep.yaml": OBJECT}, branch="reconciler/fleet/delete/web")
    fleet.run("apply")

    assert fleet.run("approve", "edge/web").code == 0

    assert fleet.files() == {"README.md": "edge\n", "web/keep.yaml": OBJECT}


def test_draft_does_not_remove_a_package_that_others_made_inside_it(tmp_path: Path) -> None:
    fleet = make_fleet(tmp_path / "w", {"top": variant("top", "top")})
    fleet.run("apply")
    Repo(fleet.edge).commit({"top/in/Kptfile": kptfile("in"), "top/in/object.yaml": OBJECT})

    refused = fleet.run("approve", "edge/top")

    assert refused.code == 4
    assert 'package path "top" conflicts with existing package "top/in"' in refused.out
    assert fleet.run("apply").code == 3
    assert "top/in/object.yaml" in fleet.files()
