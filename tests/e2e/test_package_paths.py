"""Downstream package paths on real Git: a bad one is told at its field, and nothing else suffers."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.git import Repo, kptfile, make_repository
from tests.support.small_world import repository
from tests.support.world import World, refs

CONFIG = """\
apiVersion: reconciler.dev/v1alpha1
kind: Reconciler
metadata:
  name: fleet
spec:
  manifests: [manifests]
"""
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


def package_set(expression: str) -> str:
    return f"""\
apiVersion: config.porch.kpt.dev/v1alpha2
kind: PackageVariantSet
metadata:
  name: every
  namespace: default
spec:
  upstream:
    repo: blueprints
    package: app
    revision: 1
  targets:
  - repositories:
    - name: edge
    template:
      downstream:
        packageExpr: {json.dumps(expression)}
"""


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
        return {path: repo.git[oid].data.decode() for path, oid in _blobs(repo, revision)}


def _blobs(repo: Repo, revision: str) -> list[tuple[str, Any]]:
    found, pending = [], [("", repo.git.revparse_single(f"{revision}^{{tree}}"))]
    while pending:
        inside, tree = pending.pop()
        for entry in tree:
            path = f"{inside}{entry.name}"
            if entry.type_str == "tree":
                pending.append((f"{path}/", entry))
            else:
                found.append((path, entry.id))
    return sorted(found)


def make_fleet(root: Path, manifests: Mapping[str, str], edge: Mapping[str, str] | None = None) -> Fleet:
    root.mkdir()
    blueprints = make_repository(
        root / "blueprints.git", {"app/Kptfile": kptfile("app"), "app/object.yaml": OBJECT}
    )
    blueprints.tag("app/v1")
    make_repository(root / "edge.git", {"README.md": "edge\n", **(edge or {})})
    files = {"reconciler.yaml": CONFIG}
    files |= {f"manifests/repository-{name}.yaml": repository(name) for name in ("blueprints", "edge")}
    files |= {f"manifests/{name}.yaml": text for name, text in manifests.items()}
    make_repository(root / "control.git", files)
    return Fleet(root)


@pytest.mark.parametrize(
    "package", ["../x", "a b", "x..y", "web.lock", "a//b", ".git", "x~y", ".", "Web", "con", "web_1"]
)
def test_invalid_path_is_told_at_its_field_and_siblings_proceed(tmp_path: Path, package: str) -> None:
    fleet = make_fleet(tmp_path / "w", {"bad": variant("bad", package), "good": variant("good", "good")})

    applied = fleet.run("apply")

    assert applied.code == 3, applied
    assert "manifests/bad.yaml:13" in applied.out + applied.err
    assert [n for n in refs(fleet.edge) if "/drafts/" in n] == ["refs/heads/drafts/good/packagevariant-1"]
    (problem,) = fleet.plan()["problems"]
    assert (problem["reason"], problem["location"]["line"]) == ("InvalidName", 13)


def test_invalid_path_of_an_expression_is_told_at_the_expression(tmp_path: Path) -> None:
    expression = "packageDefault + '.lock'"
    fleet = make_fleet(tmp_path / "w", {"set": package_set(expression), "good": variant("good", "good")})

    (problem,) = fleet.plan()["problems"]

    assert (problem["reason"], problem["location"]["line"]) == ("InvalidName", 16)
    assert "'app.lock' may not be part of a Git ref" in problem["message"]
    assert fleet.ops() == {"good": "create New"}


def test_existing_package_keeps_a_name_that_porch_would_refuse(tmp_path: Path) -> None:
    existing = {"My_App/Kptfile": kptfile("My_App"), "My_App/object.yaml": OBJECT}
    manifest = variant("mine", "My_App", adoptionPolicy="adoptExisting")
    fleet = make_fleet(tmp_path / "w", {"mine": manifest}, existing)

    assert fleet.ops() == {"My_App": "adopt Adopted"}


def test_parent_of_foreign_packages_is_refused(tmp_path: Path) -> None:
    foreign = {"top/in/Kptfile": kptfile("in"), "top/in/object.yaml": OBJECT}
    fleet = make_fleet(
        tmp_path / "w", {"top": variant("top", "top"), "good": variant("good", "good")}, foreign
    )

    (problem,) = fleet.plan()["problems"]
    applied = fleet.run("apply")

    assert problem["message"] == (
        'package path "top" conflicts with existing package "top/in": packages cannot be nested'
    )
    assert applied.code == 3
    assert fleet.ops()["top"] == "block NestedPackage"
    assert fleet.ops()["good"] == "keep InReview"
    assert [n for n in refs(fleet.edge) if "/drafts/" in n] == ["refs/heads/drafts/good/packagevariant-1"]


@pytest.mark.parametrize("existing", ["main", "draft"])
def test_child_of_existing_package_is_refused(tmp_path: Path, existing: str) -> None:
    foreign = {"a/Kptfile": kptfile("a")}
    fleet = make_fleet(
        tmp_path / "w", {"child": variant("child", "a/b")}, foreign if existing == "main" else {}
    )
    if existing == "draft":
        Repo(fleet.edge).commit(foreign, branch="drafts/a/theirs", start="main")

    (problem,) = fleet.plan()["problems"]

    assert problem["message"] == (
        'package path "a/b" conflicts with existing package "a": packages cannot be nested'
    )
    assert fleet.run("apply").code == 3
    assert fleet.ops()["a/b"] == "block NestedPackage"


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


def test_package_may_move_below_its_own_path_once_the_old_one_is_deleted(tmp_path: Path) -> None:
    fleet = make_fleet(tmp_path / "w", {"grp": variant("grp", "grp")})
    fleet.run("apply")
    fleet.run("approve", "edge/grp")
    fleet.run("apply")
    fleet.write({"grp": variant("grp", "grp/m")})

    moved = fleet.run("apply")
    assert moved.code == 3, moved
    assert fleet.ops() == {"grp": "keep DeletionProposed", "grp/m": "block NestedPackage"}
    assert fleet.run("approve", "edge/grp").code == 0
    assert fleet.run("apply").code == 0
    assert fleet.ops() == {"grp/m": "keep InReview"}


def test_draft_that_leaves_with_the_plan_is_no_neighbour(tmp_path: Path) -> None:
    fleet = make_fleet(tmp_path / "w", {"grp": variant("grp", "grp")})
    fleet.run("apply")
    fleet.write({"grp": variant("grp", "grp/m")})

    assert fleet.run("apply").code == 0
    assert fleet.ops() == {"grp/m": "keep InReview"}
    assert [n for n in refs(fleet.edge) if "/drafts/" in n] == ["refs/heads/drafts/grp/m/packagevariant-1"]


@pytest.mark.parametrize("package", ["notes", "notes/web"])
def test_file_on_main_in_the_way_is_told_and_siblings_proceed(tmp_path: Path, package: str) -> None:
    manifests = {"bad": variant("bad", package), "good": variant("good", "good")}
    fleet = make_fleet(tmp_path / "w", manifests, {"notes": "mine\n"})

    assert fleet.run("apply").code == 3
    assert fleet.ops() == {"good": "keep InReview", package: "block PathTaken"}
    assert fleet.plan()["problems"][0]["location"]["line"] == 13


def test_directory_without_a_kptfile_is_not_taken_without_adoption(tmp_path: Path) -> None:
    fleet = make_fleet(tmp_path / "w", {"web": variant("web", "web")}, {"web/README.md": "mine\n"})

    assert fleet.run("apply").code == 3
    assert fleet.ops() == {"web": "block PackageExists"}


@pytest.mark.parametrize("name", ["drafts", "drafts/web"])
def test_branch_in_the_way_of_drafts_is_told_once_at_the_repository(tmp_path: Path, name: str) -> None:
    fleet = make_fleet(tmp_path / "w", {"web": variant("web", "web"), "db": variant("db", "db")})
    Repo(fleet.edge).point(f"refs/heads/{name}", Repo(fleet.edge).oid("main"))

    (problem,) = fleet.plan()["problems"]
    applied = fleet.run("apply")

    assert problem["location"]["path"] == "manifests/repository-edge.yaml"
    assert f"Branch {name} of repository edge" in problem["message"]
    assert applied.code == 3, applied
    blocked = {"db", "web"} if name == "drafts" else {"web"}
    assert {path for path, op in fleet.ops().items() if op == "block PathTaken"} == blocked


def test_branch_called_reconciler_keeps_a_deletion_from_being_proposed(tmp_path: Path) -> None:
    fleet = make_fleet(tmp_path / "w", {"web": variant("web", "web")})
    fleet.run("apply")
    fleet.run("approve", "edge/web")
    Repo(fleet.edge).point("refs/heads/reconciler", Repo(fleet.edge).oid("main"))
    fleet.write({"web": None})

    applied = fleet.run("apply")

    assert applied.code == 3, applied
    assert fleet.ops() == {"web": "block PathTaken"}


def test_tag_in_the_way_of_revisions_is_told_before_the_first_draft(tmp_path: Path) -> None:
    fleet = make_fleet(tmp_path / "w", {"web": variant("web", "web")})
    Repo(fleet.edge).tag("web")

    assert fleet.run("apply").code == 3
    assert fleet.ops() == {"web": "block PathTaken"}


def test_path_in_the_directory_of_another_repository_is_refused(tmp_path: Path) -> None:
    fleet = make_fleet(
        tmp_path / "w", {"web": variant("web", "team/web")}, {"team/web/Kptfile": kptfile("web")}
    )
    team = repository("edge").replace("name: edge\n", "name: team\n", 1) + "    directory: team\n"
    fleet.write({"repository-team": team})

    (problem,) = fleet.plan()["problems"]

    assert problem["message"] == 'package path "team/web" lies in the directory of Repository default/team'


def test_paths_that_differ_in_case_only_are_refused(tmp_path: Path) -> None:
    fleet = make_fleet(tmp_path / "w", {"web": variant("web", "web")}, {"Web/Kptfile": kptfile("Web")})

    assert fleet.ops()["web"] == "block NestedPackage"


def test_adopted_directory_keeps_every_file_and_gets_the_package(tmp_path: Path) -> None:
    edge = {"web/README.md": "mine\n", "web/object.yaml": OBJECT.replace("small", "large")}
    fleet = make_fleet(tmp_path / "w", {"web": variant("web", "web", adoptionPolicy="adoptExisting")}, edge)

    assert fleet.ops() == {"web": "adopt Adopted"}
    assert fleet.run("apply").code == 0
    assert fleet.run("approve", "edge/web").code == 0

    files = fleet.files()
    assert files["web/README.md"] == edge["web/README.md"]
    assert "size: large" in files["web/object.yaml"]
    assert "upstreamLock" in files["web/Kptfile"]
    fleet.run("apply")
    assert fleet.ops() == {"web": "keep UpToDate"}


def test_adoption_waits_for_a_draft_of_other_people(tmp_path: Path) -> None:
    fleet = make_fleet(tmp_path / "w", {"web": variant("web", "web", adoptionPolicy="adoptExisting")})
    edge = Repo(fleet.edge)
    edge.commit({"web/Kptfile": kptfile("web")}, branch="drafts/web/theirs", start="main")

    assert fleet.run("apply").code == 7
    assert fleet.ops() == {"web": "keep ForeignDraft"}
    assert [n for n in refs(fleet.edge) if "/drafts/" in n] == ["refs/heads/drafts/web/theirs"]

    edge.merge("drafts/web/theirs", how="squash")
    edge.delete("refs/heads/drafts/web/theirs")
    assert fleet.ops() == {"web": "adopt Adopted"}


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
        (copy / "reconciler.yaml").write_text(f"{CONFIG}  limits: {{baseCandidates: {most}}}\n")

    assert fleet.run("apply").code == 0

    assert f"image: {image}" in fleet.files("drafts/web/packagevariant-1")["web/app.yaml"]


def published(tmp_path: Path, edge: Mapping[str, str] | None = None) -> Fleet:
    fleet = make_fleet(tmp_path / "w", {"web": variant("web", "web")}, edge)
    for command in (("apply",), ("approve", "edge/web"), ("apply",)):
        assert fleet.run(*command).code == 0
    return fleet


def test_change_on_main_under_an_open_deletion_renews_the_proposal(tmp_path: Path) -> None:
    fleet = published(tmp_path)
    fleet.write({"web": None})
    fleet.run("apply")
    Repo(fleet.edge).commit({"web/mine.yaml": OBJECT, "web/sub/Kptfile": kptfile("sub")})

    refused = fleet.run("approve", "edge/web")
    assert refused.code == 4
    assert "it proposes the deletion anew" in refused.out

    applied = fleet.run("apply")
    assert applied.code == 0, applied
    assert fleet.ops() == {"web": "keep DeletionProposed"}
    assert "web/mine.yaml" not in fleet.files("reconciler/fleet/delete/web")
    assert fleet.run("approve", "edge/web").code == 0
    assert fleet.files() == {"README.md": "edge\n"}


def test_file_that_a_person_restores_in_a_deletion_stays(tmp_path: Path) -> None:
    fleet = published(tmp_path)
    fleet.write({"web": None})
    fleet.run("apply")
    Repo(fleet.edge).commit({"web/keep.yaml": OBJECT}, branch="reconciler/fleet/delete/web")
    fleet.run("apply")

    assert fleet.run("approve", "edge/web").code == 0

    assert fleet.files() == {"README.md": "edge\n", "web/keep.yaml": OBJECT}


def test_declined_deletion_leaves_no_branches_and_waits_for_nobody(tmp_path: Path) -> None:
    fleet = published(tmp_path)
    fleet.write({"web": None})
    fleet.run("apply")
    assert fleet.run("pr", "close", "edge#2").code == 0

    assert fleet.run("apply").code == 0

    assert fleet.ops() == {"web": "keep Rejected"}
    assert [n for n in refs(fleet.edge) if "elet" in n] == []
    assert fleet.run("apply").code == 0


def test_draft_does_not_remove_a_package_that_others_made_inside_it(tmp_path: Path) -> None:
    fleet = make_fleet(tmp_path / "w", {"top": variant("top", "top")})
    fleet.run("apply")
    Repo(fleet.edge).commit({"top/in/Kptfile": kptfile("in"), "top/in/object.yaml": OBJECT})

    refused = fleet.run("approve", "edge/top")

    assert refused.code == 4
    assert 'package path "top" conflicts with existing package "top/in"' in refused.out
    assert fleet.run("apply").code == 3
    assert "top/in/object.yaml" in fleet.files()


def test_draft_that_changes_other_files_too_is_not_approved(tmp_path: Path) -> None:
    fleet = make_fleet(tmp_path / "w", {"web": variant("web", "web")})
    fleet.run("apply")
    branch = fleet.draft_branch("edge", "web")
    Repo(fleet.edge).commit({"README.md": "changed\n"}, branch=branch)
    fleet.run("apply")

    refused = fleet.run("approve", "edge/web")

    assert refused.code == 4
    assert "also changes README.md, outside of package web" in refused.out
