"""Which wheels the locked dependencies have: recorded from the package index, asked without it.

python -m tools.docs.wheels      records them anew, with `uv` on the PATH; after `make lock`
"""

import json
import re
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.tags import Tag, compatible_tags, cpython_tags, mac_platforms
from packaging.utils import canonicalize_name, parse_wheel_filename

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "tests/vectors/wheels.json"
LOCK = ROOT / "requirements-run.lock"
PYTHONS = ((3, 11), (3, 12), (3, 13), (3, 14))
_GLIBC = 28
"""Debian 10, RHEL 8 and whatever is newer."""
_MACOS = (14, 0)


class Platform(NamedTuple):
    """Where a wheel is installed: `sys_platform` and `platform_machine` of markers."""

    system: str
    machine: str

    @property
    def tags(self) -> list[str]:
        if self.system == "darwin":
            return list(mac_platforms(_MACOS, self.machine))
        older = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
        return [
            f"{name}_{self.machine}"
            for minor in range(_GLIBC, 4, -1)
            for name in (f"manylinux_2_{minor}", older.get(minor))
            if name
        ]


PLATFORMS = tuple(
    Platform(*pair)
    for pair in (("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64"), ("darwin", "x86_64"))
)


def supported_tags(python: tuple[int, int], platform: Platform) -> set[Tag]:
    """Return the tags of wheels that this Python installs there."""
    interpreter = f"cp{python[0]}{python[1]}"
    return {
        *cpython_tags(python, platforms=platform.tags),
        *compatible_tags(python, interpreter, platform.tags),
    }


def locked(python: tuple[int, int], platform: Platform) -> dict[str, str]:
    """Return the version of every locked requirement that counts there."""
    environment: dict[str, str] = {
        **{name: str(value) for name, value in default_environment().items()},
        "python_version": f"{python[0]}.{python[1]}",
        "python_full_version": f"{python[0]}.{python[1]}.0",
        "sys_platform": platform.system,
        "platform_system": {"linux": "Linux", "darwin": "Darwin"}[platform.system],
        "platform_machine": platform.machine,
    }
    return {
        canonicalize_name(requirement.name): str(requirement.specifier).removeprefix("==")
        for requirement in read_lock(LOCK.read_text())
        if requirement.marker is None or requirement.marker.evaluate(environment)
    }


def read_lock(text: str) -> Iterator[Requirement]:
    """Yield the requirements of a lock file, without their hashes."""
    for line in re.findall(r"(?m)^[A-Za-z0-9][^\\\n]*", text):
        yield Requirement(line.strip())


def missing(record: dict[str, list[str]], python: tuple[int, int], platform: Platform) -> list[str]:
    """Return the locked requirements without a wheel that this Python installs there."""
    tags = supported_tags(python, platform)
    return [
        f"{name}=={version}"
        for name, version in locked(python, platform).items()
        if not any(_fits(file, version, tags) for file in record.get(name, ()))
    ]


def _fits(file: str, version: str, tags: set[Tag]) -> bool:
    _, built, _, file_tags = parse_wheel_filename(file)
    return str(built) == version and not tags.isdisjoint(file_tags)


def main() -> None:
    """Record the names of all wheels of the locked versions."""
    with tempfile.TemporaryDirectory() as folder:
        lock = Path(folder) / "pylock.toml"
        command = ["uv", "pip", "compile", "--quiet", "--universal", "--format", "pylock.toml", "--no-header"]
        subprocess.run([*command, "-c", str(LOCK), "-o", str(lock), "pyproject.toml"], cwd=ROOT, check=True)
        packages = tomllib.loads(lock.read_text())["packages"]
    usable = set().union(*(supported_tags(python, platform) for python in PYTHONS for platform in PLATFORMS))
    wheels = {
        package["name"]: sorted(
            name
            for name in (wheel["url"].rpartition("/")[2] for wheel in package["wheels"])
            if not usable.isdisjoint(parse_wheel_filename(name)[3])
        )
        for package in packages
    }
    record = {"recorded": str(datetime.now(UTC).date()), "wheels": wheels}
    RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
