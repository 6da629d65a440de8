"""What a release publishes and who builds it, by the literal steps of its workflows, without publishing."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.workflow import Job, Result, run_job

PLACE = re.compile(
    r"(?i)[\w./-]*your-org[\w./-]*|your\.registry|OWNER/reconciler|<this repository>|"
    r"registry\.example\.com/platform|reconciler-dev\b"
)
"""Words that stand for whoever hosts this repository."""
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def shipped(root: Path) -> list[Path]:
    """Return the files of the project that users get, read or copy."""
    listed = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True, check=True)
    skipped = ("tests/", "tools/", "fixtures/", ".ci/")
    return [root / name for name in listed.stdout.splitlines() if not name.startswith(skipped)]


def places(files: list[Path]) -> set[str]:
    texts = (path.read_text(errors="replace") for path in files if path.is_file())
    return {match[0] for text in texts for match in PLACE.finditer(text)}


def test_whoever_hosts_is_written_in_one_way(project_root: Path) -> None:
    spellings = places(shipped(project_root))

    known = re.compile(r"(https://|//)?(github\.com/|ghcr\.io/)?(YOUR-ORG|your-org)/reconciler([./].*)?")
    assert {spelling for spelling in spellings if not known.fullmatch(spelling)} == set()


def test_release_replaces_every_placeholder(project_root: Path, tmp_path: Path) -> None:
    for path in shipped(project_root):
        copy = tmp_path / path.relative_to(project_root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, copy)

    command = [sys.executable, "-I", project_root / ".ci/stamp", "Acme/reconciler", COMMIT, tmp_path]
    stamped = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()

    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert places(files) == set()
    assert len(stamped) >= 9
    assert [p for p in stamped if re.search("(?<!0)0{40}(?!0)", Path(p).read_text())] == []
    examples = "".join(path.read_text() for path in (tmp_path / ".github/examples").glob("*.yml"))
    assert set(re.findall(r"uses: (\S*reconciler\S*)", examples)) == {f"Acme/reconciler@{COMMIT}"}
    assert "newName: ghcr.io/acme/reconciler" in (tmp_path / "deploy/cronjob/kustomization.yaml").read_text()


@pytest.mark.parametrize("arguments", [("acme", COMMIT), ("acme/a b", COMMIT), ("acme/reconciler", "main")])
def test_stamp_refuses_what_names_no_release(
    project_root: Path, tmp_path: Path, arguments: tuple[str, str]
) -> None:
    command = [sys.executable, "-I", project_root / ".ci/stamp", *arguments, tmp_path]

    assert subprocess.run(command, capture_output=True, check=False).returncode == 1


def workflow(root: Path, name: str) -> dict[Any, Any]:
    content: dict[Any, Any] = yaml.safe_load((root / ".github/workflows" / name).read_text())
    return content


def uses(job: dict[str, Any]) -> str:
    return " ".join(step.get("uses", "") for step in job.get("steps", []))


def test_one_workflow_without_inputs_builds_and_signs_and_another_one_publishes(project_root: Path) -> None:
    build, release = workflow(project_root, "build.yml"), workflow(project_root, "release.yml")

    assert build[True]["workflow_call"].keys() == {"outputs"}, "what calls it cannot change a build"
    assert "secrets." not in str(build)
    assert all("attest-build-provenance@" in uses(job) for job in build["jobs"].values())
    assert all("attest-sbom@" in uses(job) for job in build["jobs"].values())
    assert "attest-" not in "".join(map(uses, release["jobs"].values()))
    publishing = release["jobs"]["index"]
    assert "gh-action-pypi-publish@" in uses(publishing)
    assert publishing["permissions"] == {"id-token": "write"}
    assert "password" not in str(publishing), "trusted publishing has none"
    assert "actions/checkout" not in uses(publishing), "it publishes what was built, and runs nothing of ours"
    assert release["jobs"]["build"]["uses"] == "./.github/workflows/build.yml"


def test_called_workflow_gets_every_permission_that_its_jobs_need(project_root: Path) -> None:
    build, release = workflow(project_root, "build.yml"), workflow(project_root, "release.yml")
    needed = {scope: level for job in build["jobs"].values() for scope, level in job["permissions"].items()}

    assert release["jobs"]["build"]["permissions"] == needed


def test_documented_command_verifies_the_workflow_that_signs(project_root: Path) -> None:
    text = (project_root / "docs/install.md").read_text()

    (signer,) = re.findall(r"--signer-workflow YOUR-ORG/reconciler/(\S+)", text)
    assert (project_root / signer).is_file()
    assert "attest-build-provenance@" in (project_root / signer).read_text()


def test_every_python_that_is_claimed_is_tried(project_root: Path) -> None:
    claimed = re.findall(
        r'"Programming Language :: Python :: (3\.\d+)"', (project_root / "pyproject.toml").read_text()
    )
    jobs = workflow(project_root, "ci.yml")["jobs"]
    setups = [step for step in jobs["part"]["steps"] if "setup-python" in step.get("uses", "")]
    tried = [setups[0]["with"]["python-version"], *jobs["pythons"]["strategy"]["matrix"]["python"]]
    page = (project_root / "docs/install.md").read_text()

    assert tried == claimed
    assert f"Python {claimed[0]} to {claimed[-1]}" in page
    assert f'requires-python = ">={claimed[0]}"' in (project_root / "pyproject.toml").read_text()


def run_ci(root: Path, tmp_path: Path, *parts: str, fails: str = "nothing") -> tuple[int, list[str], str]:
    """Run .ci/run with programs that do nothing; return exit code, calls of make, and the last line."""
    work = tmp_path / "clone"
    (work / ".ci").mkdir(parents=True, exist_ok=True)
    subprocess.run(["git", "init", "-q", work], check=True)
    shutil.copy(root / ".ci/run", work / ".ci/run")
    (tmp_path / "bin").mkdir(exist_ok=True)
    for name in ("apt-get", "npm", "podman", "promtool", "make"):
        stub = tmp_path / "bin" / name
        stub.write_text(
            f'#!/bin/sh\n[ {name} != make ] || echo "$1" >> {tmp_path}/calls\n[ "$1" != {fails} ]\n'
        )
        stub.chmod(0o755)
    path = f"{tmp_path}/bin:/usr/local/bin:/usr/bin:/bin"
    environment = {"PATH": path, "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    ran = subprocess.run(
        [work / ".ci/run", *parts], env=environment, capture_output=True, text=True, check=False
    )
    lines = (ran.stdout + ran.stderr).splitlines()
    calls = tmp_path / "calls"
    return ran.returncode, calls.read_text().split() if calls.exists() else [], lines[-1]


def test_whole_of_ci_runs_what_the_readme_names_part_by_part(project_root: Path, tmp_path: Path) -> None:
    code, calls, last = run_ci(project_root, tmp_path)

    assert (code, calls) == (0, ["lint", "test", "slow", "docs-site", "demo"])
    assert last == "== mutants"
    parts = workflow(project_root, "ci.yml")["jobs"]["part"]["strategy"]["matrix"]["part"]
    assert parts == ["lint", "unit", "e2e", "docs", "image", "mutants"]
    assert [run_ci(project_root, tmp_path, part)[0] for part in parts] == [0] * len(parts)


@pytest.mark.parametrize(
    ("parts", "fails", "red"),
    [
        ((), "slow", "test: .ci/run test"),
        ((), "demo", "docs: .ci/run docs"),
        (("e2e",), "test", "e2e: .ci/run e2e"),
        (("docs",), "install", "set-up: .ci/run docs"),
    ],
)
def test_last_line_of_a_red_ci_names_its_part_and_how_to_run_it_alone(
    project_root: Path, tmp_path: Path, parts: tuple[str, ...], fails: str, red: str
) -> None:
    code, _, last = run_ci(project_root, tmp_path, *parts, fails=fails)

    assert code != 0
    assert last == "red: " + red.replace(":", ". To run it alone:")


def test_unknown_part_is_refused(project_root: Path, tmp_path: Path) -> None:
    code, calls, last = run_ci(project_root, tmp_path, "lint", "tests")

    assert (code, calls) == (2, [])
    assert last == "tests is none of lint, unit, e2e, test, docs, image and mutants"


@pytest.fixture
def tagged(project_root: Path, tmp_path: Path) -> Path:
    """A clone of a project whose version is 1.2.3, with notes for it."""
    work = tmp_path / "work"
    (work / "reconciler").mkdir(parents=True)
    shutil.copytree(project_root / ".ci", work / ".ci")
    (work / "reconciler/__init__.py").write_text('__version__ = "1.2.3"\n')
    (work / "CHANGELOG.md").write_text("# Changelog\n\n## [1.2.3]\n\n- News.\n\n## [1.2.2]\n\n- Old.\n")
    identity = ["-c", "user.name=Kim", "-c", "user.email=kim@example.com"]
    for command in (["init", "-q", "-b", "main"], ["add", "."], [*identity, "commit", "-qm", "Release"]):
        subprocess.run(["git", *command], cwd=work, check=True)
    subprocess.run(["git", "clone", "-q", "work", "clone"], cwd=tmp_path, check=True)
    return tmp_path / "clone"


def head(clone: Path) -> str:
    return subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=clone, capture_output=True, text=True, check=True
    ).stdout.strip()


def run_release(root: Path, clone: Path, name: str, tag: str, more: dict[str, Any]) -> Result:
    used = {"actions/checkout": {}, "actions/download-artifact": {}}
    environment = {"GITHUB_REF_NAME": tag, "GITHUB_SHA": head(clone), "GITHUB_REPOSITORY": "acme/reconciler"}
    path = {"PATH": f"{clone.parent}/bin:/usr/local/bin:/usr/bin:/bin"}
    job = Job(clone, clone.parent / "temp", used=used, environment={**environment, **path})
    github = {"token": job.token, "event": {"repository": {"default_branch": "main"}}}
    return run_job(root / ".github/workflows/release.yml", name, job, {"github": github, **more})


@pytest.mark.parametrize(("tag", "code"), [("v1.2.3", 0), ("v1.2.4", 1), ("v1.2.2", 1)])
def test_tag_is_the_version_of_the_package(project_root: Path, tagged: Path, tag: str, code: int) -> None:
    ran = run_release(project_root, tagged, "check", tag, {})

    assert ran.code == code, ran.log
    assert ran.outputs.get("moving") == (None if code else "v1")
    assert ("- News." in ran.log) == (code == 0)


def test_candidate_has_the_notes_of_its_release_and_moves_no_tag(project_root: Path, tagged: Path) -> None:
    identity = ["-c", "user.name=Kim", "-c", "user.email=kim@example.com"]
    (tagged / "reconciler/__init__.py").write_text('__version__ = "1.2.3rc1"\n')
    for command in ([*identity, "commit", "-qam", "Candidate"], ["push", "-q", "origin", "HEAD:next"]):
        subprocess.run(["git", *command], cwd=tagged, check=True)
    subprocess.run(["git", "update-ref", "refs/remotes/origin/main", "HEAD"], cwd=tagged, check=True)

    checked = run_release(project_root, tagged, "check", "v1.2.3rc1", {})
    released = run_release(project_root, tagged, "check", "v1.2.3", {})

    assert (checked.code, checked.outputs.get("moving")) == (0, None)
    assert "- News." in checked.log
    assert released.code == 1


def notes(clone: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", clone / ".ci/notes", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def change(clone: Path, name: str, text: str) -> None:
    (clone / ".changelog").mkdir(exist_ok=True)
    (clone / ".changelog" / name).write_text(text)


def test_changes_become_the_section_of_the_next_release(tagged: Path) -> None:
    (tagged / "reconciler/__init__.py").write_text('__version__ = "1.3.0"\n')
    change(tagged, "67.fixed.md", "One line\nand another.\n")
    change(tagged, "new-name.breaking.md", "`old` is gone.\n")
    unjoined = notes(tagged, "v1.3.0")

    ran = notes(tagged, "--join")

    section = "### Breaking\n\n- `old` is gone.\n\n### Fixed\n\n- One line\n  and another.\n"
    assert (unjoined.returncode, ran.returncode, ran.stdout) == (1, 0, section)
    text = re.sub(r" - \d{4}-\d\d-\d\d", " - DATE", (tagged / "CHANGELOG.md").read_text())
    assert text.startswith(f"# Changelog\n\n## [1.3.0] - DATE\n\n{section}\n## [1.2.3]\n\n- News.\n")
    assert list((tagged / ".changelog").iterdir()) == []
    assert notes(tagged, "v1.3.0").stdout == section


@pytest.mark.parametrize("name", ["67.md", "fixed.md", "67.feature.md", "67.fixed.txt"])
def test_change_without_a_kind_is_refused(tagged: Path, name: str) -> None:
    change(tagged, name, "More.")

    ran = notes(tagged)

    assert ran.returncode == 1
    assert name in ran.stderr


def test_next_release_has_notes(project_root: Path) -> None:
    assert notes(project_root).returncode == 0


def test_tag_of_a_commit_that_is_not_merged_is_no_release(project_root: Path, tagged: Path) -> None:
    identity = ["-c", "user.name=Kim", "-c", "user.email=kim@example.com"]
    subprocess.run(["git", *identity, "commit", "-q", "--allow-empty", "-m", "More"], cwd=tagged, check=True)

    assert run_release(project_root, tagged, "check", "v1.2.3", {}).code == 1


@pytest.mark.parametrize(("moving", "exists"), [("v1", True), ("v1", False), ("", True)])
def test_notes_are_published_and_the_tag_of_the_major_version_moves(
    project_root: Path, tagged: Path, moving: str, exists: bool
) -> None:
    (tagged / "dist").mkdir()
    (tagged / "dist/a.whl").touch()
    stub, log = tagged.parent / "bin/gh", tagged.parent / "gh.log"
    stub.parent.mkdir()
    fails = "" if exists else "case $* in *PATCH*) exit 1;; esac"
    stub.write_text(f'#!/bin/sh\necho "$@" >> {log}\n{fails}\n')
    stub.chmod(0o755)
    image = {"image": "ghcr.io/acme/a@sha256:1"}
    needs = {"check": {"outputs": {"moving": moving}}, "build": {"outputs": image}}

    ran = run_release(project_root, tagged, "notes", "v1.2.3", {"needs": needs})

    assert ran.code == 0, ran.log
    create, *moves = log.read_text().splitlines()
    assert create.startswith("release create v1.2.3 --verify-tag")
    assert create.endswith("dist/a.whl")
    assert ("--prerelease" in create, len(moves)) == (not moving, (1 if exists else 2) if moving else 0)
    move = f"api --method PATCH repos/acme/reconciler/git/refs/tags/v1 -f sha={head(tagged)} -F force=true"
    assert moves[:1] == ([move] if moving else [])
    assert (tagged / "notes.md").read_text() == "- News.\n\nImage: `ghcr.io/acme/a@sha256:1`\n"


def test_changes_after_a_release_need_the_next_version_to_be_joined(tagged: Path) -> None:
    change(tagged, "67.fixed.md", "More.")

    assert (notes(tagged).returncode, notes(tagged).stdout) == (0, "### Fixed\n\n- More.\n")
    assert notes(tagged, "--join").returncode == 1
    assert (tagged / ".changelog/67.fixed.md").exists()
