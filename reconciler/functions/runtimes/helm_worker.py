"""The process that renders charts with Helm's own engine; it may be killed at any time.

Started alone, with no environment. A frame is msgpack with its length in four bytes before it. A chart comes
as an archive in memory: templates see the files of the chart and no others, there is no cluster behind
`lookup`, and nothing resolves names of hosts.
"""

import json
import os
import resource
import signal
import sys
import time
from collections.abc import Mapping
from typing import Any, Final

import msgspec

_CACHED_CHARTS: Final = 8
"""Charts that are kept loaded."""
_SPARE_S: Final = 5
"""Time after which this process ends by itself, once another one should have killed it."""
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
    incoming, outgoing = sys.stdin.buffer, sys.stdout.buffer
    while len(head := incoming.read(4)) == 4:  # noqa: PLR2004 - the length before each frame
        request = msgspec.msgpack.decode(incoming.read(int.from_bytes(head)))
        # Ends this process also inside of the engine, and where nobody is left to kill it.
        signal.alarm(request["seconds"] + _SPARE_S)
        try:
            digest = request["digest"]
            if digest not in charts:
                if len(charts) == _CACHED_CHARTS:
                    charts.pop(next(iter(charts))).close()
                charts[digest] = helm_python.Chart.load_archive(request["archive"])
            reply = _render(charts[digest], request)
        except (helm_python.HelmError, ValueError) as error:
            reply = {"error": str(error)}
        signal.alarm(0)
        body = msgspec.msgpack.encode({**reply, "kept": list(charts)})
        outgoing.write(len(body).to_bytes(4) + body)
        outgoing.flush()


def _render(chart: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Render a chart twice, and for an older cluster or more APIs if what the cluster has is not known."""
    options = {"name": request["release"], "namespace": request["namespace"], "is_install": True}
    if request["kube_version"]:
        options["kube_version"] = request["kube_version"]
    options["api_versions"] = request["api_versions"]
    values = request["values"]
    files = _rendered(chart, values, options)
    pass_a_second(files)
    again = _rendered(chart, values, options)
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


def pass_a_second(files: Mapping[str, str]) -> None:
    """Wait for the next second where files may have the time: what differs by a second is random too."""
    now_s = time.time()
    marks = (time.strftime("%Y-%m-%d", time.gmtime(now_s)), str(int(now_s))[:7])
    if any(mark in text for text in files.values() for mark in marks):
        time.sleep(1 - now_s % 1)


def _rendered(chart: Any, values: str, options: dict[str, Any]) -> dict[str, str]:
    from helm_python import _native  # noqa: PLC0415 - its `render` has no option for what the cluster serves

    files: dict[str, str] = json.loads(
        _native.call_string("helm_render", chart._raw(), values, json.dumps(options))  # noqa: SLF001
    )
    return {path: text for path, text in files.items() if text.strip() and not path.endswith("NOTES.txt")}
