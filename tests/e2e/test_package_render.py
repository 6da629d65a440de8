"""`reconciler package render` and `reconciler functions` on real packages, as a user calls them."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_server import run_reconciler
from tests.support.conformance import parameters
from tests.support.corpus import ABSENT, CORPUS, corpus_package
from tests.support.schema import output_violations

BUILT_IN = (
    "repository",
    "cluster-capi-kind",
    "nephio-workload-cluster",
    "vlanindex",
    "nephio-blueprint-repo",
    "argo-cd-app",
    "flux-gitrepo-kustomize",
    "rootsync",
    "free5gc-cp",
    "pkg-example-ric",
)
NEEDS = {
    "webui": {"gen-configmap-fn"},
    "pkg-example-amf-bp": {"nfdeploy-fn", "interface-fn", "nad-fn", "dnn-fn"},
    "pkg-example-upf-bp": {"nfdeploy-fn", "interface-fn", "nad-fn", "dnn-fn"},
    "pkg-example-du-bp": {"nfdeploy-fn", "interface-fn", "nad-fn"},
    "ueransim": {"ueransim-deploy-fn", "interface-fn", "nad-fn"},
}


def reconciler(*arguments: object) -> subprocess.CompletedProcess[str]:
    return run_reconciler([str(argument) for argument in arguments])


def written(directory: Path, files: dict[str, bytes]) -> Path:
    for path, data in files.items():
        target = directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    return directory


def content(directory: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(directory)): p.read_bytes() for p in sorted(directory.rglob("*")) if p.is_file()
    }


def package(directory: Path, pipeline: str, **files: str) -> Path:
    kptfile = f"apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: p\npipeline:\n{pipeline}"
    data = {"Kptfile": kptfile.encode()} | {f"{name}.yaml": text.encode() for name, text in files.items()}
    return written(directory, data)


CONFIG_MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a   # kept\n"


def without_functions() -> list[Any]:
    found = (path.parent for path in sorted(CORPUS.rglob("Kptfile")))
    plain = (
        each
        for each in found
        if not any(b"\npipeline:" in path.read_bytes() for path in each.rglob("Kptfile"))
    )
    return parameters(((str(each.relative_to(CORPUS)), each) for each in plain), absent=ABSENT)


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_package_of_built_in_functions_renders_fully_and_stays(name: str, tmp_path: Path) -> None:
    directory = written(tmp_path / name, corpus_package(name))

    first = reconciler("package", "render", directory)
    once = content(directory)
    second = reconciler("package", "render", directory, "--detailed-exitcode")

    assert (first.returncode, first.stderr) == (0, "")
    assert (second.returncode, second.stderr) == (0, "")
    assert content(directory) == once


@pytest.mark.parametrize("name", sorted(NEEDS))
def test_a_package_of_other_functions_names_exactly_them_and_stays_as_it_was(
    name: str, tmp_path: Path
) -> None:
    directory = written(tmp_path / name, corpus_package(name))
    before = content(directory)

    said = reconciler("package", "render", directory, "--output", "json")

    assert said.returncode == 4
    assert output_violations("PackageRender", said.stdout) == []
    value = json.loads(said.stdout)
    assert {each["function"] for each in value["unrunnable"]} == {
        f"docker.io/nephio/{image}:latest" for image in NEEDS[name]
    }
    assert content(directory) == before


@pytest.mark.parametrize("directory", without_functions())
def test_a_package_without_functions_keeps_every_byte(directory: Path, tmp_path: Path) -> None:
    copy = tmp_path / "package"
    shutil.copytree(directory, copy)

    assert reconciler("package", "render", copy).returncode == 0
    assert content(copy) == content(directory)


@pytest.mark.parametrize(
    ("saves", "elsewhere"), [(False, False), (True, False), (True, True)], ids=["not", "here", "elsewhere"]
)
def test_what_was_made_before_a_failure_is_written_where_the_kptfile_says_so(
    saves: bool, elsewhere: bool, tmp_path: Path
) -> None:
    pipeline = "  mutators:\n  - image: set-labels:v0.2\n    configMap: {a: b}\n  - image: set-labels:v0.2\n"
    directory = package(tmp_path / "p", pipeline, a="apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n")
    if saves:
        kptfile = (directory / "Kptfile").read_text()
        mark = '  name: p\n  annotations:\n    kpt.dev/save-on-render-failure: "true"\n'
        (directory / "Kptfile").write_text(kptfile.replace("  name: p\n", mark))
    before = content(directory)
    out = ("--out-dir", tmp_path / "out") if elsewhere else ()

    done = reconciler("package", "render", directory, *out)

    assert done.returncode == 3
    assert not (tmp_path / "out").exists()
    if saves and not elsewhere:
        assert "changed  a.yaml\n" in done.stdout
        assert done.stdout.endswith("What was changed before is written\n")
        assert b"a: b" in content(directory)["a.yaml"]
    else:
        assert done.stdout.endswith("Nothing was written\n")
        assert content(directory) == before


def test_an_executable_runs_only_when_it_is_mapped_and_allowed(tmp_path: Path) -> None:
    directory = package(tmp_path / "p", "  mutators:\n  - exec: rename\n", map=CONFIG_MAP)
    script = tmp_path / "rename"
    script.write_text("#!/bin/sh\nPATH=/usr/bin:/bin\nsed 's/^    name: a$/    name: b/'\nenv >&2\n")
    script.chmod(0o755)
    mapped = ("--exec", f"rename={script}")

    assert reconciler("package", "render", directory, *mapped).returncode == 4
    assert reconciler("package", "render", directory, "--allow-exec").returncode == 4
    said = reconciler("package", "render", directory, "--allow-exec", *mapped)

    assert said.returncode == 0
    assert "HOME" not in said.stdout
    assert (directory / "map.yaml").read_text() == CONFIG_MAP.replace("name: a", "name: b")
