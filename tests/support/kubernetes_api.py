"""As much of a cluster's API as `kubectl get` and `delete` need: discovery, and lists of given objects."""

import json
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_PLURALS = {"Repository": "repositories", "Policy": "policies"}


@contextmanager
def serve_objects(objects: list[dict[str, Any]]) -> Iterator[str]:
    """Serve objects on the loopback until the block ends; yield the address."""
    answers = _answers(objects)

    class Handler(BaseHTTPRequestHandler):
        def do_DELETE(self) -> None:
            path, _, name = self.path.partition("?")[0].rpartition("/")
            items = answers[path]["items"]
            (item,) = (item for item in items if item["metadata"]["name"] == name)
            objects.remove(item)
            answers.clear()
            answers.update(_answers(objects))
            self._answer({"kind": "Status", "apiVersion": "v1", "status": "Success"})

        def do_GET(self) -> None:
            self._answer(answers.get(self.path.partition("?")[0]))

        def _answer(self, answer: Any) -> None:
            body = json.dumps(answer or {"kind": "Status", "apiVersion": "v1", "code": 404}).encode()
            self.send_response(200 if answer else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _answers(objects: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the reply to each path: versions, groups, resources, and the objects of each of them."""
    kinds: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for value in objects:
        kinds[value["apiVersion"], value["kind"]].append(value)
    versions = sorted({version for version, _ in kinds})
    answers: dict[str, Any] = {
        "/version": {"major": "1", "minor": "31", "gitVersion": "v1.31.0"},
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": _groups(versions)},
        "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": []},
    }
    for (version, kind), items in kinds.items():
        root = f"/api/{version}" if "/" not in version else f"/apis/{version}"
        plural = _PLURALS.get(kind, f"{kind.lower()}s")
        resources = answers.setdefault(
            root, {"kind": "APIResourceList", "groupVersion": version, "resources": []}
        )
        resources["resources"].append(
            {
                "name": plural,
                "singularName": kind.lower(),
                "kind": kind,
                "namespaced": "namespace" in items[0]["metadata"],
                "verbs": ["get", "list"],
            }
        )
        for namespace in {item["metadata"].get("namespace", "") for item in items}:
            inside = [item for item in items if item["metadata"].get("namespace", "") == namespace]
            answers[f"{root}/namespaces/{namespace}/{plural}"] = _list(version, kind, inside)
        answers[f"{root}/{plural}"] = _list(version, kind, items)
    return answers


def _list(version: str, kind: str, items: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {
        "kind": f"{kind}List",
        "apiVersion": version,
        "metadata": {"resourceVersion": "1"},
        "items": items,
    }


def _groups(versions: Sequence[str]) -> list[dict[str, Any]]:
    groups: dict[str, list[dict[str, str]]] = defaultdict(list)
    for version in versions:
        if "/" in version:
            group, _, name = version.partition("/")
            groups[group].append({"groupVersion": version, "version": name})
    return [
        {"name": name, "versions": served, "preferredVersion": served[0]} for name, served in groups.items()
    ]
