"""`package from-chart`: a chart vendored and pinned, again with another version, and what is refused."""

import json
import tarfile
from pathlib import Path

import pytest

from reconciler.functions.pipeline import run_pipeline
from reconciler.functions.runtimes.pipelines import open_runtimes
from reconciler.policy import FunctionPolicy
from reconciler.read.files import read_directory
from tests.support.charts import DEPLOYMENT, chart, needs_helm
from tests.support.git import make_repository
from tests.support.registry import Answer, serve_gate, serve_registry
from tests.support.world import git, invoke


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


@needs_helm
def test_package_renders_as_it_was_made(tmp_path: Path) -> None:
    from_chart(write_chart(tmp_path), tmp_path / "package")

    with open_runtimes(FunctionPolicy()) as runtimes:
        result = run_pipeline(read_directory(tmp_path / "package"), runtimes)

    assert not result.error
    assert "default/deployment_web.yaml" not in result.files
    assert b"replicas: 1" in result.files["deployment_web.yaml"].data


def archive(folder: Path, version: str = "1.0.0", name: str = "web.tgz") -> bytes:
    return pack(write_chart(folder / version, version), folder / name).read_bytes()


@pytest.mark.parametrize(
    "part", [slice(0), slice(200), slice(5, None)], ids=["empty", "cut off", "no archive"]
)
def test_a_file_that_is_no_archive_is_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], part: slice
) -> None:
    (tmp_path / "part.tgz").write_bytes(archive(tmp_path)[part])

    assert from_chart(tmp_path / "part.tgz", tmp_path / "new") == 2

    error = capsys.readouterr().err
    assert "part.tgz" in error
    assert "Name a .tgz that `helm package` made." in error
    assert not (tmp_path / "new").exists()


def index(*versions: str, digest: str = "", url: str = "files/web-{}.tgz") -> bytes:
    """Return the index of a repository with the chart `web`."""
    listed = [{"name": "web", "version": v, "urls": [url.format(v)], "digest": digest} for v in versions]
    return json.dumps({"apiVersion": "v1", "entries": {"web": listed}}).encode()


def settings(folder: Path, spec: str) -> Path:
    path = folder / "reconciler.yaml"
    head = "apiVersion: reconciler.dev/v1alpha1\nkind: Reconciler\nmetadata: {name: fleet}\nspec:\n"
    path.write_text(head + spec)
    return path


def test_registry_without_tls_is_read_through_the_mirror_that_the_hint_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serve_registry(tmp_path) as registry:
        for version in ("1.0.0", "1.1.0+build.1", "2.0.0"):
            registry.push_chart("charts/web", version, archive(tmp_path, version))
        address = f"oci://{registry.address}/charts/web"
        without = from_chart(address, tmp_path / "new")
        hint = capsys.readouterr().err
        config = settings(
            tmp_path, f"  registries: {{mirrors: {{'{registry.address}': 'http://{registry.address}'}}}}\n"
        )

        done = from_chart(address, tmp_path / "new", "--version", "^1", "--config", config)
        newest = from_chart(address, tmp_path / "newest", "--config", config)
        other = settings(tmp_path, f"{config.read_text().partition('spec:')[2]}  addresses: [https://x.org]")
        kept = from_chart(address, tmp_path / "new", "--config", other)

    assert (without, done, newest) == (5, 0, 0), hint
    assert f"spec.registries.mirrors: {{{registry.address}: http://{registry.address}}}" in hint
    text = (tmp_path / "new/chart.yaml").read_text()
    assert f"chart-source: {address}:1.1.0_build.1@sha256:" in text
    assert "chart-versions: ^1\n" in text
    assert 'chart-versions: "*"\n' in (tmp_path / "newest/chart.yaml").read_text()
    assert kept == 4
    assert "is below no prefix of spec.addresses" in capsys.readouterr().err


GIT_VERSIONS = [("", "1.1.0"), ("~1.0", "1.0.0"), ("web-1.0.0", "1.0.0"), ("main", "2.0.0")]


@pytest.mark.parametrize(("version", "want"), GIT_VERSIONS)
def test_directory_of_git_is_read_at_a_version_of_its_chart(tmp_path: Path, version: str, want: str) -> None:
    charts = make_repository(tmp_path / "charts.git", chart(version="1.0.0", deployment=DEPLOYMENT))
    charts.tag("web-1.0.0")
    charts.commit(chart(version="1.1.0", deployment=DEPLOYMENT))
    charts.tag("web-1.1.0")
    charts.tag("v9.0.0")  # of something else in the repository
    charts.commit(chart(version="2.0.0", deployment=DEPLOYMENT))
    address = f"file://{tmp_path}/charts.git"
    pinned = git(tmp_path / "charts.git", "rev-parse", f"web-{want}" if want < "2" else "main").strip()

    options = ("--version", version) if version else ()
    cache = ("--cache-dir", tmp_path / "cache")
    assert from_chart(f"{address}/charts/web", tmp_path / "new", *options, *cache) == 0

    text = (tmp_path / "new/chart.yaml").read_text()
    assert f"version: {want}\n" in text
    assert f"chart-source: {address}/charts/web@{pinned}" in text
    assert from_chart(f"{address}/charts/wep", tmp_path / "none", *cache, "--version", "main") == 5


def needing(name: str, version: str, repository: str) -> str:
    return f'dependencies:\n- {{name: {name}, version: "{version}", repository: "{repository}"}}\n'


def test_chart_of_a_repository_names_no_address_of_this_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_repository(tmp_path / "secret.git", chart("db"))
    metadata = "apiVersion: v2\nname: web\nversion: 1.0.0\n"
    metadata += needing("db", "*", f"git+file://{tmp_path}/secret.git/charts")
    write_chart(tmp_path / "1.0.0", charts__web__Chart_yaml="")
    (tmp_path / "1.0.0/web/Chart.yaml").write_text(metadata)
    data = pack(tmp_path / "1.0.0/web", tmp_path / "web.tgz").read_bytes()
    with serve_gate() as gate:
        gate.plan = lambda asked: Answer(200, index("1.0.0") if "index" in asked.path else data)
        config = settings(
            tmp_path, f"  registries: {{mirrors: {{c.example.com: 'http://{gate.address}'}}}}\n"
        )

        assert from_chart("https://c.example.com/web", tmp_path / "new", "--config", config) == 4

    printed = capsys.readouterr().err
    assert "an address of this machine" in printed
    assert "Clone the chart, and name its directory" in printed


@pytest.fixture
def working_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a repository with a chart beside it; commands run in it."""
    copy = tmp_path / "copy"
    copy.mkdir()
    write_chart(tmp_path)
    git(copy, "init", "-q", "-b", "main")
    git(copy, "commit", "-q", "--allow-empty", "-m", "Begin")
    monkeypatch.chdir(copy)
    return copy


@pytest.mark.parametrize(
    ("directory", "why"),
    [(".", "it is the root of its repository"), ("a b", "'a b' may not be part of a Git ref")],
)
@pytest.mark.usefixtures("working_copy")
def test_no_package_is_made_where_none_can_be(
    directory: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert from_chart("../web", directory) == 4

    assert f"No fleet can have a package at {directory}: {why}" in capsys.readouterr().err
    assert list(Path().rglob("Kptfile")) == []
