"""The process that runs Starlark: reads requests, answers them, and may be killed at any time.

Started alone, with no environment: frames of JSON, each with its length in four bytes before it.
Scripts see nothing but their resources: the language has no files, no network and no clock.
"""

import os
import resource
import sys
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import orjson
import starlark

from reconciler.runtime.starlark_modules import MODULES, build_module

_DEPTH: Final = 2000
_STEPS_PER_CHECK: Final = 1000
_PRELUDE: Final = "ctx = struct(resource_list=_rl, environment={}, open_api={})"
_MARK: Final = "error: "
_LONGEST_MESSAGE: Final = 4000


class Answer(NamedTuple):
    """What a script did: the resource list as it left it, or the error; and what it printed."""

    resource_list: dict[str, Any] | None
    error: str
    stderr: str


class _OutOfStepsError(Exception):
    """The script took more steps than it may."""


def run_script(source: str, resource_list: dict[str, Any], steps: int) -> Answer:
    """Run one script on a resource list, for at most `steps` steps. Total but for what kills the process."""
    printed: list[str] = []
    module = starlark.Module()
    module["_rl"] = resource_list
    module.add_callable("print", lambda *values: printed.append(" ".join(map(_shown, values))))
    try:
        starlark.eval(module, starlark.parse("prelude", _PRELUDE), _GLOBALS)
        script = starlark.parse("script.star", source, _DIALECT)
        options = starlark.EvalOptions(check_cancelled=_budget(steps), max_callstack_size=_DEPTH)
        starlark.eval_with(options, module, script, _GLOBALS, starlark.FileLoader(build_module))
        result = module["_rl"]
    except _OutOfStepsError:
        return Answer(None, f"The script takes more than {steps} steps", _joined(printed))
    except (starlark.StarlarkError, TypeError, ValueError, RecursionError) as error:
        return Answer(None, _message(str(error)), _joined(printed))
    return Answer(result if isinstance(result, dict) else None, "", _joined(printed))


def _budget(steps: int) -> Callable[[], bool]:
    left = max(1, steps // _STEPS_PER_CHECK)

    def is_spent() -> bool:
        nonlocal left
        left -= 1
        if left < 0:
            raise _OutOfStepsError
        return False

    return is_spent


def _message(text: str) -> str:
    """Return the error itself, without the trace above it and the excerpt below."""
    start = text.rfind(f"\n{_MARK}")
    body = text[start + 1 :] if start >= 0 else text
    head, _, place = body.partition("\n --> ")
    head = head.removeprefix(_MARK).strip()
    where = place.partition("\n")[0]
    if head.startswith("fail: ") or not where:
        return head[:_LONGEST_MESSAGE]
    return f"{head[:_LONGEST_MESSAGE]} ({where})"


def _shown(value: Any) -> str:
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
    """Take from this process what a script has no use for: memory, files, writing."""
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.chdir("/")


def main() -> None:
    """Answer requests until there are no more."""
    memory = int(sys.argv[1])
    for name in ("encoding/yaml.star", "re.star"):
        MODULES[name].prepare()
    limit_process(memory)
    incoming, outgoing = sys.stdin.buffer, sys.stdout.buffer
    while len(head := incoming.read(4)) == 4:  # noqa: PLR2004 - the length before each frame
        request = orjson.loads(incoming.read(int.from_bytes(head)))
        answer = run_script(request["source"], request["resourceList"], request["steps"])
        body = _encoded(answer)
        outgoing.write(len(body).to_bytes(4) + body)
        outgoing.flush()


def _encoded(answer: Answer) -> bytes:
    try:
        return orjson.dumps(answer._asdict())
    except orjson.JSONEncodeError as error:
        return orjson.dumps(
            Answer(None, f"The script left a value that is no JSON: {error}", answer.stderr)._asdict()
        )


if __name__ == "__main__":
    main()
