"""Every command that prints JSON prints what `reconciler schema` describes."""

import json
from pathlib import Path
from typing import Any

import pytest

from reconciler.cli.main import invoke
from reconciler.cli.schema import OUTPUTS
from tests.support.commands import commands_with
from tests.support.git import Repo
from tests.support.schema import output_violations, violations
from tests.support.small_world import manifest, variant, write_world
from tests.support.world import World

KPTFILE = "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: web\n"


def schema_of(kind: str, capfd: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert invoke(["schema", kind]) == 0
    return json.loads(capfd.readouterr().out)


def test_every_json_output_has_a_schema() -> None:
    forms = {name: option.type for name, option in commands_with("output").items() if name != "schema"}
    printing = [name for name, form in forms.items() if "json" in getattr(form, "choices", ())]

    assert sorted(printing) == sorted(name for names in OUTPUTS.values() for name in names)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A fleet with an approved package, an open pull request, a change and a broken manifest."""
    root = tmp_path_factory.mktemp("w") / "w"
    world = write_world(root, ("edge-1",))
    world.run("apply")
    world.run("approve", "edge-1/web")
    control = Repo(world.control, time=world.clock + 60)
    control.commit(
        {
            manifest("edge-1", "web"): variant("edge-1", "web", revision=2),
            manifest("edge-1", "new"): variant("edge-1", "new"),
            "manifests/broken.yaml": "kind: [\n",
        },
        branch="change",
        start="main",
    )
    return world


LINES: dict[str, list[tuple[str, ...]]] = {
    "Approval": [("approve", "edge-1/web"), ("approve", "--all", "--dry-run"),
        ("approve", "--propose-only", "edge-1/db")],
    "Comparison": [("check", "--head", "change")],
    "Diagnosis": [("doctor",)],
    "Explanation": [("explain", "edge-1/web"), ("explain", "edge-1/db")],
    "PullRequest": [("pr", "list", "--all"), ("pr", "show", "edge-1/web"),
        ("pr", "merge", "edge-1/db", "--dry-run"), ("pr", "close", "edge-1/db", "--dry-run"),
        ("pr", "close", "edge-1/db"), ("pr", "reopen", "edge-1/db"), ("pr", "merge", "edge-1/db")],
    "SnapshotKind": [("snapshot", "kinds")],
    "Functions": [("functions", "list")],
}  # fmt: skip


@pytest.mark.parametrize("kind", sorted(LINES))
def test_output_is_as_its_schema_says(kind: str, world: World, capfd: pytest.CaptureFixture[str]) -> None:
    schema = schema_of(kind, capfd)
    world.run("approve", "--propose-only", "edge-1/db")  # only what is ready can be merged

    for line in LINES[kind]:
        said = world.run(*line, "-o", "json") if kind != "Functions" else None
        out = said.out if said else _local(line, capfd)
        assert violations(schema, json.loads(out)) == [], line


def _local(line: tuple[str, ...], capfd: pytest.CaptureFixture[str]) -> str:
    invoke([*line, "-o", "json"])
    return capfd.readouterr().out


def test_output_about_files_is_as_its_schema_says(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for directory, text in ((first, "a: 1\n"), (second, "a: 2\n")):
        (directory / "sub").mkdir(parents=True)
        (directory / "Kptfile").write_text(KPTFILE)
        (directory / "sub/Kptfile").write_text(KPTFILE)
        (directory / "sub/a.yaml").write_text(text)
    (second / "new.yaml").write_text("a: 1\n")
    objects = tmp_path / "objects.json"
    objects.write_text('{"apiVersion": "x.io/v1", "kind": "Box", "metadata": {"name": "a"}}')
    index, copy = "index", ("--control", str(tmp_path / "d/control"))
    lines = [
        (
            "SnapshotImport",
            "snapshot",
            "import",
            str(objects),
            "--cluster",
            "c",
            "--out-dir",
            str(tmp_path / "s"),
        ),
        ("Files", "init", str(tmp_path / "i")),
        ("Files", "demo", str(tmp_path / "d")),
        ("Files", index, "add", "bundle:r.io/db", "1.0.0", "--interface", "mysql", *copy),
        ("Files", index, "set-default", "mysql", "bundle:r.io/db", *copy),
        ("IndexVersion", index, "show", "r.io/db", *copy),
        ("Files", index, "remove", "r.io/db", *copy),
    ]
    for kind, *line in lines:
        assert invoke([*line, "-o", "json"]) == 0, line
        assert output_violations(kind, capfd.readouterr().out) == [], line
