"""A command that had nothing to look at tells so in words, and one that was to look at nothing is refused."""

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.e2e.test_check import run
from tests.support.small_world import write_world
from tests.support.world import git


class Answer(NamedTuple):
    line: str
    code: int
    text: str
    other: str = ""
    """What the command prints about a fleet with packages, where nothing is to be done either."""


ANSWERS = [
    Answer("approve --all", 0, "Nothing is open: no repository is registered.", "Nothing is open."),
    Answer("pr list", 0, "There are no open pull requests: no repository is registered.",
        "There are no open pull requests."),
    Answer("lock --check", 0, "Nothing to lock: no upstream floats, and no cluster asks for a package"),
    Answer("index sync", 0, "note: No manifest and no index entry needs a package of a registry"),
    Answer("index missing", 0, "No manifest asks for a package."),
    Answer("expand", 0, "note: There is nothing to expand in manifests"),
    Answer("doctor", 0, "warning  manifests: There is no manifest, so no repository was checked",
        "manifests: 4 manifests read"),
    Answer("validate", 0, "note: There is no manifest in manifests yet: only reconciler.yaml was checked"),
    Answer("validate snapshot", 2, "error: snapshot does not exist"),
    Answer("check --base begun", 0, "Merging this changes no package: neither side has a manifest"),
    Answer(
        "check --base begun --level manifests",
        0,
        "Merging this changes no PackageVariant: neither side has a manifest, and packages were not compared",
    ),
    Answer("plan", 0, "Nothing to do: no packages"),
    Answer("status", 0, "No package is there."),
    Answer("graph", 0, "No cluster has dependencies."),
    Answer("repo list", 0, "No repository is registered."),
]  # fmt: skip


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working copy as `init` leaves it, with a commit that says nothing."""
    root = tmp_path_factory.mktemp("begun")
    assert run(root, "init", "--quiet").code == 0
    git(root, "init", "-q", "-b", "main")
    git(root, "add", ".")
    git(root, "commit", "-qm", "Begin")
    git(root, "branch", "begun")
    git(root, "commit", "-q", "--allow-empty", "-m", "Say nothing")
    return root


@pytest.fixture
def empty(begun: Path, tmp_path: Path) -> Path:
    return shutil.copytree(begun, tmp_path / "empty")


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: answer.line)
def test_answer_about_nothing_is_told_as_such(answer: Answer, empty: Path) -> None:
    said = run(empty, *answer.line.split())

    assert said.code == answer.code, said
    assert answer.text in said.out + said.err


@pytest.mark.parametrize("answer", [answer for answer in ANSWERS if answer.other], ids=lambda a: a.line)
def test_answer_about_a_fleet_has_no_such_words(answer: Answer, tmp_path: Path) -> None:
    write_world(tmp_path / "w", ("edge-1",))
    git(tmp_path, "clone", "-q", str(tmp_path / "w/control.git"), str(tmp_path / "w/copy"))

    said = run(tmp_path / "w/copy", *answer.line.split())

    assert answer.text not in said.out + said.err
    assert answer.other in said.out + said.err


@pytest.mark.parametrize(
    ("configured", "hint"),
    [("manifest", "Did you mean manifests?"), ("fleet", "Correct spec.manifests, or create it.")],
)
def test_configured_path_that_is_not_there_is_wrong(empty: Path, configured: str, hint: str) -> None:
    path = empty / "reconciler.yaml"
    path.write_text(path.read_text().replace("- manifests\n", f"- {configured}\n"))

    said = run(empty, "validate")

    assert said.code == 3
    line = path.read_text().splitlines().index(f"  - {configured}") + 1
    place = f"reconciler.yaml:{line}:5"
    assert f"{place}: ManifestUnreadable: Manifest path {configured} does not exist" in said.out
    assert f"hint: {hint}" in said.out


IDLE = """\
  registries: {mirrors: {xpkg.example: ftp://m.example}}
  risks: {registries: [""]}
  forges: [{prefix: "https://bot:pa55@git.example/", type: gitlab}]
  pullRequests: {timezone: Europe/Berln}
  commits: {sign: pgp}
  rollouts: [{waves: [{name: a, maxOpen: 0}]}]
"""


def test_every_setting_that_would_have_no_effect_is_refused_at_its_line(empty: Path) -> None:
    path = empty / "reconciler.yaml"
    text = path.read_text()
    path.write_text(text + IDLE)

    refused = run(empty, "validate")

    first, printed = len(text.splitlines()) + 1, refused.out + refused.err
    assert refused.code == 3
    assert [line for line in range(first, first + 6) if f"reconciler.yaml:{line}:" not in printed] == []
    assert "Did you mean Europe/Berlin?" in printed
    assert "pa55" not in printed
    assert "''?" not in printed


@pytest.mark.parametrize("command", ["validate", "expand", "doctor"])
def test_manifests_of_the_whole_repository_are_named_in_words(command: str, empty: Path) -> None:
    settings = (empty / "reconciler.yaml").read_text(encoding="utf-8")
    (empty / "reconciler.yaml").write_text(settings.replace("- manifests", "- ."), encoding="utf-8")
    git(empty, "commit", "-qam", "Manifests are everywhere")

    said = run(empty, command)

    assert "this repository" in said.out + said.err
