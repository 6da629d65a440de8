"""Executables as functions: mapped by our configuration alone, bounded, their output never trusted."""

import resource
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from reconciler.functions.protocol import FunctionCall, FunctionRun
from reconciler.functions.runtimes.process import ExecRuntime
from reconciler.policy import FunctionPolicy

ITEM = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}


def run(directory: Path, script: str, config: dict[str, Any] | None = None, **limits: int) -> FunctionRun:
    path = directory / "function"
    path.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n")
    path.chmod(0o755)
    call = FunctionCall(exec="function", items=[ITEM], config=config)
    runtime = ExecRuntime(FunctionPolicy(exec={"function": str(path)}, **limits))
    assert runtime.can_run(call) == ""
    return runtime.run(call)


def test_items_pass_through_executable(tmp_path: Path) -> None:
    assert run(tmp_path, "cat").items == [ITEM]


def test_executable_gets_no_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", "secret")

    assert "SOME_TOKEN" not in run(tmp_path, "env >&2; cat").stderr


class Bad(NamedTuple):
    reason: str
    script: str
    limits: dict[str, int]
    code: int | None
    error: str


BAD = [
    Bad("it fails", "echo why >&2; exit 3", {}, 3, ""),
    Bad("it prints nothing", "true", {}, 1, "printed nothing"),
    Bad("it prints garbage", "printf '\\t{x'", {}, 1, "no YAML"),
    Bad("it prints another kind", "echo 'kind: List'", {}, 1, "no ResourceList"),
    Bad("it is late", "sleep 100", {"timeout_s": 1}, None, "stopped after 1 s"),
    Bad("it never ends to print", "cat /dev/zero", {"output_bytes": 1 << 16}, None, "larger than"),
    Bad("it leaves a child behind", "sleep 100 & echo x", {"timeout_s": 1}, None, "stopped after 1 s"),
    Bad("it is killed", "kill -9 $$", {}, 137, ""),
]


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.reason)
def test_failure_has_its_reason(tmp_path: Path, bad: Bad) -> None:
    result = run(tmp_path, bad.script, **bad.limits)

    assert result.items is None
    assert result.exit_code
    assert bad.code in (None, result.exit_code)
    assert bad.error in result.error


def test_large_output_is_cut_off(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    result = run(tmp_path, "head -c 1073741824 /dev/zero")

    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before  # in KiB
    assert f"larger than {FunctionPolicy().output_bytes} bytes" in result.error
    assert grown << 10 < 4 * FunctionPolicy().output_bytes


def test_alias_bomb_is_refused(tmp_path: Path) -> None:
    levels = "\n".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 12))

    result = run(tmp_path, f"cat <<'END'\nkind: ResourceList\nl0: &l0 [x]\n{levels}\nitems: []\nEND")

    assert "no YAML" in result.error


def test_unmapped_executable_does_not_run(tmp_path: Path) -> None:
    call = FunctionCall(exec=str(tmp_path / "function"))

    assert "mapped" in ExecRuntime(FunctionPolicy()).can_run(call)
    assert "absolute" in ExecRuntime(FunctionPolicy(exec={call.exec: "relative"})).can_run(call)
    assert "cannot be executed" in ExecRuntime(FunctionPolicy(exec={call.exec: "/no/such/file"})).can_run(
        call
    )
