"""What a script makes of a resource list, in this process: the worker runs the same, and may be killed."""

from typing import Any

import pytest

from reconciler.functions.runtimes.process import ProcessRun, read_run
from reconciler.functions.runtimes.starlark_worker import run_script

STEPS = 1_000_000
LOADED = "load('encoding/json.star', 'json')\n"


def listed(**fields: Any) -> dict[str, Any]:
    return {"kind": "ResourceList", "items": [{"kind": "ConfigMap", "data": dict(fields)}]}


@pytest.mark.parametrize(
    ("script", "data"),
    [
        ("", {"a": "1"}),
        ("ctx.resource_list['items'][0]['data']['b'] = 2", {"a": "1", "b": 2}),
        (f"{LOADED}ctx.resource_list['items'][0]['data'] = json.decode('{{\"c\": 3}}')", {"c": 3}),
        (
            "load('math.star', 'math')\nctx.resource_list['items'][0]['data']['b'] = math.ceil(1.5)",
            {"a": "1", "b": 2},
        ),
    ],
)
def test_a_script_changes_the_resources(script: str, data: dict[str, Any]) -> None:
    result = run_script(script, listed(a="1"), STEPS)

    assert (result.error, result.stderr) == ("", "")
    assert result.resource_list == listed(**data)


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("fail('no replicas')", "fail: no replicas"),
        ("load('files.star', 'files')", "There is no module 'files.star'; the modules are "),
        ("1 +", "Parse error"),
        ("nothing", "Variable `nothing` not found"),
        ("def f():\n  for i in range(10000000): pass\nf()", "The script takes more than 2000 steps"),
    ],
)
def test_a_script_that_fails_leaves_no_resources_and_its_own_words(script: str, error: str) -> None:
    result = run_script(f"print('seen', 1)\n{script}", listed(), 2000)

    assert result.resource_list is None
    assert error in result.error
    assert result.stderr in {"seen 1\n", ""}


@pytest.mark.parametrize(
    ("output", "code", "reason"),
    [
        (b"kind: ResourceList\nitems: []\n", 0, ""),
        (b"kind: ResourceList\n", 0, "Its output is no ResourceList with items"),
        (b"kind: ResourceList\nitems: 1\n", 0, "Its output is no ResourceList with items"),
        (b"kind: ResourceList\nitems: []\n", 3, ""),
    ],
)
def test_an_output_without_items_is_a_failed_run_with_its_reason(
    output: bytes, code: int, reason: str
) -> None:
    ran = read_run(ProcessRun(code, output), 1 << 20)

    assert (ran.items, ran.error) == ([] if not (code or reason) else None, reason)
    assert ran.exit_code == (code or int(bool(reason)))
