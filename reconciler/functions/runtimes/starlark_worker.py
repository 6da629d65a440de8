"""The process that runs Starlark: reads requests, writes results, and may be killed at any time.

Started alone, with no environment. A frame is JSON with its length in four bytes before it. Scripts see
nothing but their resources: the language has no files, no network and no clock, and of the modules that a
script may load only pure ones exist.
"""

import base64
import hashlib
import math
import os
import resource
import signal
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple

import orjson
import starlark
from msgspec import Struct

from reconciler.base.lazy import regex
from reconciler.base.text import plural

_DEPTH: Final = 2000
_STEPS_PER_CHECK: Final = 1000
"""Steps of the interpreter between two calls of `check_cancelled`."""
_PRELUDE: Final = "ctx = struct(resource_list=_rl, environment={}, open_api={})"
_MARK: Final = "error: "
_SPARE_S: Final = 5
"""Time after which this process ends by itself, once another one should have killed it."""
_LONGEST_MESSAGE: Final = 4000


class ScriptResult(NamedTuple):
    """The resource list that a script left, or its error, and its printed lines."""

    resource_list: dict[str, Any] | None
    error: str
    stderr: str


class _OutOfStepsError(Exception):
    """The script exceeded its steps."""


def run_script(source: str, resource_list: dict[str, Any], steps: int) -> ScriptResult:
    """Run a script on a resource list for at most `steps` steps. Total, unless the process is killed."""
    printed: list[str] = []
    module = starlark.Module()
    module["_rl"] = resource_list
    module.add_callable("print", lambda *values: printed.append(" ".join(map(_as_text, values))))
    try:
        starlark.eval(module, starlark.parse("prelude", _PRELUDE), _GLOBALS)
        script = starlark.parse("script.star", source, _DIALECT)
        options = starlark.EvalOptions(check_cancelled=_budget(steps), max_callstack_size=_DEPTH)
        starlark.eval_with(options, module, script, _GLOBALS, starlark.FileLoader(build_module))
        result = module["_rl"]
    except _OutOfStepsError:
        return ScriptResult(None, f"The script takes more than {plural(steps, 'step')}", _joined(printed))
    except (starlark.StarlarkError, TypeError, ValueError, RecursionError) as error:
        return ScriptResult(None, _message(str(error)), _joined(printed))
    return ScriptResult(result if isinstance(result, dict) else None, "", _joined(printed))


def _budget(steps: int) -> Callable[[], bool]:
    checks_left = max(1, steps // _STEPS_PER_CHECK)

    def is_spent() -> bool:
        nonlocal checks_left
        checks_left -= 1
        if checks_left < 0:
            raise _OutOfStepsError
        return False

    return is_spent


def _message(text: str) -> str:
    """Return the error itself, without the trace above it and the excerpt below."""
    start = text.rfind(f"\n{_MARK}")
    body = text[start + 1 :] if start >= 0 else text
    head, _, location = body.partition("\n --> ")
    head = head.removeprefix(_MARK).strip()
    where = location.partition("\n")[0]
    if head.startswith("fail: ") or not where:
        return head[:_LONGEST_MESSAGE]
    return f"{head[:_LONGEST_MESSAGE]} ({where})"


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value, default=str).decode()


def _joined(printed: list[str]) -> str:
    return "".join(f"{line}\n" for line in printed)


def _dialect() -> Any:
    dialect = starlark.Dialect.extended()
    for option in ("top_level_stmt", "load", "lambda", "f_strings", "keyword_only_arguments"):
        setattr(dialect, f"enable_{option}", True)
    return dialect


_DIALECT: Final = _dialect()
_GLOBALS: Final = starlark.Globals.extended_by(
    [starlark.LibraryExtension.StructType, starlark.LibraryExtension.Json]
)


def limit_process(memory_bytes: int) -> None:
    """Limit the memory and open files of this process, and forbid it to write files."""
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.chdir("/")


def main() -> None:
    """Run scripts until the input ends."""
    memory = int(sys.argv[1])
    # Imports need more memory and open files than the limits leave.
    for name in ("encoding/yaml.star", "re.star"):
        MODULES[name].prepare()
    limit_process(memory)
    incoming, outgoing = sys.stdin.buffer, sys.stdout.buffer
    while len(head := incoming.read(4)) == 4:  # noqa: PLR2004 - the length before each frame
        request = orjson.loads(incoming.read(int.from_bytes(head)))
        # Ends this process also inside of a builtin of the language, and where nobody is left to kill it.
        signal.alarm(request["seconds"] + _SPARE_S)
        body = _encoded(run_script(request["source"], request["resourceList"], request["steps"]))
        signal.alarm(0)
        outgoing.write(len(body).to_bytes(4) + body)
        outgoing.flush()


def _encoded(result: ScriptResult) -> bytes:
    try:
        return orjson.dumps(result._asdict())
    except orjson.JSONEncodeError as error:
        return orjson.dumps(
            ScriptResult(None, f"The script left a value that is no JSON: {error}", result.stderr)._asdict()
        )


_DURATION: Final = regex(r"([0-9]+(?:\.[0-9]+)?)(ns|us|ms|s|m|h)")
_SECONDS: Final = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


class StarlarkModule(Struct, frozen=True):
    """A module's name, functions and constants; `prepare` runs its imports before limits are set."""

    name: str
    functions: dict[str, Callable[..., Any]]
    constants: str = ""
    prepare: Callable[[], Any] = lambda: None


