"""The process that renders charts with Helm's own engine; it may be killed at any time.

Started alone, with no environment. A frame is msgpack with its length in four bytes before it. A chart comes
as an archive in memory: templates see the files of the chart and no others, there is no cluster behind
`lookup`, and nothing resolves names of hosts.
"""

import json
import os
import re
import resource
import signal
import sys
import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

_CACHED_CHARTS: Final = 8
"""Charts that are kept loaded."""
_SPARE_S: Final = 5
"""Time after which this process ends by itself, once another one should have killed it."""
_WORD: Final = re.compile(r"([A-Za-z0-9-]+)")
_MOST_OTHER_WORDS: Final = 8
"""Beyond these it is faster to render a chart another time."""
OLD_VERSION: Final = "v1.25.0"
"""A version of Kubernetes that a chart is rendered for as well, where that of the cluster is not known."""


def main() -> None:
    """Render charts until the input ends."""
    import helm_python  # noqa: PLC0415 - an extra; this module is imported where it may be absent

    # Limit the memory and open files of this process, and forbid it to write files.
    memory_bytes = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.chdir("/")
    charts: dict[str, Any] = {}
    last: dict[str, _Rendering] = {}
    incoming, outgoing = sys.stdin.buffer, sys.stdout.buffer
    while len(head := incoming.read(4)) == 4:  # noqa: PLR2004 - the length before each frame
        request = msgspec.msgpack.decode(incoming.read(int.from_bytes(head)))
        # Ends this process also inside of the engine, and where nobody is left to kill it.
        signal.alarm(request["seconds"] + _SPARE_S)
        try:
            digest = request["digest"]
            if digest not in charts:
                if len(charts) == _CACHED_CHARTS:
                    oldest = next(iter(charts))
                    charts.pop(oldest).close()
                    last.pop(oldest, None)
                charts[digest] = helm_python.Chart.load_archive(request["archive"])
            reply = _render(charts[digest], request, last)
        except (helm_python.HelmError, ValueError) as error:
            reply = {"error": str(error)}
        signal.alarm(0)
        body = msgspec.msgpack.encode({**reply, "kept": list(charts)})
        outgoing.write(len(body).to_bytes(4) + body)
        outgoing.flush()


class _Rendering(NamedTuple):
    """The files that a chart gave, and the words of the request."""

    words: list[str]
    files: dict[str, str]


def _render(chart: Any, request: dict[str, Any], last: dict[str, _Rendering]) -> dict[str, Any]:
    """Render a chart twice, and for an older cluster or more APIs if what the cluster has is not known.

    Once where it gives the same as the `last` time but for the words in which the values differ, such as the
    name of a cluster: that was the other time.
    """
    options = {"name": request["release"], "namespace": request["namespace"], "is_install": True}
    if request["kube_version"]:
        options["kube_version"] = request["kube_version"]
    options["api_versions"] = request["api_versions"]
    values = request["values"]
    files = _rendered(chart, values, options)
    current = _Rendering(_WORD.split(f"{values}\n{json.dumps(options)}"), files)
    is_timed = pass_a_second(files)
    other = last.get(request["digest"])
    is_alike = not is_timed and other is not None and _are_alike(current, other)
    again = files if is_alike else _rendered(chart, values, options)
    last[request["digest"]] = current
    differs = {"random": again}
    if request["asks_version"] and not request["kube_version"]:
        differs["version"] = _rendered(chart, values, options | {"kube_version": OLD_VERSION})
    if request["asks"]:
        more = [*request["api_versions"], *request["asks"]]
        differs["apis"] = _rendered(chart, values, options | {"api_versions": more})
    return {
        "files": files,
        "crds": {crd["filename"]: crd["data"] for crd in chart.crds} if request["include_crds"] else {},
        "differs": {
            name: sorted(path for path in {**files, **other} if files.get(path) != other.get(path))
            for name, other in differs.items()
        },
        "again": {path: text for path, text in again.items() if files.get(path) != text},
    }


def _are_alike(ours: _Rendering, theirs: _Rendering) -> bool:
    """Tell whether a chart gives the same but for the words that were others."""
    if len(ours.words) != len(theirs.words) or ours.files.keys() != theirs.files.keys():
        return False
    other_words = {pair for pair in zip(ours.words, theirs.words, strict=True) if pair[0] != pair[1]}
    if len(other_words) > _MOST_OTHER_WORDS:
        return False

    def renamed(text: str) -> str:
        for word, other in other_words:
            text = text.replace(word, other)
        return text

    return all(renamed(text) == theirs.files[path] for path, text in ours.files.items())


def pass_a_second(files: Mapping[str, str]) -> bool:
    """Wait for the next second where files may have the time: what differs by a second is random too."""
    now_s = time.time()
    marks = (time.strftime("%Y-%m-%d", time.gmtime(now_s)), str(int(now_s))[:7])
    is_timed = any(mark in text for text in files.values() for mark in marks)
    if is_timed:
        time.sleep(1 - now_s % 1)
    return is_timed


def _rendered(chart: Any, values: str, options: dict[str, Any]) -> dict[str, str]:
    from helm_python import _native  # noqa: PLC0415 - its `render` has no option for what the cluster serves

    files: dict[str, str] = json.loads(
        _native.call_string("helm_render", chart._raw(), values, json.dumps(options))  # noqa: SLF001
    )
    return {path: text for path, text in files.items() if text.strip() and not path.endswith("NOTES.txt")}
