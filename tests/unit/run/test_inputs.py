"""Inputs of a run: what the command line consents to reaches the policy."""

from pathlib import Path

import pytest

from reconciler.git.working_copy import NewCommit, create_bare
from reconciler.run.inputs import RunOptions, read_inputs

CONFIG = """\
apiVersion: reconciler.dev/v1alpha1
kind: Reconciler
metadata:
  name: fleet
spec:
  deletions: {share: 0.5, count: 7}
"""


@pytest.mark.parametrize("allowed", [0, 3])
def test_consent_of_the_command_line_is_added_to_the_configured_guard(tmp_path: Path, allowed: int) -> None:
    control = tmp_path / "control.git"
    create_bare(control, [NewCommit("first", {"reconciler.yaml": CONFIG.encode()}, 1_700_000_000)])
    options = RunOptions(str(control), tmp_path / "cache", allow_deletes=allowed)

    guard = read_inputs(options).inventory.policy.deletions

    assert (guard.share, guard.count, guard.allowed) == (0.5, 7, allowed)
