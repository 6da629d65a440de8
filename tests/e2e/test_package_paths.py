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
