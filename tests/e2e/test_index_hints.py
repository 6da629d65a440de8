"""Commands in hints, run as they are printed: afterwards the cluster has a solution."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from reconciler.cli.index import index
from tests.support.world import EPOCH, World, build_world, git

CONFIG = (
    "apiVersion: reconciler.dev/v1alpha1\nkind: Reconciler\nmetadata: {name: main}\n"
    "spec:\n  manifests: [manifests]\n"
)
INSTALL = (
    "apiVersion: packaging.carvel.dev/v1alpha1\nkind: PackageInstall\n"
    "metadata: {name: shop, namespace: prod}\n"
    "spec:\n  packageRef: {refName: web.io, versionSelection: {constraints: '>=1.0.0'}}\n"
)
APP = (
    "schemaType: Installation\nschemaVersion: 1.0.2\nname: shop\nnamespace: prod\n"
    "bundle: {repository: r.io/app, version: 1.0.0}\n"
)
COMMAND = r"`reconciler index ([^`]+)`"
DEFAULTS = Path(__file__).parents[2] / "fixtures/worlds/54-default-per-environment"


def world_of(root: Path, files: dict[str, str]) -> World:
    for name, text in {"reconciler.yaml": CONFIG, **files}.items():
        file = root / "source/config" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return build_world(root / "source", root / "w")


@pytest.mark.parametrize(
    ("manifest", "ecosystem"), [(INSTALL, "carvel"), (APP, "bundle")], ids=["carvel", "bundle"]
)
def test_printed_command_adds_the_package_that_is_missing(
    manifest: str, ecosystem: str, tmp_path: Path
) -> None:
    world = world_of(tmp_path, {"manifests/clusters/dev/app.yaml": manifest})
    before = world.run("lock", "--check")
    commands = re.findall(COMMAND, before.out)
    (command,) = (words for words in commands if words.startswith("add "))

    follow(world, command.replace("VERSION", "1.0.0"))

    after = world.run("lock", "--check")
    assert (before.code, commands[-1], "sync" in commands) == (3, "missing", True)
    assert (after.code, "no solution" in after.out) == (10, False)
    assert f"+ {ecosystem}:" in after.out


def test_printed_command_replaces_the_default_of_a_nearer_layer(tmp_path: Path) -> None:
    world = build_world(DEFAULTS, tmp_path / "w")
    world.run("lock")
    copy = world.root / "without"
    git(world.root, "clone", "-q", str(world.control), str(copy))
    git(copy, "rm", "-qr", "index/aws-mysql")
    git(copy, "commit", "-qm", "Withdraw a package", when=EPOCH + 30)
    git(copy, "push", "-q")

    before = world.run("lock", "--check")
    (command,) = re.findall(r"`reconciler index (set-default [^`]+)`", before.out)
    command = command.replace("ECOSYSTEM:NAME", "bundle:r.example.com/helm-mysql")
    follow(world, f"{command} --cluster prod-2")
    after = world.run("lock", "--check")

    assert "2. r.example.com/wordpress 1.0.0 requires the interface" in before.out
    assert (before.code, after.code, "no solution" in after.out) == (3, 10, False)


def follow(world: World, command: str) -> None:
    """Run a command of `index` in a copy, and push what it wrote."""
    verb, *arguments = command.split()
    copy = world.root / "copy"
    git(world.root, "clone", "-q", str(world.control), str(copy))
    result = CliRunner().invoke(index, [verb, "--control", str(copy), *arguments])
    assert result.exit_code == 0, result.output
    git(copy, "add", ".")
    git(copy, "commit", "-qm", "Add a package", when=EPOCH + 60)
    git(copy, "push", "-q")
