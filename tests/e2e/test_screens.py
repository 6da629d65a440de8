"""What a person sees on a terminal of two widths, and what a program gets, on six worlds, reviewed.

`pytest tests/e2e/test_screens.py --update-golden` writes `tests/goldens/screens/`.
"""

import io
import json
import re
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import pytest

from reconciler.cli.main import invoke
from tests.e2e.test_worlds import WORLDS, happen
from tests.support.schema import output_violations
from tests.support.world import World, build_world, story

GOLDENS = Path(__file__).resolve().parents[1] / "goldens/screens"
NAMES = (
    "03-upgrade-merge",
    "04-target-removed",
    "05-stalled-owner",
    "15-required-injection",
    "37-rollout-in-waves",
    "55-crossplane-tree",
)
KINDS = {
    "plan": "Plan",
    "status": "Status",
    "explain": "Explanation",
    "doctor": "Diagnosis",
    "repo": "RegisteredRepository",
    "pr": "PullRequest",
}
COLUMNS = (80, 160)
NOW = datetime(2026, 1, 4, 3, tzinfo=UTC)
"""When somebody looks: ages depend on it."""
PATH = 48
"""Characters of the path of a world."""


class Terminal(io.StringIO):
    """A standard output that claims to be a terminal."""

    def isatty(self) -> bool:
        """Tell that somebody looks."""
        return True


@pytest.fixture(scope="module", params=NAMES)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """A world after its story, at a path of the same length on every machine: lines wrap alike."""
    source = next(each for each in WORLDS if each.name == request.param)
    with TemporaryDirectory(prefix="w", dir="/tmp") as name:
        parent = Path(name).resolve() / "p"
        root = parent.with_name("p" * max(1, PATH - len(f"{parent.parent}//{source.name}"))) / source.name
        assert len(str(root)) == PATH, "the world needs a longer PATH"
        built = build_world(source, root)
        for action in story(source):
            if action[0] != "conditions" and not happen(source, built, *action):
                built.run(*action)
        yield built


def _lines(world: World) -> Iterator[tuple[str, ...]]:
    """Yield the commands, those about one package with the first package of the fleet that has one."""
    items = json.loads(world.run("status", "-o", "json").out)["items"]
    found = [item["package"] for item in items if item.get("package")]
    packages = [f"{package['repository']}/{package['name']}" for package in found if package["repository"]]
    yield ("plan",)
    yield ("status",)
    if packages:
        yield "explain", packages[0]
        yield "explain", packages[0], "--why-not", "newest", "--history"
    yield ("graph",)
    yield ("doctor",)
    yield ("repo", "list")
    yield ("pr", "list")


def _normal(text: str, world: World) -> str:
    text = text.replace(str(world.root), "<world>")
    text = re.sub(r"(?<=checksum )[0-9a-f]{12}\b|\b[0-9a-f]{64}\b", "<checksum>", text)
    text = re.sub(r"\b[0-9a-f]{40}\b", "<oid>", text)
    text = re.sub(r"\b[0-9a-f]{12}\b", "<short>", text)
    return re.sub(r"git version [\d.]+[^\"\n]*", "git version <git>", text)


def _screen(world: World, line: tuple[str, ...]) -> str:
    """Return what one command shows on a terminal, and its exit code."""
    shown = Terminal()
    with redirect_stdout(shown), redirect_stderr(shown):
        places = ["--control", str(world.control), "--cache-dir", str(world.root / "cache")]
        code = invoke([*line, *places])
    return f"$ reconciler {' '.join(line)}\n{shown.getvalue()}exit code {code}\n"


def _golden(name: str, text: str, *, update: bool) -> str:
    """Return the reviewed text of a file; with `update` it becomes this one."""
    path = GOLDENS / name
    if update:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("columns", COLUMNS)
def test_screens(world: World, monkeypatch: pytest.MonkeyPatch, columns: int, *, update_golden: bool) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr("reconciler.cli.output.time", SimpleNamespace(time=NOW.timestamp))

    screens = [_screen(world, line) for line in _lines(world)]

    text = _normal("\n".join(screens), world)
    assert [line for screen in screens for line in _too_long(screen, columns)] == []
    assert text == _golden(f"{world.root.name}-{columns}.txt", text, update=update_golden)


def _too_long(screen: str, columns: int) -> list[str]:
    """Return the lines that do not fit and could: a name or a command stays whole, as people copy it."""
    long = (line for line in screen.splitlines() if len(line) > columns)
    return [line for line in long if " " in re.sub("`[^`]*`", "", line).strip()]


def test_json_of_the_screens(world: World, *, update_golden: bool) -> None:
    # JSON of `explain` with sections has all that it has without.
    lines = [
        line for line in _lines(world) if line[0] in KINDS and (line[0] != "explain" or "--history" in line)
    ]
    outputs = {line: world.run(*line, "-o", "json").out for line in lines}

    wrong = [each for line, out in outputs.items() for each in output_violations(KINDS[line[0]], out)]
    values = {" ".join(line): json.loads(out) for line, out in outputs.items()}
    text = _normal(json.dumps(values, indent=1, sort_keys=True) + "\n", world)

    assert wrong == []
    assert text == _golden(f"{world.root.name}.json", text, update=update_golden)
