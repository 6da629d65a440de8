"""Time of functions: nothing that one does escapes its limit, and a run has a limit for all of them."""

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.base.errors import Exit
from reconciler.functions import builtin
from reconciler.functions.pipeline import run_pipeline
from reconciler.functions.runtimes.pipelines import limited
from reconciler.names.objects import File
from reconciler.policy import FunctionPolicy
from tests.support.command_server import run_reconciler
from tests.support.git import make_repository
from tests.support.samples import sample
from tests.support.small_world import app, manifest, repository, variant
from tests.support.world import World, refs

pytestmark = pytest.mark.slow

HEAD = "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: {name}\npipeline:\n  mutators:\n"
FAST = "  - image: gcr.io/kpt-fn/set-labels:v0.2.0\n    configMap: {tier: edge}\n"
STARLARK = "  - image: gcr.io/kpt-fn/starlark:v0.5\n    configMap:\n      source: |\n        "
ESCAPES = {
    "a builtin of strings": "[('a' * 10000000).count('b') for _ in range(100000)]",
    "an empty loop": "[0 for _ in range(10000) for _ in range(10000) for _ in range(10000)]",
}
CONFIG = """\
apiVersion: reconciler.dev/v1alpha1
kind: Reconciler
metadata:
  name: fleet
spec:
  functions:
    timeout: {timeout}
    runTimeout: {run_timeout}
    starlarkSteps: 100000000000
"""


def write_package(directory: Path, pipeline: str) -> Path:
    directory.mkdir()
    (directory / "Kptfile").write_text(HEAD.format(name="web") + pipeline)
    (directory / "app.yaml").write_text(app("web", 1))
    return directory


@pytest.mark.parametrize("name", ESCAPES)
def test_a_script_cannot_escape_its_time(name: str, tmp_path: Path) -> None:
    package = write_package(tmp_path / "web", f"{STARLARK}{ESCAPES[name]}\n")
    (tmp_path / "reconciler.yaml").write_text(CONFIG.format(timeout=2, run_timeout=60))
    begun = time.monotonic()

    done = run_reconciler(["package", "render", "--config", "../reconciler.yaml"], cwd=package)

    assert done.returncode == Exit.INVALID_INPUT, done
    assert "stopped" in done.stdout
    assert time.monotonic() - begun < 20


def test_an_executable_that_ignores_signals_is_ended_with_its_children(tmp_path: Path) -> None:
    script = tmp_path / "stubborn"
    script.write_text(
        f"#!/bin/sh\ntrap '' TERM INT HUP\necho $$ > {tmp_path}/pid\nsleep 98765 &\nwait\nsleep 98765\n"
    )
    script.chmod(0o755)
    package = write_package(tmp_path / "web", "  - exec: stubborn\n")
    (tmp_path / "reconciler.yaml").write_text(CONFIG.format(timeout=2, run_timeout=60))
    options = ["--config", "../reconciler.yaml", "--allow-exec", "--exec", f"stubborn={script}"]

    done = run_reconciler(["package", "render", *options], cwd=package)

    assert done.returncode == Exit.INVALID_INPUT
    assert "It was stopped after 2 s" in done.stdout
    time.sleep(0.2)
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()


def test_a_builtin_function_has_the_same_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(_call: object) -> Iterator[object]:
        while True:
            sum(range(1000))

    monkeypatch.setitem(builtin.BUILTINS, "set-labels", endless)
    files = {"Kptfile": File.of((HEAD.format(name="web") + FAST).encode())}
    policy = FunctionPolicy(timeout_s=1)
    begun = time.monotonic()

    result = run_pipeline(files, (), policy, limited(policy))

    assert time.monotonic() - begun < 10
    assert result.error.endswith("It was stopped after 1 s")
    assert result.is_late
    assert result.files == files
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


GOOD = tuple(f"good-{number}" for number in range(4))
SLOW = tuple(f"slow-{number}" for number in range(3))


def fleet(root: Path, pipelines: dict[str, str], configuration: str) -> World:
    """Make a world in which each package has one of the pipelines."""
    root.mkdir()
    files: dict[str, str] = {}
    for name, pipeline in pipelines.items():
        files |= {f"{name}/Kptfile": HEAD.format(name=name) + pipeline, f"{name}/app.yaml": app(name, 1)}
    blueprints = make_repository(root / "blueprints.git", files)
    for name in pipelines:
        blueprints.tag(f"{name}/v1")
    blueprints.commit({f"{name}/app.yaml": app(name, 2) for name in pipelines}, message="v2\n")
    for name in pipelines:
        blueprints.tag(f"{name}/v2")
    make_repository(root / "edge-1.git", {"README.md": "edge\n"})
    control = {"reconciler.yaml": configuration}
    control |= {f"repositories/{name}.yaml": repository(name) for name in ("blueprints", "edge-1")}
    control |= {manifest("edge-1", name): variant("edge-1", name) for name in pipelines}
    make_repository(root / "control.git", control)
    return World(root)


def drafted(world: World) -> set[str]:
    return {ref.split("/")[-2] for ref in refs(world.root / "edge-1.git") if "/drafts/" in ref}


@pytest.mark.parametrize("keeps_cache", sample([True, False], 2))
def test_slow_functions_do_not_starve_the_others_for_ever(tmp_path: Path, *, keeps_cache: bool) -> None:
    slow = SLOW if keeps_cache else SLOW[:1]
    pipelines = dict.fromkeys(GOOD, FAST) | dict.fromkeys(
        slow, f"{STARLARK}{ESCAPES['a builtin of strings']}\n"
    )
    world = fleet(tmp_path / "world", pipelines, CONFIG.format(timeout=60, run_timeout=2))
    runs = 0

    while drafted(world) != set(GOOD) and runs < 30:
        applied = world.run("apply", "-o", "json")
        runs += 1
        outcome = json.loads(applied.out)
        changes = outcome["changes"]
        assert applied.code == Exit.PARTIAL, applied
        assert "partial" in outcome["exits"]
        assert drafted(world) <= set(GOOD), "half published"
        kept = {each["package"]["path"] for each in changes if each["reason"] == "FunctionsPostponed"}
        assert set(slow) <= kept
        assert kept <= {*slow, *(set(GOOD) - drafted(world))}
        if not keeps_cache:
            subprocess.run(["rm", "-rf", str(world.root / "cache")], check=True)

    assert drafted(world) == set(GOOD)
    if keeps_cache:  # without one nothing is known of earlier runs, and luck decides
        assert runs <= len(slow) + 1
    shown = world.run("plan")
    assert shown.code == Exit.PARTIAL
    row = next(line for line in shown.out.splitlines() if "slow-0" in line)
    assert row.startswith("keep")
    assert "FunctionsPostponed" in row
    assert "functions.runTimeout, 2 s" in shown.out
