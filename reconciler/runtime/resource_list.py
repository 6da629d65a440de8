"""A ResourceList as bytes on a function's standard input, and from its standard output."""

from typing import Any

from reconciler.functions.runtime import FunctionCall, FunctionRun
from reconciler.functions.wire import API_VERSION, KIND, parse_results
from reconciler.krm.yaml import Aliases, YamlError, YamlLimits, emit, load_documents
from reconciler.runtime.process import ProcessRun


def write_call(call: FunctionCall) -> bytes:
    """Return the ResourceList that a function reads."""
    listed: dict[str, Any] = {"apiVersion": API_VERSION, "kind": KIND, "items": list(call.items)}
    if call.config is not None:
        listed["functionConfig"] = dict(call.config)
    return f"{emit(listed)}\n".encode()


def read_run(ended: ProcessRun, output_bytes: int) -> FunctionRun:
    """Return what a function did. Total: garbage is a failed run that says so.

    Results count also where the function failed, if its output can be read.
    """
    if ended.problem:
        return FunctionRun(None, (), ended.exit_code or 1, ended.stderr, ended.problem)
    value, problem = _parse(ended.stdout, output_bytes)
    results = parse_results(value.get("results")) if value else ()
    code = ended.exit_code if ended.exit_code >= 0 else 128 - ended.exit_code
    if code:
        return FunctionRun(None, results, code, ended.stderr)
    items = value.get("items") if value else None
    if problem or not isinstance(items, list):
        why = problem or "Its output is no ResourceList with items"
        return FunctionRun(None, results, 1, ended.stderr, why)
    return FunctionRun(items, results, 0, ended.stderr)


def _parse(data: bytes, output_bytes: int) -> tuple[dict[str, Any], str]:
    if not data.strip():
        return {}, "It printed nothing: no resource was deleted"
    limits = YamlLimits(
        max_bytes=output_bytes,
        max_documents=1,
        max_nodes=2_000_000,
        max_depth=100,
        aliases=Aliases.BOUNDED,
    )
    try:
        documents = load_documents(data, limits)
    except YamlError as error:
        return {}, f"Its output is no YAML: {error.message}"
    value = documents[0].value if documents else None
    if not isinstance(value, dict) or value.get("kind") != KIND:
        return {}, f"Its output is no {KIND}"
    return value, ""
