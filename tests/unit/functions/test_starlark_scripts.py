"""What a script makes of a resource list, in this process: the worker runs the same, and may be killed."""

import hashlib
from typing import Any

import pytest

from reconciler.functions.runtimes.starlark_worker import run_script

STEPS = 1_000_000


def listed(**fields: Any) -> dict[str, Any]:
    return {"kind": "ResourceList", "items": [{"kind": "ConfigMap", "data": dict(fields)}]}


SAID = "print('seen', 1, [True])\n"


@pytest.mark.parametrize(
    ("script", "error", "seen"),
    [
        ("fail('no replicas')", "fail: no replicas", True),
        ("load('files.star', 'files')",
            "ValueError: There is no module 'files.star'; the modules are encoding/base64.star, ", True),
        ("1 +", "Parse error: unexpected new line here, expected one of ", False),
        ("nothing", "Variable `nothing` not found (script.star:2:1)", False),
        ("x = [][1]", "Index `1` is out of bound (script.star:2:5)", True),
        ("def f(n): f(n + 1)\nf(0)", "Starlark call stack overflow", True),
        ("def f():\n  for i in range(10000000): pass\nf()", "The script takes more than 2000 steps", True),
        ("fail('x' * 5000)", f"fail: {'x' * 3994}", True),
    ],
)  # fmt: skip
def test_a_script_that_fails_leaves_no_resources_and_its_own_words(
    script: str, error: str, seen: bool
) -> None:
    result = run_script(f"{SAID}{script}", listed(), 2000)

    assert result.resource_list is None
    assert result.error.startswith(error)
    assert result.stderr == ("seen 1 [true]\n" if seen else "")
    assert len(result.error) <= 4000


SENTENCE = "'a1b22'"
MODULES = {
    "encoding/json.star": {"json.decode(json.encode({'a': [1]}))": {"a": [1]},
        "json.indent('{\"a\":\"ä\"}', prefix='>', indent=' ')": '{\n> "a": "ä"\n>}'},
    "encoding/base64.star": {"base64.encode('a?>')": "YT8+", "base64.encode('a?>', 'url')": "YT8-",
        "base64.encode('a', 'standard_raw')": "YQ", "base64.decode('YQ==')": "a",
        "base64.decode('YT8-', 'url')": "a?>", "base64.decode('YQ', 'url_raw')": "a",
        "base64.decode('YWJjZGVmZw', 'standard_raw')": "abcdefg"},
    "encoding/yaml.star": {"yaml.loads(yaml.dumps({'a': ['1', 1]}))": {"a": ["1", 1]},
        "yaml.loads('')": None},
    "hash.star": {"hash.md5('a')": "0cc175b9c0f1b6a831c399e269772661",
        "hash.sha1('a')": "86f7e437faa5a7fce15d1ddcb9eaeaea377667b8", "hash.sha256('a')[:8]": "ca978112",
        "hash.sha512('a')[:8]": "1f40fc92"},
    "krmfn.star": {"krmfn.match_gvk(item, 'v1', 'ConfigMap')": True,
        "krmfn.match_gvk(item, 'v2', 'ConfigMap')": False, "krmfn.match_gvk(item, 'v1', 'Secret')": False,
        "krmfn.match_name(item, 'n')": True, "krmfn.match_namespace(item, 'n')": False,
        "krmfn.match_namespace(item, 's')": True, "krmfn.match_name({}, 'n')": False},
    "math.star": {"[math.ceil(1.5), math.floor(1.5), math.round(2.6), math.sqrt(4.0)]": [2, 1, 3, 2.0]}
    | {"math.pi > 3 and math.e < 3": True, "math.pow(2.0, 3.0)": 8.0},
    "re.star": {f"re.findall('[0-9]', {SENTENCE})": ["1", "2", "2"],
        f"re.split('[0-9]+', {SENTENCE})": ["a", "b", ""], f"re.split('[0-9]', {SENTENCE}, 1)": ["a", "b22"],
        f"re.sub('[0-9]', 'x', {SENTENCE})": "axbxx", f"re.sub('[0-9]', 'x', {SENTENCE}, 2)": "axbx2",
        f"re.match('([a-z])([0-9]+)', {SENTENCE})": [["a1", "a", "1"], ["b22", "b", "22"]]},
    "time.star": {"time.parse_duration('1h30m')": 5400.0, "time.parse_duration('-1.5s')": -1.5,
        "time.parse_duration('+2ms')": 0.002, "[time.second, time.minute, time.hour]": [1.0, 60.0, 3600.0]},
}  # fmt: skip


@pytest.mark.parametrize("path", MODULES)
def test_functions_of_a_module(path: str) -> None:
    name = path.rpartition("/")[2].removesuffix(".star")
    head = f"load('{path}', '{name}')\nitem = ctx.resource_list['items'][0]\n"
    for expression, value in MODULES[path].items():
        given = listed() | {
            "items": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "n", "namespace": "s"}}]
        }
        result = run_script(f"{head}ctx.resource_list['value'] = {expression}", given, STEPS)
        assert (result.error, (result.resource_list or {}).get("value")) == ("", value), expression


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("time.now()", "time.now() is not supported: the same inputs must give the same package"),
        ("time.parse_duration('5')", "'5' is no duration"),
        ("time.parse_duration('5 m')", "'5 m' is no duration"),
    ],
)
def test_what_a_module_refuses(script: str, error: str) -> None:
    assert error in run_script(f"load('time.star', 'time')\n{script}", listed(), STEPS).error


def test_a_script_sees_no_environment() -> None:
    assert run_script("if ctx.environment or ctx.open_api:\n  fail('leak')", listed(), STEPS).error == ""


def test_a_script_that_leaves_no_mapping_leaves_no_resources() -> None:
    assert run_script("_rl = 5", listed(), STEPS) == (None, "", "")


def test_hashes_are_made_where_they_may_secure_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(name: str, data: bytes, *, usedforsecurity: bool = True) -> Any:
        if usedforsecurity:
            raise ValueError("disabled for FIPS")
        return real(name, data)

    real = hashlib.new
    monkeypatch.setattr(hashlib, "new", refused)

    assert run_script("load('hash.star', 'hash')\nhash.md5('a')", listed(), STEPS).error == ""
