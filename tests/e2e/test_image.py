"""The image: what the Dockerfile promises, and, built for real, that the demo passes in it."""

import json
import os
import re
import shutil
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

from tests.support.ci import need
from tests.support.notes import note

SUITE = "bookworm"
PACKAGES = "ca-certificates,git,openssh-client,python3,python3-venv"
BASE, IMAGE = "localhost/base:test", "localhost/reconciler:test"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


@dataclass
class Engine:
    """podman with a storage of its own below `root`, which the caller removes."""

    root: Path

    @cached_property
    def driver(self) -> str:
        """Overlays where the kernel and the disk have them; else every layer is a copy of the system."""
        return "overlay" if self._run("overlay", "info", timeout_s=60).returncode == 0 else "vfs"

    def __call__(self, *arguments: str | Path, timeout_s: float = 600) -> subprocess.CompletedProcess[str]:
        return self._run(self.driver, *arguments, timeout_s=timeout_s)

    def _run(self, driver: str, *arguments: str | Path, timeout_s: float) -> subprocess.CompletedProcess[str]:
        place = self.root / driver
        storage = [
            "--root",
            str(place / "store"),
            "--runroot",
            str(place / "run"),
            "--storage-driver",
            driver,
        ]
        return subprocess.run(
            ["podman", *storage, "--runtime", "runc", "--cgroup-manager", "cgroupfs", *map(str, arguments)],
            env={**os.environ, "TMPDIR": str(self.root)},
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )

    def done(self, *arguments: str | Path) -> str:
        """Run a command that must not fail; return what it printed."""
        ran = self(*arguments)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    def version(self) -> str:
        """Say which engine this is."""
        told = "podman {{.Version.Version}}, {{.Host.OCIRuntime.Name}}, {{.Store.GraphDriverName}}"
        return self.done("info", "--format", told).strip()


def make_base(engine: Engine) -> None:
    """Make the base image of Debian packages."""
    system = engine.root / "system"
    command = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(system)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr
    left_out = (
        "./dev",
        "./proc",
        "./var/cache/apt",
        "./var/lib/apt/lists",
        "./usr/share/doc",
        "./usr/share/locale",
    )
    archive = engine.root / "base.tar"
    command = [
        "tar",
        "-C",
        str(system),
        *(f"--exclude={path}/*" for path in left_out),
        "-cf",
        str(archive),
        ".",
    ]
    subprocess.run(command, check=True)
    engine.done("import", archive, BASE)
    archive.unlink()


def build(engine: Engine, project: Path) -> None:
    """Build the Dockerfile as it stands on that base."""
    trust: list[str] = []
    if "PIP_CERT" in os.environ or "SSL_CERT_FILE" in os.environ:
        # A machine that trusts an authority of its own lets the build trust it too.
        pip = engine.root / "pip.conf"
        pip.write_text(f"[global]\ncert = {CERTIFICATES}\n")
        trust = ["--volume", "/etc/ssl/certs:/etc/ssl/certs:ro", "--volume", f"{pip}:/etc/pip.conf:ro"]
    # Without layers: each would be a copy of the whole system where there is no overlay.
    network = ["--isolation", "chroot", "--network", "host", "--layers=false"]
    arguments = ["--build-arg", f"BASE_IMAGE={BASE}", "--build-arg", "VERSION=1.2.3", "--tag", IMAGE]
    engine.done("build", *network, *trust, *arguments, project)


def run(engine: Engine, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the image, as deploy/ does: no root, nothing to write but /tmp; and no network."""
    locked = ["--read-only", "--tmpfs", "/tmp:mode=1777", "--cap-drop", "all"]
    locked += ["--security-opt", "no-new-privileges", "--network", "none"]
    bounds = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1000:1000"]
    entry = ["--entrypoint", command[0]] if command else []
    return engine("run", "--rm", *locked, *bounds, *entry, IMAGE, *command[1:])


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
    """docs/install.md gives the command; both of its parts run in the image itself."""
    text = (project_root / "docs/install.md").read_text()
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
