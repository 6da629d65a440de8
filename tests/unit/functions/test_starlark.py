"""Starlark in its worker: what scripts may do, and what stops them."""

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reconciler.functions.protocol import FunctionCall, FunctionRun
from reconciler.functions.runtimes.starlark import StarlarkRuntime
from reconciler.policy import FunctionPolicy

ITEM = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}}


@pytest.fixture(scope="module")
def runtime() -> Iterator[StarlarkRuntime]:
    with StarlarkRuntime(
        FunctionPolicy(timeout_s=20, memory_bytes=128 << 20, starlark_steps=2_000_000)
    ) as runtime:
        yield runtime


def run(runtime: StarlarkRuntime, source: Any, **data: str) -> FunctionRun:
    config = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"source": source, **data}}
    return runtime.run(FunctionCall(claimed="starlark", config=config, items=[ITEM]))


def test_script_runs_where_more_than_a_thousand_files_are_open() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    with contextlib.ExitStack() as stack:
        for _ in range(1100):
            stack.enter_context(Path("/dev/null").open("rb"))
        with StarlarkRuntime(FunctionPolicy(timeout_s=20)) as runtime:
            assert run(runtime, "print('a')").stderr == "a\n"


BAD = [
    ("a loop without an end", "def f():\n  for i in range(1000000000):\n    pass\nf()",
        "more than 2000000 steps"),
    ("recursion", "def f(n):\n  return f(n + 1)\nf(0)", "stack overflow"),
    ("memory", "x = list(range(100000000))", "128 MiB"),
    ("two gigabytes at once", "x = 'x' * 2000000000", "128 MiB"),
    ("ten gigabytes bit by bit", "x = ['x']\nfor i in range(40):\n  x = x + x", "128 MiB"),
    ("a gigabyte printed", "for i in range(1100):\n  print('x' * 1000000)", "128 MiB"),
    ("a gigabyte given back", "ctx.resource_list['items'] = ['x' * 1000000] * 1100", "128 MiB"),
    ("no source", "", "`source` must not be empty"),
    ("source is no text", 3, "`source` must be text"),
    ("a number beyond JSON", "ctx.resource_list['items'][0]['data']['k'] = 1 << 70",
        "a value that is no JSON"),
    ("no list left", "ctx.resource_list.pop('items')", "no list of items"),
]  # fmt: skip


@pytest.mark.parametrize(("reason", "source", "message"), BAD, ids=[case[0] for case in BAD])
def test_failed_script_is_error_result_and_next_script_runs(
    runtime: StarlarkRuntime, reason: str, source: Any, message: str
) -> None:
    result = run(runtime, source)

    assert result.items is None, reason
    assert result.exit_code == 1
    assert message in result.results[0].message
    assert run(runtime, "x = 1").items == [ITEM]


@pytest.mark.parametrize(
    "source", ["x = 3\nfor i in range(64):\n  x = x * x", "x = int('9' * 10000000)\ny = x * x"]
)
def test_large_integers_end_at_the_time_limit(source: str) -> None:
    """One step may take any time, so steps alone do not bound a script."""
    with StarlarkRuntime(FunctionPolicy(timeout_s=1, starlark_steps=2_000_000)) as impatient:
        result = run(impatient, source)

        assert result.items is None
        assert "it needs more than 1 s" in result.results[0].message


@pytest.mark.parametrize(
    "config", [None, {"apiVersion": "v1", "kind": "Secret"}, {"apiVersion": "x/v1", "kind": "StarlarkRun"}]
)
def test_function_config_of_other_kind_is_error(runtime: StarlarkRuntime, config: Any) -> None:
    result = runtime.run(FunctionCall(claimed="starlark", config=config, items=[ITEM]))

    assert "functionConfig" in result.results[0].message
