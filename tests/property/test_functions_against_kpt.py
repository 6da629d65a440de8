"""Random pipelines of executables through the real kpt and through ours: equal packages come out.

Where kpt is not installed this is skipped. 10 pipelines in the test suite, 300 by `make laws`.
"""

import os
import random
import shutil
import stat
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from reconciler.functions.pipeline import run_pipeline
from reconciler.functions.runtimes.process import ExecRuntime
from reconciler.functions.step import PipelineResult
from reconciler.krm.yaml import load_documents
from reconciler.names.objects import File, Files
from reconciler.policy import FunctionPolicy

KPT = shutil.which("kpt")
FUZZ = int(os.environ.get("RECONCILER_FUZZ", "1"))
PIPELINES = 10 if FUZZ == 1 else 30 * FUZZ

pytestmark = [pytest.mark.needs("kpt"), pytest.mark.slow]

FUNCTION = """#!{python} -I
import sys, yaml

listed = yaml.load(sys.stdin, yaml.CSafeLoader)
data = (listed.get("functionConfig") or {{}}).get("data") or {{}}
items, do = listed["items"], data.get("do")
plain = [i for i in items if i["kind"] not in ("Kptfile",) and i["metadata"]["name"] != "config"]
if do == "label":
    for item in plain:
        item["metadata"].setdefault("labels", {{}})[data["key"]] = data["value"]
elif do == "set":
    for item in plain:
        item.setdefault("data", {{}})[data["key"]] = data["value"]
elif do == "unset":
    for item in plain:
        (item.get("data") or {{}}).pop(data["key"], None)
elif do == "delete":
    items[:] = [i for i in items if i["metadata"]["name"] != data["value"]]
elif do == "add":
    new = {{"apiVersion": "v1", "kind": "Secret", "metadata": {{"name": data["value"]}}}}
    if "key" in data:
        new["metadata"]["namespace"] = data["key"]
    if not any(i["kind"] == "Secret" and i["metadata"]["name"] == data["value"] for i in items):
        items.append(new)
elif do == "list":
    for item in plain:
        item.setdefault("list", []).insert(0, data["value"])
elif do == "reorder":
    for item in plain:
        for key in sorted(item, reverse=True):
            item[key] = item.pop(key)
elif do == "configure":
    for item in items:
        if item["metadata"]["name"] == "config":
            item["data"]["value"] = data["value"]
elif do == "fail":
    sys.exit(1)
elif do == "complain":
    listed["results"] = [{{"message": "no good", "severity": "warning"}}]
elif do == "escape":
    for item in plain:
        for name in ("config.kubernetes.io/path", "internal.config.kubernetes.io/path"):
            item["metadata"]["annotations"][name] = "../out.yaml"
yaml.dump(listed, sys.stdout, yaml.CSafeDumper, sort_keys=False)
"""
SEEN: Counter[str] = Counter()


@pytest.fixture(scope="module")
def function(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("function") / "function"
    path.write_text(FUNCTION.format(python=sys.executable))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def draw_package(draw: random.Random, function: Path) -> dict[str, str]:
    """Return the files of a package, perhaps with a sub-package."""
    files = _package(draw, function, "")
    if draw.random() < 0.4:
        files |= _package(draw, function, "sub/")
    return files


def _package(draw: random.Random, function: Path, prefix: str) -> dict[str, str]:
    files = {f"{prefix}config.yaml": yaml.safe_dump(_config_resource(draw), sort_keys=False)}
    for name in ("one", "two/three"):
        documents = [_resource(draw, f"{name[:3]}-{number}") for number in range(draw.randint(1, 3))]
        files[f"{prefix}{name}.yaml"] = "---\n".join(documents)
    steps = {
        "mutators": [_step(draw, function) for _ in range(draw.randint(1, 3))],
        "validators": [_step(draw, function) for _ in range(draw.randint(0, 1))],
    }
    kptfile = {
        "apiVersion": "kpt.dev/v1",
        "kind": "Kptfile",
        "metadata": {"name": prefix.strip("/") or "root"},
        "pipeline": {stage: found for stage, found in steps.items() if found},
    }
    return files | {f"{prefix}Kptfile": yaml.safe_dump(kptfile, sort_keys=False)}


def _config_resource(draw: random.Random) -> dict[str, Any]:
    do = draw.choice(["label", "set", "list"])
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "config", "annotations": {"config.kubernetes.io/local-config": "true"}},
        "data": {"do": do, "key": "configured", "value": draw.choice(["a", "b", "3"])},
    }


