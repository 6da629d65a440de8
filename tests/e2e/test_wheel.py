"""The wheel, installed elsewhere, holds everything that a run needs."""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from reconciler.cli.schema import OUTPUTS

pytestmark = pytest.mark.slow

SCHEMAS = "import sys; from reconciler.cli.main import invoke; [invoke(['schema', n]) for n in sys.argv[1:]]"


def run(*command: str, cwd: Path, **environment: str) -> str:
    ran = subprocess.run(
        command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_the_wheel_runs_elsewhere(tmp_path: Path, project_root: Path) -> None:
    run(
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(tmp_path),
        cwd=project_root,
    )
    (wheel,) = tmp_path.glob("package_reconciler-*.whl")
    home = tmp_path / "home"
    venv.create(home, with_pip=False)
    (site,) = home.glob("lib/python*/site-packages")
    # The dependencies are this environment's; the package itself comes from the wheel alone.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = str(home / "bin/python")
    run(python, "-m", "pip", "install", "--no-deps", "--no-index", "--quiet", str(wheel), cwd=tmp_path)

    where = run(python, "-c", "import reconciler; print(reconciler.__file__)", cwd=tmp_path)
    assert where.startswith(str(home))
    assert (site / "reconciler/_templates").is_dir()
    assert any((site / "reconciler/_templates").iterdir())

    environment = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    command = str(home / "bin/reconciler")
    run(command, "demo", "fleet", cwd=tmp_path, **environment)
    names = [kind.lower() for kind in OUTPUTS]
    shipped = run(python, "-c", SCHEMAS, *names, cwd=tmp_path)
    schemas = [(project_root / f"docs/schemas/{name}.schema.json").read_text() for name in names]
    assert shipped == "".join(schemas)
    run(command, "init", "own", "--forge", "github", cwd=tmp_path)
    shipped = (project_root / ".github/examples/apply.yml").read_text()
    assert (tmp_path / "own/.github/workflows/reconciler-apply.yml").read_text() == shipped
    said = run(command, "plan", "--output", "markdown", cwd=tmp_path / "fleet/control", **environment)
    assert "cluster-europe-01" in said
    run(command, "apply", cwd=tmp_path / "fleet/control", **environment)
