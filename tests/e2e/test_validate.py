"""`validate`: every error of a manifest with its place, without any repository."""

import json
from pathlib import Path

import pytest

from reconciler.cli.main import invoke
from tests.support.schema import output_violations
from tests.support.small_world import CONFIGURATION
from tests.support.world import git

SET = """\
apiVersion: config.porch.kpt.dev/v1alpha2
kind: PackageVariantSet
metadata:
  name: web
spec:
  upstream: {repo: blueprints, package: web, revision: 1}
  targets:
  - repositorySelector: {}
    template:
      downstream:
        packageExpr: "target.package +"
"""
VARIANT = """\
apiVersion: config.porch.kpt.dev/v1alpha1
kind: PackageVariant
metadata:
  name: web
spec:
  upstream: {repo: blueprints, package: web, revision: 1}
  downstream: {repo: edge-1, package: web}
"""
REPOSITORY = """\
apiVersion: config.porch.kpt.dev/v1alpha1
kind: Repository
metadata:
  name: edge-1
spec:
  git: {repo: ../edge-1.git}
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def checked(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str]]:
    """Return the exit code and the errors of `validate`, as PATH:LINE:COLUMN: REASON."""
    code = invoke(["validate", *arguments, "-o", "json"])
    out = capfd.readouterr().out
    assert output_violations("Validation", out) == []
    problems = json.loads(out)["problems"]
    places = [(problem["location"], problem["reason"]) for problem in problems]
    return code, [f"{at['path']}:{at['line']}:{at['column']}: {reason}" for at, reason in places]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (SET, "11:39: InvalidExpression"),
        (SET.replace("repositorySelector: {}", "objectSelector: {kind: Box}").replace(".package +", ".name"),
            "8:21: Validation"),
        (VARIANT.replace("package: web, revision", "pacakge: web, revision"), "6:32: UnknownField"),
        (VARIANT.replace("revision: 1", "revision: 1, tag: v1"), "6:13: ValidationError"),
        (VARIANT.replace("v1alpha1", "v1alpha7"), "1:13: UnsupportedVersion"),
        (VARIANT.replace("name: web", 'name: web\n  annotations: {reconciler.dev/pause: "true"}', 1), "5:17"),
        (REPOSITORY.replace("spec:", "spec: ["), "7:1: InvalidYAML"),
        (CONFIGURATION.replace("manifests:", "manifest:"), "6:3: InvalidManifest"),
    ],
)  # fmt: skip
def test_an_error_has_file_line_and_column(
    here: Path, capfd: pytest.CaptureFixture[str], text: str, error: str
) -> None:
    (here / "a.yaml").write_text(text)

    code, errors = checked(capfd, "a.yaml")

    assert code == 3
    assert [each[: len(f"a.yaml:{error}")] for each in errors] == [f"a.yaml:{error}"]


HEADER = "apiVersion: reconciler.dev/v1alpha1\nkind: PackageVersion\nsource: x.io/a\nversion: v1.0.0\n"
META = "apiVersion: meta.pkg.crossplane.io/v1\nkind: Provider\nmetadata: {name: a}\n"


@pytest.mark.parametrize(
    ("manifest", "header", "error"),
    [
        (META, HEADER, ""),
        ("kind: [\n", HEADER, "crossplane.yaml:2:1: InvalidYAML"),
        (META, "kind: [\n", "version.yaml:2:1: InvalidYAML"),
        ("", HEADER, "crossplane.yaml:1:1: InvalidManifest"),
        (META, f"{HEADER}digest: sha256:12\n", "version.yaml:5:9: InvalidManifest"),
        (META.replace("Provider", "Provder"), HEADER, "crossplane.yaml:2:7: UnknownKind"),
        ("apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n", HEADER,
            "crossplane.yaml:1:1: InvalidManifest"),
    ],
)  # fmt: skip
def test_the_index_is_checked_too_and_each_fault_is_one_problem(
    here: Path, capfd: pytest.CaptureFixture[str], manifest: str, header: str, error: str
) -> None:
    git(here, "init", "-q")
    folder = here / "index/x.io/a/v1.0.0"
    folder.mkdir(parents=True)
    (here / "manifests").mkdir()
    (here / "reconciler.yaml").write_text(CONFIGURATION)
    (folder / "crossplane.yaml").write_text(manifest)
    (folder / "version.yaml").write_text(header)

    code, errors = checked(capfd)

    assert (code, errors) == ((3, [f"index/x.io/a/v1.0.0/{error}"]) if error else (0, []))
    assert checked(capfd, "index") == (code, errors)


def test_one_object_in_two_files_is_an_error_at_both(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (here / "a.yaml").write_text(VARIANT)
    (here / "b.yaml").write_text(VARIANT)

    assert checked(capfd, "a.yaml", "b.yaml") == (
        3,
        ["a.yaml:1:1: DuplicateObject", "b.yaml:1:1: DuplicateObject"],
    )
    assert checked(capfd, "a.yaml") == (0, [])


def test_without_a_path_the_configured_files_of_the_working_copy_are_checked(
    here: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"reconciler.yaml": CONFIGURATION, "manifests/a.yaml": SET, "other/b.yaml": SET}
    git(here, "init", "-q", "c")
    for name, text in files.items():
        (here / "c" / name).parent.mkdir(parents=True, exist_ok=True)
        (here / "c" / name).write_text(text)
    monkeypatch.chdir(here / "c/manifests")

    assert checked(capfd) == (3, ["a.yaml:11:39: InvalidExpression"])
