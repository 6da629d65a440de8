"""Every locked dependency has a wheel where we say that nothing is compiled, by the record of the index."""

import json
import sys
from pathlib import Path

import pytest

from tools.docs.wheels import LOCK, PLATFORMS, PYTHONS, RECORD, Platform, missing, read_lock

COMPILED = {
    ((3, 14), "linux", "aarch64"): {"starlark-pyo3"},
    **{(python, "darwin", "x86_64"): {"cryptography", "starlark-pyo3"} for python in PYTHONS},
}
"""What must be compiled all the same; docs/install.md says so."""
WHEELS = json.loads(RECORD.read_text())["wheels"]


@pytest.mark.parametrize("platform", PLATFORMS, ids="-".join)
@pytest.mark.parametrize("python", PYTHONS, ids=lambda version: "{}.{}".format(*version))
def test_every_dependency_has_a_wheel(python: tuple[int, int], platform: Platform) -> None:
    compiled = COMPILED.get((python, *platform), set())

    assert {pin.partition("==")[0] for pin in missing(WHEELS, python, platform)} == compiled


def test_record_is_of_the_locked_versions() -> None:
    locked = {str(requirement.name) for requirement in read_lock(LOCK.read_text())}

    assert WHEELS.keys() == locked, "run `make lock`"
    assert len(locked) > 30


def test_wheel_of_another_version_python_or_platform_does_not_count() -> None:
    (pin,) = (pin for pin in read_lock(LOCK.read_text()) if pin.name == "orjson")
    version = str(pin.specifier).removeprefix("==")
    here = f"orjson-{version}-cp312-cp312-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
    others = [
        here.replace(version, "3.0.0"),
        here.replace("cp312", "cp313"),
        here.replace("x86_64", "aarch64"),
    ]
    linux = PLATFORMS[0]

    assert f"orjson=={version}" not in missing({"orjson": [here]}, (3, 12), linux)
    assert f"orjson=={version}" in missing({"orjson": others}, (3, 12), linux)


def test_documentation_names_what_is_compiled(project_root: Path) -> None:
    text = (project_root / "docs/install.md").read_text()

    assert all(f"`{name}`" in text for names in COMPILED.values() for name in names)
    assert sys.version_info[:2] in PYTHONS
