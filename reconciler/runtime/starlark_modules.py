"""The modules that a Starlark script may load: pure ones only."""

import base64
import hashlib
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import orjson
import starlark

_DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ns|us|ms|s|m|h)")
_SECONDS: Final = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class StarlarkModule:
    """A module: its one name, and what it holds. `prepare` imports what it needs before limits are set."""

    name: str
    functions: dict[str, Callable[..., Any]]
    constants: str = ""
    prepare: Callable[[], Any] = lambda: None


@cache
def build_module(path: str) -> Any:
    """Return the module of a path, ready to be loaded.

    Raises:
        ValueError: There is none; the text says which ones there are.
    """
    module = MODULES.get(path)
    if module is None:
        raise ValueError(f"There is no module {path!r} here; there are {', '.join(sorted(MODULES))}")
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
    found = (base64.urlsafe_b64encode if safe else base64.standard_b64encode)(_text(text)).decode()
    return found if padded else found.rstrip("=")


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
    found = _pattern(pattern)
    return [[each.group(0), *each.groups()] for each in found.finditer(text)]


def _no_clock() -> None:
    raise ValueError("time.now() is not here: the same inputs must give the same package")


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
        "json",
        {"encode": lambda v: orjson.dumps(v).decode(), "decode": orjson.loads, "indent": _json_indent},
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
"""By the path that `load` names. Modules with network, files or a clock are not here."""
