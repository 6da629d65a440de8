"""The literal steps of the action on a simulated GitHub: fetching, tokens of an App, what a person sees."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.forges.github import GitHubSimulator
from tests.support.forges.server import Pull, VirtualClock
from tests.support.forges.world import VARIABLE, ForgeWorld, forge_world
from tests.support.signing import app_pem
from tests.support.small_world import manifest
from tests.support.workflow import Job, Result, installed_job, run_action

CONTROL = "acme/control"
REPOSITORY = {"contents": "write", "pull_requests": "write", "metadata": "read"}
CHECKS = {"checks": "read", "statuses": "read"}


class Runner(NamedTuple):
    """A runner of the control repository on GitHub, on which no step has checked anything out."""

    action: Path
    world: ForgeWorld
    job: Job
    simulator: GitHubSimulator

    def run(self, **inputs: str) -> Result:
        return run_action(
            self.action, {name.replace("_", "-"): value for name, value in inputs.items()}, self.job
        )

    def configure(self, old: str, new: str) -> None:
        control = self.world.repo("control")
        text = control.read("main", "reconciler.yaml").decode()
        assert old in text
        control.commit({"reconciler.yaml": text.replace(old, new)})

    def propose(self) -> Pull:
        """Open a pull request that removes a manifest; the runner checks its merge commit."""
        control = self.world.repo("control")
        head = control.commit({manifest("edge-1", "web"): None}, branch="feature", start="main")
        pull = self.simulator.new_pull(
            self.simulator.repositories[CONTROL], title="Let web go", body="", head="feature", base="main"
        )
        self.job.event = "pull_request"
        self.job.environment = {
            **self.job.environment,
            "GITHUB_SHA": str(head),
            "GITHUB_REF": f"refs/pull/{pull.number}/merge",
            "GITHUB_BASE_REF": "main",
        }
        return pull


@pytest.fixture
def runner(tmp_path: Path, project_root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runner]:
    with forge_world(
        "github", tmp_path / "world", monkeypatch, edges=("edge-1",), packages=("web",), hosted_control=True
    ) as world:
        simulator = world.simulator
        assert isinstance(simulator, GitHubSimulator)
        simulator.clock = VirtualClock(4_000_000_000.0)  # tokens are valid by the clock of the action, too
        simulator.job_token = simulator.token
        (tmp_path / "workspace").mkdir()
        job = installed_job(tmp_path, tmp_path / "workspace")
        job.token = simulator.token
        job.environment = {
            **job.environment,
            "GITHUB_SERVER_URL": simulator.address,
            "GITHUB_API_URL": simulator.api,
            "GITHUB_REPOSITORY": CONTROL,
            VARIABLE: simulator.token,
        }
        yield Runner(project_root, world, job, simulator)


def test_action_fetches_what_no_step_checked_out(runner: Runner) -> None:
    ran = runner.run(mode="apply")
    again = runner.run(mode="apply")

    assert (ran.code, ran.outputs["changed"]) == (0, "true"), ran.log
    assert runner.world.open_heads() == [("acme/edge-1", "drafts/web/packagevariant-1")]
    assert "## Applied" in ran.summary
    assert "effects done" in ran.summary
    assert (again.code, again.outputs["changed"]) == (0, "false")


def test_check_without_checkout_compares_the_commit_of_the_workflow(runner: Runner) -> None:
    pull = runner.propose()

    ran = runner.run(mode="check", level="manifests")

    assert ran.code == 0, ran.log
    assert ran.outputs["summary"].startswith("Merging this drops 1 PackageVariant")
    ((_, comment),) = pull.comments.values()
    assert "drops 1 PackageVariant" in comment


@pytest.mark.parametrize(
    ("settings", "more"),
    [
        ("", {}),
        ("  pullRequests: {dashboard: true}\n", {"issues": "write"}),
        ("  approval: {auto: [{checks: [build]}]}\n", CHECKS),
    ],
)
def test_token_of_the_app_has_exactly_the_permissions_of_the_run(
    runner: Runner, settings: str, more: dict[str, str]
) -> None:
    app = 'appId: "1"\n    installationId: "2"\n    appKeyEnv: RECONCILER_APP_KEY\n'
    runner.configure(f"username: x-access-token\n    tokenEnv: {VARIABLE}\n", app + settings)

    ran = runner.run(mode="apply", app_key=app_pem())

    assert ran.code == 0, ran.log
    assert runner.world.open_heads() == [("acme/edge-1", "drafts/web/packagevariant-1")]
    assert runner.simulator.permissions == REPOSITORY | more
    assert "PRIVATE KEY" not in ran.log + ran.summary


def test_failed_effect_is_an_annotation_and_in_the_summary(runner: Runner) -> None:
    runner.simulator.plan("403", "POST", path="/pulls", times=9)

    ran = runner.run(mode="apply")

    assert ran.code not in {0, 2}
    assert ran.outputs["exit-code"] == str(ran.code)
    (line,) = (line for line in ran.log.splitlines() if line.startswith("::error title=Failed::"))
    assert "open edge-1 Create web from web/v1" in line
    assert line.endswith("Check the token's permissions, and that the repository is not archived.")
    assert "### Effects" in ran.summary
    assert "failed: " in ran.summary


def test_fatal_error_is_an_annotation_and_in_the_summary(runner: Runner) -> None:
    runner.simulator.job_token = "another"
    runner.simulator.token = "another"

    ran = runner.run(mode="plan")

    assert ran.code == int(ran.outputs["exit-code"]) == 5
    assert sum(line.startswith("::error title=Unavailable::") for line in ran.log.splitlines()) == 1
    assert ran.summary.startswith("## Not done\n\n**Unavailable** Cannot read `")


def test_each_error_of_the_configuration_is_an_annotation_at_its_place(runner: Runner) -> None:
    runner.configure("spec:\n", "spec:\n  manifest: [a]\n  suspend: often\n")

    ran = runner.run(mode="plan")

    control = runner.world.repo("control").read("main", "reconciler.yaml").decode().splitlines()
    lines = [line for line in ran.log.splitlines() if line.startswith("::error ")]
    assert ran.code == 3
    assert [line.split(",title=")[0] for line in lines] == [
        f"::error col=3,file=reconciler.yaml,line={control.index('  manifest: [a]') + 1}",
        f"::error col=12,file=reconciler.yaml,line={control.index('  suspend: often') + 1}",
    ]
    assert lines[0].endswith("::Unknown field spec.manifest. Did you mean manifests?")
    assert ran.summary.count("**Configuration** reconciler.yaml:") == 2


def test_killed_run_is_an_annotation(runner: Runner) -> None:
    python = runner.job.temporary / "reconciler/bin/python"
    python.unlink()
    python.write_text("#!/bin/sh\nkill -9 $$\n")
    python.chmod(0o755)

    ran = runner.run(mode="plan")

    assert (ran.code, ran.outputs["exit-code"]) == (137, "137")
    assert "::error title=Killed::The run ended with code 137" in ran.log


def test_installation_that_fails_is_an_annotation(runner: Runner) -> None:
    (runner.job.temporary / "reconciler/complete").unlink()
    runner.job.used = {**runner.job.used, "actions/setup-python": {"python-path": "/nonexistent/python"}}

    ran = runner.run(mode="plan")

    assert ran.code == 127
    assert "::error title=Installation::" in ran.log
    assert ran.outputs["exit-code"] == ""
