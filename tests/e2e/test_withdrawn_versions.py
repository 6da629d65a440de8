"""A withdrawn version that a cluster keeps is told wherever its lock is read."""

from pathlib import Path

from tests.support.dependency_manifests import install, package
from tests.support.git import Repo, make_repository
from tests.support.small_world import CONFIGURATION, repository
from tests.support.world import World

TOLD = "db.io 1.0.0 is withdrawn: CVE; it stays locked in dev; no other version of db.io"


def test_every_command_that_reads_the_lock_tells_of_a_withdrawn_version(tmp_path: Path) -> None:
    place = "index/db.io/1.0.0/package.yaml"
    make_repository(tmp_path / "dev.git", {"README.md": "dev\n"})
    make_repository(
        tmp_path / "control.git",
        {
            "reconciler.yaml": CONFIGURATION,
            "manifests/dev.yaml": repository("dev"),
            "manifests/clusters/dev/db.yaml": install("db", "db.io", ">=1.0.0"),
            place: package("db.io", "1.0.0"),
        },
    )
    world = World(tmp_path)
    assert world.run("apply").code == 0
    noted = package("db.io", "1.0.0").replace(
        "metadata: {", "metadata: {annotations: {reconciler.dev/withdrawn: CVE}, "
    )
    Repo(tmp_path / "control.git").commit({place: noted})

    page = tmp_path / "fleet.html"
    for line in (
        ("plan",),
        ("status", "--html", str(page)),
        ("lock", "--check"),
        ("explain", "db.io"),
        ("explain", "dev/prod/db"),
    ):
        ran = world.run(*line)
        assert TOLD in ran.out + ran.err, line
    assert TOLD in page.read_text()
