"""Targets for what servers answer: registries, repositories of charts, and the five forges.

An input is a list of answers. Each has a line of JSON, with the end of the path that it answers, status and
headers, and then the body as it is. The client is the product's own, with its redirects, pages, waits and
retries; only the network is none.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import httpx

from reconciler.base.errors import ReconcilerError
from reconciler.forge.api.dialect import validated
from reconciler.forge.api.forge import ApiForge
from reconciler.forge.api.products import PRODUCTS
from reconciler.forge.http import Budget, Transport
from reconciler.git.urls import Credential
from reconciler.http.client import Client, Clock
from reconciler.http.connection import Connections
from reconciler.inventory.inventory import CheckState, HeadStatus, PullRequest
from reconciler.names.ids import Oid
from reconciler.policy import ForgeKind, Limits, RegistryPolicy, WriteLimits
from reconciler.records.state import PullHistory, PullMark
from reconciler.sources.charts import fetch_chart, find_chart_version
from reconciler.sources.registry import Blob, RegistryClient
from tools.fuzz.shapes import SEPARATOR

Target = Callable[[bytes], None]
DIGEST = f"sha256:{'0' * 64}"
HEAD, OID = "drafts/web/packagevariant-1", Oid("1" * 40)
_MOST_HEADER, _MOST_REQUESTS = 60_000, 400


class _Answers(httpx.BaseTransport):
    """Answers a request with the first fitting answer that was not given yet, else with the last one."""

    def __init__(self, data: bytes) -> None:
        self.answers: list[tuple[dict[str, Any], bytes]] = []
        for part in data.split(SEPARATOR):
            head, _, body = part.partition(b"\n")
            with suppress(ValueError, RecursionError):
                read = json.loads(head)
                if isinstance(read, dict):
                    self.answers.append((read, body))
        self.given: set[int] = set()
        self.requests = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.requests += 1
        assert self.requests < _MOST_REQUESTS, "requests without an end"
        said = request.read().decode()
        fitting = [at for at, (head, _) in enumerate(self.answers) if _fits(head, request, said)]
        if not fitting:
            return httpx.Response(404, stream=httpx.ByteStream(b"{}"))
        first = self.answers[fitting[0]][0]
        pages = [at for at in fitting if all(self.answers[at][0].get(key) == first.get(key) for key in _KEYS)]
        chosen = next((at for at in pages if at not in self.given), pages[-1])
        self.given.add(chosen)
        head, body = self.answers[chosen]
        status, headers = head.get("status"), head.get("headers")
        sure = status if isinstance(status, int) and status in _PASSES else 200
        sent = [*_sent(headers)] if isinstance(headers, dict) else []
        return httpx.Response(
            sure,
            headers=sent,
            stream=httpx.ByteStream(body if request.method != "HEAD" else b""),
        )


_PASSES = range(200, 600)
"""The statuses that a parser of HTTP lets pass as that of an answer."""
_KEYS = ("path", "method", "says")


def _fits(head: dict[str, Any], request: httpx.Request, said: str) -> bool:
    """Tell whether an answer is for a request."""
    path, method, says = (str(head.get(key) or "") for key in _KEYS)
    return request.url.path.endswith(path) and method in ("", request.method) and says in said


def _sent(headers: dict[str, Any]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the headers that a parser of HTTP would let pass."""
    for name, value in headers.items():
        text = str(value).encode("utf-8", "replace")[:_MOST_HEADER]
        if name.replace("-", "").isascii() and name.replace("-", "").isalnum():
            yield name.encode(), bytes(byte for byte in text if byte not in b"\r\n\0")


def _clock() -> Clock:
    """Return a clock that only waits advance; each answer takes a moment."""
    time = [1_767_400_000.0]

    def sleep(seconds: float) -> None:
        assert 0 <= seconds <= 86_400, f"a wait of {seconds} s"
        time[0] += seconds

    return Clock(lambda: time[0], sleep)


_CONNECTIONS = Connections(1.0, {"User-Agent": "reconciler"})


def _connected(client: Client, data: bytes) -> None:
    """Let a client have its answers from an input."""
    wire: Any = _CONNECTIONS
    wire._client._transport, wire._client._mounts = _Answers(data), {}
    client._connections = wire


