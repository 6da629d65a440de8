"""`repo`: registering a repository is one command, and the list says which can be read."""

from pathlib import Path

import pytest

from reconciler.cli.main import invoke
from tests.support.small_world import package_set, write_world
from tests.support.world import World, git


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A working copy of the control repository of a small fleet."""
    root = tmp_path / "w"
    write_world(root, ("edge-1",))
    git(tmp_path, "clone", "-q", str(World(root).control), "copy")
    return tmp_path / "copy"


def test_a_cluster_is_added_with_the_label_that_sets_select_by(
    copy: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (copy / "manifests/set.yaml").write_text(
        package_set("web", "{repositorySelector: {matchLabels: {role: cluster}}}")
    )
    git(copy.parent, "init", "-q", "--bare", "w/bern.git")
    line = ["repo", "add", "bern", str(copy.parent / "w/bern.git"), "--deployment", "--control", str(copy)]

    assert invoke([*line, "--label", "role"]) == 2
    assert "Write it as KEY=VALUE" in capfd.readouterr().err
    assert invoke([*line, "--label", "role=cluster", "--label", "tier=edge"]) == 0
    *_, step = capfd.readouterr().out.splitlines()
    assert step == (
        'Next: git add manifests/repositories.yaml && git commit -m "Register bern", then "reconciler plan"'
    )
    git(copy, "add", ".")
    git(copy, "commit", "-q", "-m", "Register bern")
    invoke(["plan", "--control", str(copy)])
    assert "bern/web" in capfd.readouterr().out, "an empty repository of a cluster gets its branch"
