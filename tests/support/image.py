"""Builds the image from the Dockerfile where no registry can be reached, and runs it as a cluster would.

The base is made of Debian packages by debootstrap. Works on restricted machines: chroot isolation
to build, runc with the host's cgroups to run, copies where the storage has no overlays.
"""

import os
import subprocess
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

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