def _resource(draw: random.Random, name: str) -> str:
    kind = draw.choice(["ConfigMap", "Service"])
    lines = ["apiVersion: v1", f"kind: {kind}", "metadata:", f"  name: {name}  # the name"]
    if draw.random() < 0.5:
        lines.append(f"  namespace: {draw.choice(['x', 'y'])}")
    if draw.random() < 0.5:
        lines += ["  labels:", f"    tier: {draw.choice(['front', 'back'])}"]
    if draw.random() < 0.7:
        lines += ["# about the data", "data:", "  first: a", f"  second: '{draw.randint(1, 9)}'  # quoted"]
    if draw.random() < 0.4:
        lines += ["list:", "- p", "- q  # last"]
    return "\n".join(lines) + "\n"


def _step(draw: random.Random, function: Path) -> dict[str, Any]:
    step: dict[str, Any] = {"exec": str(function)}
    if draw.random() < 0.2:
        step["configPath"] = "config.yaml"
        SEEN["configPath"] += 1
    else:
        step["configMap"] = _work(draw)
    if draw.random() < 0.5:
        step["selectors"] = [_selector(draw)]
        SEEN["selectors"] += 1
    if draw.random() < 0.3:
        step["exclude"] = [_selector(draw)]
        SEEN["exclude"] += 1
    return step


def _work(draw: random.Random) -> dict[str, str]:
    ordinary = ["label", "set", "unset", "delete", "add", "list", "reorder", "configure", "complain"]
    do = draw.choice(ordinary) if draw.random() < 0.96 else draw.choice(["fail", "escape"])
    SEEN[do] += 1
    work = {"do": do, "value": draw.choice(["one-0", "two-1", "plain", "7", "true"])}
    if do in ("label", "set", "unset") or draw.random() < 0.5:
        work["key"] = draw.choice(["first", "team"])
    return work


def _selector(draw: random.Random) -> dict[str, Any]:
    return draw.choice(
        [
            {"kind": "ConfigMap"},
            {"kind": "Service", "apiVersion": "v1"},
            {"name": "one-0"},
            {"namespace": "x"},
            {"labels": {"tier": "front"}},
            {"kind": "Kptfile"},
        ]
    )


def by_kpt(files: dict[str, str], directory: Path) -> tuple[int, Files, str]:
    for path, text in files.items():
        target = directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    command = [str(KPT), "fn", "render", str(directory), "--allow-exec"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    found = {
        str(path.relative_to(directory)): File.of(path.read_bytes())
        for path in directory.rglob("*")
        if path.is_file()
    }
    return ended.returncode, found, ended.stderr


def by_us(files: dict[str, str], function: Path) -> PipelineResult:
    policy = FunctionPolicy(exec={str(function): str(function)}, compatible=True)
    given = {path: File.of(text.encode()) for path, text in files.items()}
    return run_pipeline(given, [ExecRuntime(policy)], policy)


def documents(files: Files) -> dict[str, list[Any]]:
    return {path: [each.value for each in load_documents(files[path].data)] for path in sorted(files)}


@pytest.mark.parametrize("seed", range(PIPELINES))
def test_kpt_and_we_render_the_same(seed: int, function: Path, tmp_path: Path) -> None:
    files = draw_package(random.Random(seed), function)

    code, theirs, said = by_kpt(files, tmp_path / "package")
    ours = by_us(files, function)

    assert (1 if ours.error else 0) == code, f"{ours.error}\n{said}"
    assert documents(ours.files) == documents(theirs)


def test_enough_is_compared(function: Path) -> None:
    drawn = [draw_package(random.Random(seed), function) for seed in range(PIPELINES)]
    whole = [each for each in drawn if "do: fail" not in str(each) and "do: escape" not in str(each)]

    # Each is rendered fully by both, unless the test above fails.
    assert len(whole) >= PIPELINES * 4 // 5
    assert min(SEEN[kind] for kind in ("selectors", "exclude", "configPath", "add", "delete")) > 0, SEEN