def registry(data: bytes) -> None:
    """Tags are sorted, a manifest and a blob have their digest, a chart has an address; or it is an error."""

    def client() -> RegistryClient:
        made = RegistryClient(RegistryPolicy(), lambda _: Credential("robot", "secret"), clock=_clock())
        _connected(made._http, data)
        return made

    with suppress(ReconcilerError):
        tags = client().tags("h.example/c/web")
        assert list(tags) == sorted({*tags})
    for reference in ("1.0.0", DIGEST):
        with suppress(ReconcilerError):
            manifest = client().manifest("h.example/c/web", reference)
            assert manifest.digest.startswith("sha")
            assert all(isinstance(blob, Blob) for blob in (*manifest.layers, *manifest.manifests))
            for blob in manifest.layers[:2]:
                client().blob("h.example/c/web", blob)
    with suppress(ReconcilerError):
        assert client().digest("h.example/c/web", "1.0.0").startswith("sha")
    for address in ("oci://h.example/c/web", "https://h.example/c/web"):
        with suppress(ReconcilerError):
            reader = client()
            found = find_chart_version(address, "", reader, Limits())
            assert fetch_chart(found, reader).address


def _forge(kind: ForgeKind) -> Target:
    name = "acme/_git/edge" if kind is ForgeKind.AZURE else "acme/edge"
    product = PRODUCTS[kind]

    def forge(data: bytes) -> None:
        """Every method returns what it declares, or raises an error that is documented."""
        for call in _CALLS:
            clock = _clock()
            budget = Budget(WriteLimits(max_wait_s=60), clock)
            token = product.token(Credential("u", "secret"))
            transport = Transport(
                "https://h.example/api/v3", token, budget, clock=clock, headers=product.headers
            )
            _connected(transport, data)
            with suppress(ReconcilerError):
                call(ApiForge(validated(product.dialect(transport, name)), transport, "fleet"))

    return forge


def _well_read(pulls: tuple[PullRequest, ...]) -> None:
    for pull in pulls:
        assert isinstance(pull.number, int)
        assert all(isinstance(text, str) for text in (pull.head, pull.title, pull.body, pull.head_oid))
        assert all(isinstance(label, str) for label in pull.labels)


def _list_known(forge: ApiForge) -> None:
    history = PullHistory(
        url="h.example/acme/edge", mark=PullMark(1, 1_767_300_000.0, 1_767_300_000.0), pulls=()
    )
    _well_read(forge.list_known("h.example/acme/edge", history, [HEAD]).pulls)


def _checks(forge: ApiForge) -> None:
    for name, state in forge.checks(OID).items():
        assert isinstance(name, str)
        assert isinstance(state, CheckState)


_DESIRED = PullRequest(
    head=HEAD,
    base="main",
    title="Update web",
    body="What changed",
    draft=True,
    head_oid=OID,
    labels=("a",),
    reviewers=("alice", "acme/team"),
    assignees=("bob",),
    status=HeadStatus("reconciler", True, "fine"),
)
_CALLS: tuple[Callable[[ApiForge], Any], ...] = (
    lambda forge: _well_read(forge.list_pulls()),
    _list_known,
    _checks,
    lambda forge: _well_read((forge.ensure(_DESIRED),)),
    lambda forge: forge.approve(1, expect=OID),
    lambda forge: forge.mark_draft(1),
    lambda forge: forge.enable_auto_merge(1, expect=OID),
    lambda forge: forge.close(1, comment="no", duplicate_of=2),
    lambda forge: forge.comment(1, key="k", body="b"),
    lambda forge: forge.write_issue("k", "Dashboard", "b"),
    lambda forge: forge.changed_at(1),
)

TARGETS: dict[str, Target] = {
    "registry": registry,
    **{f"forge-{kind.value}": _forge(kind) for kind in PRODUCTS},
}


def answers(*given: tuple[dict[str, Any], Any]) -> bytes:
    """Return an input of answers, each with its head."""
    return SEPARATOR.join(
        json.dumps(head).encode() + b"\n" + (body if isinstance(body, bytes) else json.dumps(body).encode())
        for head, body in given
    )
