"""A real registry on the loopback (Debian's docker-registry), images as their tools build them, and faults.

Packages are pushed over HTTP. A `Gate` stands before the registry as a proxy: it counts the requests, answers
what a test plans in place of it, and asks for tokens if it has a token service.
"""

import gzip
import hashlib
import io
import json
import os
import socket
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import NamedTuple

import httpx
import yaml

from tests.support.ci import need
from tests.support.http_server import Handler, serving

OCI = "application/vnd.oci.image"
LAYER = f"{OCI}.layer.v1.tar+gzip"
CNAB = "application/vnd.cnab.config.v1+json"
_GIVEN = Path(__file__).parents[1] / "docs/given"


class Descriptor(NamedTuple):
    digest: str
    size: int


class Registry:
    """A registry that is filled; `address` is its host and port."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.client = httpx.Client(base_url=f"http://{address}", timeout=20)

    def push_blob(self, name: str, data: bytes) -> Descriptor:
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        begun = self.client.post(f"/v2/{name}/blobs/uploads/")
        assert begun.status_code == 202, begun.text
        place = httpx.URL(begun.headers["location"]).copy_merge_params({"digest": digest})
        done = self.client.put(place, content=data, headers={"Content-Type": "application/octet-stream"})
        assert done.status_code == 201, done.text
        return Descriptor(digest, len(data))

    def push_manifest(self, name: str, value: dict[str, object], tag: str = "") -> Descriptor:
        data = json.dumps(value).encode()
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        kind = {"Content-Type": str(value["mediaType"])}
        put = self.client.put(f"/v2/{name}/manifests/{tag or digest}", content=data, headers=kind)
        assert put.status_code == 201, put.text
        return Descriptor(digest, len(data))

    def delete(self, name: str, digest: str) -> None:
        assert self.client.delete(f"/v2/{name}/manifests/{digest}").status_code == 202

    def push_xpkg(self, name: str, tag: str, package: str | bytes, *, filler: int = 0) -> str:
        """Push a package as `crossplane xpkg build` does: the annotated layer has package.yaml alone.

        Bytes are the layer itself.
        """
        base = self.push_blob(
            name, package if isinstance(package, bytes) else layer({"package.yaml": package.encode()})
        )
        other = self.push_blob(name, layer({"bin/provider": os.urandom(filler)})) if filler else None
        layers = [_described(base, LAYER, {"io.crossplane.xpkg": "base"})]
        layers = [*([_described(other, LAYER)] if other else []), *layers]
        return self._image(name, tag, layers).digest

    def push_bundle(self, name: str, tag: str, files: Mapping[str, str]) -> str:
        """Push what `imgpkg push -b` does: one layer with `.imgpkg/` and the files."""
        lock = {".imgpkg/images.yml": b"apiVersion: imgpkg.carvel.dev/v1alpha1\nkind: ImagesLock\n"}
        contents = lock | {path: text.encode() for path, text in files.items()}
        return self._image(name, tag, [_described(self.push_blob(name, layer(contents)), LAYER)]).digest

    def push_chart(self, name: str, version: str, archive: bytes) -> str:
        """Push what `helm push` does: one layer with the archive; a tag has no plus."""
        blob = self.push_blob(name, archive)
        layers = [_described(blob, "application/vnd.cncf.helm.chart.content.v1.tar+gzip")]
        return self._image(name, version.replace("+", "_"), layers).digest

    def push_cnab(self, name: str, tag: str, bundle: Mapping[str, object]) -> str:
        """Push what `porter publish` does: an index of a manifest whose configuration is bundle.json."""
        config = self.push_blob(name, json.dumps(bundle).encode())
        inner = self.push_manifest(
            name,
            {
                "schemaVersion": 2,
                "mediaType": f"{OCI}.manifest.v1+json",
                "config": _described(config, CNAB),
                "layers": [_described(config, CNAB)],
            },
        )
        invocation = self._image(name, "", [_described(self.push_blob(name, layer({"a": b"b"})), LAYER)])
        kind = f"{OCI}.manifest.v1+json"
        index = {
            "schemaVersion": 2,
            "mediaType": f"{OCI}.index.v1+json",
            "manifests": [
                _described(inner, kind, {"io.cnab.manifest.type": "config"}),
                _described(invocation, kind, {"io.cnab.manifest.type": "invocation"}),
            ],
            "annotations": {"org.opencontainers.artifactType": "application/vnd.cnab.manifest.v1"},
        }
        return self.push_manifest(name, index, tag).digest

    def _image(self, name: str, tag: str, layers: list[dict[str, object]]) -> Descriptor:
        config = self.push_blob(name, json.dumps({"architecture": "amd64", "os": "linux"}).encode())
        value = {
            "schemaVersion": 2,
            "mediaType": f"{OCI}.manifest.v1+json",
            "config": _described(config, f"{OCI}.config.v1+json"),
            "layers": layers,
        }
        return self.push_manifest(name, value, tag)


class MemoryRegistry(Registry):
    """A registry without a process: a gate with it as its plan answers what was pushed."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}

    def push_blob(self, name: str, data: bytes) -> Descriptor:
        return self._keep(f"/v2/{name}/blobs/", data)

    def push_manifest(self, name: str, value: dict[str, object], tag: str = "") -> Descriptor:
        kept = self._keep(f"/v2/{name}/manifests/", data := json.dumps(value).encode())
        if tag:
            self.content[f"/v2/{name}/manifests/{tag}"] = data
        return kept

    def _keep(self, place: str, data: bytes) -> Descriptor:
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        self.content[f"{place}{digest}"] = data
        return Descriptor(digest, len(data))

    def __call__(self, asked: "Asked") -> "Answer | None":
        path = asked.path.partition("?")[0]
        manifests = f"{path.removesuffix('tags/list')}manifests/"
        tags = [p.removeprefix(manifests) for p in self.content if p.startswith(manifests) and ":" not in p]
        if path.endswith("/tags/list") and tags:
            return Answer(200, json.dumps({"tags": tags}).encode())
        return Answer(200, self.content[path]) if path in self.content else None


