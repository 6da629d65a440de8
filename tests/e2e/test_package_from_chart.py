"""`package from-chart`: a chart vendored and pinned, again with another version, and what is refused."""

import io
import tarfile
from pathlib import Path
from typing import NamedTuple

import pytest

from reconciler.functions.pipeline import run_pipeline
from reconciler.functions.runtimes.pipelines import open_runtimes
from reconciler.policy import FunctionPolicy
from reconciler.read.files import read_directory
from reconciler.sources.charts import choose_version
from tests.support.charts import DEPLOYMENT, chart, needs_helm
from tests.support.world import invoke


def write_chart(directory: Path, version: str = "1.0.0", **more: str) -> Path:
    """Write the chart `web`; the names of `more` have `__` for a slash."""
    for path, text in {**chart(version=version, deployment=DEPLOYMENT), **more}.items():
        file = directory / path.replace("__", "/").removeprefix("charts/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return directory / "web"


def pack(folder: Path, archive: Path) -> Path:
    with tarfile.open(archive, "w:gz") as opened:
        opened.add(folder, folder.name)
    return archive


def from_chart(*arguments: object) -> int:
    return invoke(["package", "from-chart", *map(str, arguments)])


def test_package_has_the_chart_its_function_and_its_defaults_as_comments(tmp_path: Path) -> None:
    package = tmp_path / "blueprints" / "web"

    assert from_chart(write_chart(tmp_path), package) == 0

    files = {path: file.data.decode() for path, file in read_directory(package).items()}
    assert set(files) == {
        *(".krmignore", "Kptfile", "README.md", "chart.yaml", "values.yaml"),
        *(f"charts/web/{name}" for name in ("Chart.yaml", "templates/deployment.yaml", "values.yaml")),
    }
    assert files["values.yaml"].endswith("# replicas: 1\n")
    assert "render-helm-chart:v0.3.0" in files["Kptfile"]
    assert "chart-digest: sha256:" in files["chart.yaml"]


@needs_helm
def test_package_renders_as_it_was_made(tmp_path: Path) -> None:
    from_chart(write_chart(tmp_path), tmp_path / "package")

    with open_runtimes(FunctionPolicy()) as runtimes:
        result = run_pipeline(read_directory(tmp_path / "package"), runtimes)

    assert not result.error
    assert "default/deployment_web.yaml" not in result.files
    assert b"replicas: 1" in result.files["deployment_web.yaml"].data


def test_another_version_replaces_the_chart_alone(tmp_path: Path) -> None:
    package = tmp_path / "package"
    from_chart(write_chart(tmp_path / "a", more__x="x"), package)
    for name in ("values.yaml", "README.md", "chart.yaml"):
        (package / name).write_text((package / name).read_text() + "# ours\n")
    before = (package / "chart.yaml").read_text()

    assert from_chart(pack(write_chart(tmp_path / "b", "1.1.0"), tmp_path / "web.tgz"), package) == 0

    after = (package / "chart.yaml").read_text()
    assert "version: 1.1.0" in after
    assert [line for line in after.splitlines() if line not in before] == [
        line for line in after.splitlines() if "1.1.0" in line or "digest" in line or "source" in line
    ]
    assert (package / "values.yaml").read_text().endswith("# ours\n")
    assert "version: 1.1.0" in (package / "charts/web/Chart.yaml").read_text()


def test_refused_charts_write_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dependent = "apiVersion: v2\nname: web\nversion: 1.0.0\ndependencies:\n- {name: db, version: 1.0.0}\n"
    needy = write_chart(tmp_path / "needy")
    (needy / "Chart.yaml").write_text(dependent)
    (tmp_path / "none").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("x")
    hostile = io.BytesIO()
    with tarfile.open(fileobj=hostile, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo("../../x"), io.BytesIO())
    (tmp_path / "bad.tgz").write_bytes(hostile.getvalue())
    cases = {
        "depends on the chart db": (needy, "new"),
        "has no Chart.yaml": (tmp_path / "none", "new"),
        "may not hold ../../x": (tmp_path / "bad.tgz", "new"),
        "is not empty, and no package of a chart": (write_chart(tmp_path / "good"), "full"),
        "is no address": ("https://charts.example.com/web", "new"),
        "does not exist": (tmp_path / "nowhere", "new"),
    }

    for message, (source, target) in cases.items():
        assert from_chart(source, tmp_path / target) != 0
        assert message in capsys.readouterr().err
        assert not (tmp_path / "new").exists()


class Choice(NamedTuple):
    """A range with the version that it means of some tags."""

    reason: str
    wanted: str
    want: str


VERSIONS = ["1.2.0", "1.10.0", "v1.9.0", "2.0.0-rc.1", "latest"]
CHOICES = [
    Choice("the newest that is no prerelease", "", "1.10.0"),
    Choice("a range", "~1.9", "v1.9.0"),
    Choice("an exact version", "1.2.0", "1.2.0"),
    Choice("a prerelease by its name", "2.0.0-rc.1", "2.0.0-rc.1"),
    Choice("none", "^3", ""),
]


@pytest.mark.parametrize("case", CHOICES, ids=lambda case: case.reason)
def test_version_of_a_range(case: Choice) -> None:
    assert choose_version(VERSIONS, case.wanted) == case.want
