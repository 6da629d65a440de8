"""The image: what the Dockerfile promises, and, built for real, that the demo passes in it."""

import json
import os
import re
import shutil
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.ci import need
from tests.support.image import IMAGE, Engine, build, make_base, run
from tests.support.notes import note

WANTED = os.environ.get("RECONCILER_IMAGE") == "1"
BUILDS = "builds a system and an image, minutes and a gigabyte: `make image` does, in CI too"


@pytest.fixture(scope="module")
def engine(project_root: Path) -> Iterator[Engine]:
    if not WANTED:
        pytest.skip(BUILDS)
    need("podman", "runc", "debootstrap")
    root = Path(tempfile.mkdtemp(prefix="image-"))
    found = Engine(root)
    note(f"The image is built and run by {found.version()}.")
    try:
        make_base(found)
        build(found, project_root)
        yield found
    finally:
        shutil.rmtree(root, ignore_errors=True)


@pytest.mark.slow
def test_the_demo_passes_as_nobody_with_a_read_only_root(engine: Engine) -> None:
    user = run(engine, "id", "-u")
    written = run(engine, "touch", "/opt/reconciler/new")
    demo = run(engine, "sh", "-ec", "reconciler demo /tmp/demo && sh /tmp/demo/walkthrough.sh")

    assert user.stdout.strip() == "65532"
    assert (written.returncode, "Read-only file system" in written.stderr) == (1, True)
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert demo.stdout.splitlines()[-1] == "Nothing was written."


@pytest.mark.slow
def test_the_image_has_what_a_run_needs_and_no_more(engine: Engine) -> None:
    config = json.loads(engine.done("image", "inspect", IMAGE))[0]
    tools = run(engine, "sh", "-ec", "command -v git; command -v ssh; command -v reconciler").stdout.split()
    packages = run(engine, "ls", "/opt/reconciler/lib/python3.11/site-packages").stdout.split()
    environment = " ".join(config["Config"]["Env"])

    assert run(engine).stdout.startswith("Usage: reconciler")
    assert config["User"] == "65532:65532"
    assert config["Labels"]["org.opencontainers.image.version"] == "1.2.3"
    assert tools == ["/usr/bin/git", "/usr/bin/ssh", "/opt/reconciler/bin/reconciler"]
    assert not {"pytest", "mypy", "ruff", "pip", "hypothesis", "hatchling"} & set(packages)
    assert not re.search(r"(?i)proxy|cert|token|index", environment)


@pytest.mark.slow
def test_the_documented_bill_of_materials_names_what_is_inside(engine: Engine, project_root: Path) -> None:
    """docs/operations.md gives the command; both of its parts run in the image itself."""
    text = (project_root / "docs/operations.md").read_text()
    commands = re.findall(r"^docker run --rm --entrypoint (\S+) reconciler (.*?) >", text, flags=re.MULTILINE)

    told = [run(engine, entry, *words.split()).stdout for entry, words in commands]

    assert len(commands) == 2
    assert re.search(r"(?m)^git[ \t]", told[0])
    assert re.search(r"(?m)^pygit2==", told[1])


def test_no_step_names_an_architecture_a_secret_or_a_digest_nobody_looked_up(project_root: Path) -> None:
    text = (project_root / "Dockerfile").read_text()
    steps = [line for line in text.splitlines() if not line.startswith("#")]

    assert not re.search(r"amd64|arm64|x86_64|aarch64|sha256|TOKEN|PASSWORD", "\n".join(steps))
    assert text.count("FROM ${BASE_IMAGE}") == 2
    assert re.search(r"(?m)^USER 65532:65532$", text)


def test_the_context_holds_only_what_is_copied(project_root: Path) -> None:
    text = (project_root / "Dockerfile").read_text().replace("\\\n", " ")
    copied = set(re.findall(r"(?m)^COPY (?!--from)(.*) \S+$", text))
    named = {name for line in copied for name in line.split()}
    allowed = {
        line[1:] for line in (project_root / ".dockerignore").read_text().splitlines() if line.startswith("!")
    }

    assert named == allowed
    assert all((project_root / name).exists() for name in named)
    wheel = tomllib.loads((project_root / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    assert wheel["targets"]["wheel"]["force-include"].keys() <= named


def test_the_base_in_the_dockerfile_is_one_that_renovate_finds(project_root: Path) -> None:
    (manager,) = json.loads((project_root / "renovate.json").read_text())["customManagers"]
    pattern = manager["matchStrings"][0].replace("(?<", "(?P<")

    found = re.search(pattern, (project_root / "Dockerfile").read_text())

    assert found is not None
    assert (found["depName"], found["currentValue"]) == ("debian", "bookworm-slim")
