"""Configuration, attributes and hooks of a working copy run no program, whatever git would do with them."""

from pathlib import Path

import pytest

from tests.e2e.test_check import run
from tests.support.small_world import write_world
from tests.support.world import World, git

KEYS = (
    "core.fsmonitor",
    "core.sshCommand",
    "core.gitProxy",
    "core.pager",
    "core.editor",
    "credential.helper",
    "diff.external",
    "diff.x.textconv",
    "filter.x.clean",
    "filter.x.smudge",
    "filter.x.process",
    "gpg.program",
)
HOOKS = ("post-checkout", "post-index-change", "pre-push", "reference-transaction", "fsmonitor-watchman")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A working copy in which each of git's ways to run a program writes a file."""
    write_world(tmp_path / "w", ("edge-1",))
    copy = tmp_path / "w" / "copy"
    git(tmp_path / "w", "clone", "-q", "control.git", "copy")
    (copy / ".gitattributes").write_text("* filter=x diff=x\n")
    (copy / "manifests/edge-1-web.yaml").touch()
    for name in HOOKS:
        hook = copy / ".git/hooks" / name
        hook.write_text(f"#!/bin/sh\ntouch '{tmp_path}/ran-{name}'\n")
        hook.chmod(0o755)
    included = tmp_path / "included"
    included.write_text(f'[core]\n\tfsmonitor = "touch {tmp_path}/ran-include"\n')
    git(copy, "config", "include.path", str(included))
    for key in KEYS:
        git(copy, "config", key, f"touch '{tmp_path}/ran-{key}' #")
    return copy


def test_no_command_runs_what_the_working_copy_configures(copy: Path, tmp_path: Path) -> None:
    for path in tmp_path.glob("ran-*"):
        path.unlink()
    environment = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.fsmonitor",
        "GIT_CONFIG_VALUE_0": f"touch {tmp_path}/ran-variable",
        "GIT_EXTERNAL_DIFF": f"touch {tmp_path}/ran-external",
        "GIT_SSH_COMMAND": f"touch {tmp_path}/ran-ssh",
        "GIT_TRACE": f"{tmp_path}/ran-trace",
    }

    head = World(copy.parent).propose_nothing()
    for command in ("plan", f"check --head {head}", "apply", "status"):
        done = run(copy, *command.split(), "--control", ".", **environment)
        assert done.code == 0, done

    assert sorted(path.name for path in tmp_path.glob("ran-*")) == []
    git(copy, "config", "--unset", "filter.x.process")
    git(copy, "status")
    assert list(tmp_path.glob("ran-*")), "git itself runs them"
