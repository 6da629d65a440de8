"""Builtin functions in tests: one row is one rule about a resource before and after."""

from typing import Any, NamedTuple

import yaml

from reconciler.functions.pipeline import run_steps
from reconciler.functions.step import Stage, Step
from reconciler.names.objects import File
from reconciler.policy import FunctionPolicy


class Row(NamedTuple):
    """A rule: the configuration, the resource before and after (or the error), and the messages."""

    why: str
    config: dict[str, Any]
    before: str
    after: str
    messages: tuple[str, ...] | None = None
    compatible: bool = False


def body(*lines: str, kind: str = "ConfigMap") -> str:
    """Return a resource with lines of data; other lines follow a line without an indentation."""
    head = f"apiVersion: v1\nkind: {kind}\nmetadata:\n  name: a\n"
    return head + "".join(
        f"{line}\n" for line in (["data:"] if lines[:1] and lines[0][:1] == " " else []) + [*lines]
    )


def table(text: str) -> list[Row]:
    """Return rows of lines: why, configuration, data before and after, and messages, parted by bars.

    Lines of data are parted by semicolons, and those outside of `data` start with a dot. After an equals sign
    stands for what was there before, `none` for no messages.
    """
    return [_row(*map(str.strip, line.split(" | "))) for line in text.strip().splitlines()]


def _row(why: str, config: str, before: str, after: str, messages: str | None = None) -> Row:
    told = None if messages is None else () if messages == "none" else tuple(messages.split(" ; "))
    is_data = after != "=" and not after.startswith("error: ")
    made = _data(after) if is_data else _data(before) if after == "=" else after
    return Row(why, yaml.safe_load(f"{{{config}}}"), _data(before), made, told)


def _data(cell: str) -> str:
    """Return a resource of the cell of a table; `-` is one without data."""
    lines = [] if cell == "-" else cell.split(" ; ")
    return body(*(line[1:] if line[0] == "." else f"  {line}" for line in lines))


def of_kind(api_version: str, kind: str, *lines: str) -> str:
    return "\n".join([f"apiVersion: {api_version}", f"kind: {kind}", "metadata:", "  name: a", *lines, ""])


def config_of(kind: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": "fn.kpt.dev/v1alpha1", "kind": kind, **fields}


def render(function: str, row: Row) -> tuple[str, tuple[str, ...], str]:
    """Return the file after one step, the messages of its results, and its error."""
    files = {"r.yaml": File.of(row.before.encode())}
    step = Step("", Stage.MUTATORS, 0, image=function, config_map=row.config)
    if "kind" in row.config:
        files["fn.yaml"] = File.of(yaml.safe_dump({"metadata": {"name": "fn"}, **row.config}).encode())
        step = Step("", Stage.MUTATORS, 0, image=function, config_path="fn.yaml")
    result = run_steps(files, [step], [], FunctionPolicy(compatible=row.compatible))
    return result.files["r.yaml"].data.decode(), tuple(each.message for each in result.results), result.error


def check_row(function: str, row: Row) -> None:
    after, messages, error = render(function, row)

    if row.after.startswith("error: "):
        assert row.after.removeprefix("error: ") in error
        assert after == row.before
    else:
        assert (after, error) == (row.after, "")
    if row.messages is not None:
        assert messages == row.messages


def ids(row: Row) -> str:
    return row.why
