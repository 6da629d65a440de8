"""Judges apart from the project: git checks every object, and kpt reads every package."""

import importlib.util
import io
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

import yaml

from reconciler.functions.resources import read_resources
from tests.support.conformance import PROJECT
from tests.support.git import run
from tests.support.merges import read_tree

KPT = shutil.which("kpt")
ORACLE = PROJECT.parent / "shared" / "tools" / "kpt_oracle.py"
"""The program that updates three directories with the real kpt; it is beside the project only."""
_PATH = "internal.config.kubernetes.io/path"
Listed = list[tuple[str, str, str]]
"""Resources as (file, kind, name), sorted."""


def load_kpt() -> ModuleType:
    """Return the module that runs the real kpt."""
    spec = importlib.util.spec_from_file_location("kpt_oracle", ORACLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["kpt_oracle"] = module
    spec.loader.exec_module(module)
    return module


def check_objects(repository: Path) -> None:
    """Check that git accepts every object of a repository, and that no ref or tree names an absent one."""
    run("fsck", "--strict", "--no-dangling", cwd=repository)


def check_packages(refs: Iterable[tuple[Path, str]], scratch: Path) -> int:
    """Check that kpt reads the same resources in the trees of refs as we do; return how many there are."""
    for number, (repository, ref) in enumerate(refs):
        archive = subprocess.run(["git", "archive", ref], cwd=repository, capture_output=True, check=True)
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tree:
            tree.extractall(scratch / str(number), filter="data")
    ours = read_by_us(scratch)
    assert read_by_kpt(scratch) == ours
    return len(ours)


def read_by_kpt(directory: Path) -> Listed:
    """Return the resources that kpt reads below a directory."""
    done = subprocess.run(
        [str(KPT), "fn", "source", str(directory)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    items = yaml.load(done.stdout, yaml.CSafeLoader)["items"]
    # Documents without a kind, such as those of Porter, are not shown to functions here.
    return sorted(
        (item["metadata"]["annotations"][_PATH], item["kind"], item["metadata"].get("name", ""))
        for item in items
        if "kind" in item
    )


def read_by_us(directory: Path) -> Listed:
    """Return the resources that pipelines read below a directory."""
    packages = read_resources(read_tree(directory)).resources.values()
    return sorted((each.path, each.kind, each.name) for resources in packages for each in resources)