def publish(registry: Registry, name: str) -> None:
    """Push the images of `tests/docs/given/NAME.yaml`, as the tools of each ecosystem build them."""
    for image in yaml.safe_load((_GIVEN / f"{name}.yaml").read_text(encoding="utf-8")):
        if "xpkg" in image:
            registry.push_xpkg(image["xpkg"], image["tag"], image["package"])
        elif "imgpkg" in image:
            registry.push_bundle(image["imgpkg"], image["tag"], image["files"])
        else:
            registry.push_cnab(image["cnab"], image["tag"], image["bundle"])


def _described(
    blob: Descriptor, media_type: str, annotations: Mapping[str, str] | None = None
) -> dict[str, object]:
    described: dict[str, object] = {"mediaType": media_type, "digest": blob.digest, "size": blob.size}
    return described | ({"annotations": dict(annotations)} if annotations else {})


def layer(files: Mapping[str, bytes]) -> bytes:
    """Return a layer: a tar archive, packed, the same for the same files."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        for path, data in files.items():
            info = tarfile.TarInfo(path)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return gzip.compress(plain.getvalue(), mtime=0)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextmanager
def serve_registry(directory: Path) -> Iterator[Registry]:
    """Run a registry with its content in a directory."""
    need("docker-registry")
    address = f"127.0.0.1:{free_port()}"
    config = directory / "registry.yml"
    storage = {"filesystem": {"rootdirectory": str(directory / "registry")}, "delete": {"enabled": True}}
    settings = {"version": 0.1, "log": {"level": "error"}, "storage": storage, "http": {"addr": address}}
    config.write_text(json.dumps(settings))
    with (directory / "registry.log").open("wb") as log:
        process = subprocess.Popen(["docker-registry", "serve", str(config)], stdout=log, stderr=log)
        try:
            for _ in range(200):
                try:
                    httpx.get(f"http://{address}/v2/")
                    break
                except httpx.TransportError:
                    time.sleep(0.05)
            registry = Registry(address)
            with registry.client:
                yield registry
        finally:
            process.terminate()
            process.wait(10)


class Asked(NamedTuple):
    """One request: its method, its path with the query, and its Authorization."""

    method: str
    path: str
    authorization: str = ""
    etag: str = ""
    body: bytes = b""


class Answer(NamedTuple):
    """An answer in place of the registry's; `cut` ends the connection before all of it is sent.

    The parts of a `raw` one are sent as they are, with a pause after each, and the connection ends.
    """

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = {}
    cut: bool = False
    raw: tuple[bytes, ...] = ()
    pause_s: float = 0.0


@dataclass
class Gate:
    """The proxy before a registry: `plan` may answer a request itself."""

    address: str = ""
    behind: str = ""
    plan: Callable[[Asked], Answer | None] = lambda _: None
    asked: list[Asked] = field(default_factory=list)

    def paths(self) -> list[str]:
        return [asked.path for asked in self.asked]


@contextmanager
def serve_gate(behind: str = "") -> Iterator[Gate]:
    """Run a proxy before a registry, or alone."""
    gate = Gate(behind=behind)

    class Proxy(Handler, BaseHTTPRequestHandler):
        disable_nagle_algorithm = True  # else each answer waits 40 ms for the acknowledgement of its headers

        def do_GET(self) -> None:
            headers = self.headers
            asked = Asked(
                self.command,
                self.path,
                headers.get("Authorization", ""),
                headers.get("If-None-Match", ""),
                self.rfile.read(int(headers.get("Content-Length") or 0)),
            )
            gate.asked.append(asked)
            answer = gate.plan(asked) or self.forwarded()
            for part in answer.raw:
                self.wfile.write(part)
                time.sleep(answer.pause_s)
            if answer.raw:
                self.close_connection = True
                return
            self.send_response(answer.status)
            for key, value in {"Content-Length": str(len(answer.body)), **answer.headers}.items():
                self.send_header(key, value)
            self.end_headers()
            body = b"" if self.command == "HEAD" else answer.body
            if answer.cut:
                self.wfile.write(body[: len(body) // 2])
                self.close_connection = True
                return
            self.wfile.write(body)

        do_POST = do_HEAD = do_GET  # noqa: N815 - http.server's name

        def forwarded(self) -> Answer:
            if not gate.behind:
                return Answer(404, b'{"errors": [{"code": "NAME_UNKNOWN", "message": "not known"}]}')
            kept = {k: v for k, v in self.headers.items() if k.lower() not in {"host", "authorization"}}
            reply = httpx.request(self.command, f"http://{gate.behind}{self.path}", headers=kept)
            passed = {
                k: v
                for k, v in reply.headers.items()
                if k.lower() in {"content-type", "docker-content-digest", "etag", "link"}
            }
            if self.command == "HEAD":
                passed["Content-Length"] = reply.headers.get("content-length", "0")
            return Answer(reply.status_code, reply.content, passed)

    with serving(Proxy) as gate.address:
        yield gate