@cache
def build_module(path: str) -> Any:
    """Return the module of a path, ready to be loaded.

    Raises:
        ValueError: There is none; the message lists the modules.
    """
    module = MODULES.get(path)
    if module is None:
        raise ValueError(f"There is no module {path!r}; the modules are {', '.join(sorted(MODULES))}")
    built = starlark.Module()
    for name, function in module.functions.items():
        built.add_callable(f"_{name}", function)
    fields = [f"{name}=_{name}" for name in module.functions]
    source = f"{module.name} = struct({', '.join([*fields, *module.constants.split()])})"
    extended = starlark.Globals.extended_by([starlark.LibraryExtension.StructType])
    starlark.eval(built, starlark.parse(path, source), extended)
    return built.freeze()


def _text(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


def _json_indent(text: str, *, prefix: str = "", indent: str = "\t") -> str:
    import json  # noqa: PLC0415 - rarely used, and the worker must start fast

    lines = json.dumps(orjson.loads(text), indent=indent, ensure_ascii=False).split("\n")
    return f"\n{prefix}".join(lines)


def _variant(encoding: str) -> tuple[bool, bool]:
    """Return whether a base64 variant is URL-safe, and whether it is padded."""
    return encoding.startswith("url"), not encoding.endswith("raw")


def _base64_encode(text: str, encoding: str = "standard") -> str:
    safe, padded = _variant(encoding)
    encoded = (base64.urlsafe_b64encode if safe else base64.standard_b64encode)(_text(text)).decode()
    return encoded if padded else encoded.rstrip("=")


def _base64_decode(text: str, encoding: str = "standard") -> str:
    safe, padded = _variant(encoding)
    full = text if padded else text + "=" * (-len(text) % 4)
    return (base64.urlsafe_b64decode if safe else base64.standard_b64decode)(full).decode()


def _hash(name: str) -> Callable[[str], str]:
    return lambda text: hashlib.new(name, _text(text), usedforsecurity=False).hexdigest()


def _yaml_loads(text: str) -> Any:
    from reconciler.krm.yaml import load_documents  # noqa: PLC0415 - imported before limits, when used

    documents = load_documents(text.encode())
    return documents[0].value if documents else None


def _yaml_dumps(value: Any) -> str:
    from reconciler.krm.yaml import emit  # noqa: PLC0415 - as above

    return emit(value) + "\n"


def _pattern(text: str) -> Any:
    from reconciler.functions.patterns import compile_pattern  # noqa: PLC0415 - as above

    return compile_pattern(text)


def _re_findall(pattern: str, text: str, _flags: int = 0) -> list[Any]:
    return list(_pattern(pattern).findall(text))


def _re_split(pattern: str, text: str, maxsplit: int = 0, _flags: int = 0) -> list[str]:
    return list(_pattern(pattern).split(text, maxsplit))


def _re_sub(pattern: str, replacement: str, text: str, count: int = 0, _flags: int = 0) -> str:
    return str(_pattern(pattern).sub(replacement, text, count))


def _re_match(pattern: str, text: str, _flags: int = 0) -> list[Any]:
    matches = _pattern(pattern).finditer(text)
    return [[match.group(0), *match.groups()] for match in matches]


def _no_clock() -> None:
    raise ValueError("time.now() is not supported: the same inputs must give the same package")


def _parse_duration(text: str) -> float:
    parts = _DURATION.findall(text)
    if not parts or "".join(n + u for n, u in parts) != text.lstrip("+-"):
        raise ValueError(f"{text!r} is no duration")
    total = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    return -total if text.startswith("-") else total


def _is_gvk(item: dict[str, Any], api_version: str, kind: str) -> bool:
    return item.get("apiVersion") == api_version and item.get("kind") == kind


def _has_metadata(field: str) -> Callable[[dict[str, Any], str], bool]:
    return lambda item, value: (item.get("metadata") or {}).get(field) == value


MODULES: Final[dict[str, StarlarkModule]] = {
    "encoding/json.star": StarlarkModule(
        "json", {"encode": lambda v: orjson.dumps(v).decode(), "decode": orjson.loads, "indent": _json_indent}
    ),
    "encoding/base64.star": StarlarkModule("base64", {"encode": _base64_encode, "decode": _base64_decode}),
    "encoding/yaml.star": StarlarkModule(
        "yaml",
        {"loads": _yaml_loads, "dumps": _yaml_dumps},
        prepare=lambda: _yaml_loads(_yaml_dumps({"a": 1})),
    ),
    "hash.star": StarlarkModule("hash", {name: _hash(name) for name in ("md5", "sha1", "sha256", "sha512")}),
    "krmfn.star": StarlarkModule(
        "krmfn",
        {
            "match_gvk": _is_gvk,
            "match_name": _has_metadata("name"),
            "match_namespace": _has_metadata("namespace"),
        },
    ),
    "math.star": StarlarkModule(
        "math",
        {
            **{name: getattr(math, name) for name in ("ceil", "floor", "sqrt", "pow", "log", "exp", "fabs")},
            "round": round,
        },
        constants=f"pi={math.pi} e={math.e}",
    ),
    "re.star": StarlarkModule(
        "re",
        {"findall": _re_findall, "split": _re_split, "sub": _re_sub, "match": _re_match},
        prepare=lambda: _pattern("a"),
    ),
    "time.star": StarlarkModule(
        "time",
        {"now": _no_clock, "parse_duration": _parse_duration},
        constants="second=1.0 minute=60.0 hour=3600.0",
    ),
}
"""The modules by the path in `load`. Modules with network, files or a clock are left out."""
