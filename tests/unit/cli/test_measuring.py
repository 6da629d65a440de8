"""The metrics file of a run: its stages, and its exit code also where it fails."""

import re
from pathlib import Path

from reconciler.cli.main import invoke
from tests.support.small_world import published

STAGES = ["read", "expand", "resolve", "fetch", "render", "plan"]


def stages(file: Path) -> list[str]:
    return re.findall(r'^reconciler_stage_duration_seconds{.*stage="(\w+)"} ', file.read_text(), re.MULTILINE)


def test_each_stage_of_a_run_has_its_seconds_and_none_of_the_run_before(tmp_path: Path) -> None:
    world = published()
    file = tmp_path / "run.prom"

    world.run("apply", "--metrics-file", str(file))
    applied = stages(file)
    world.run("plan", "--metrics-file", str(file))

    assert applied == sorted([*STAGES, "apply"])
    assert stages(file) == sorted(STAGES)
    assert 'reconciler_run_exit_code{command="plan",reconciler="fleet"} 0.0' in file.read_text()
    assert (file.stat().st_mode & 0o777, list(tmp_path.iterdir())) == (0o644, [file])


def test_run_that_fails_writes_its_exit_code_and_no_counts(tmp_path: Path) -> None:
    file = tmp_path / "run.prom"
    file.write_text("what an earlier run left\n")

    code = invoke(["apply", "--metrics-file", str(file), "--control", str(tmp_path / "nowhere")])

    assert code != 0
    assert re.search(rf"^reconciler_run_exit_code{{.*}} {code}\.0$", file.read_text(), re.MULTILINE)
    assert "reconciler_packages" not in file.read_text()
    assert "an earlier run" not in file.read_text()
