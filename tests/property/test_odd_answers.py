"""Whatever a registry answers is an error of what was asked of it: nothing breaks, neighbours get the same.

What single calls of forges and charts make of odd answers is fuzzed (`tools/fuzz/servers.py`).
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reconciler.base.reasons import Reason
from reconciler.git.repository import Mirror
from reconciler.http.client import Clock
from reconciler.policy import Limits, RegistryPolicy
from reconciler.sources.registry import RegistryClient
from reconciler.sources.sync import SyncRequest, SyncResult, find_new_versions
from tests.support.dependency_manifests import provider, world_of
from tests.support.forges.server import VirtualClock
from tests.support.registry import Answer, Asked, Gate, MemoryRegistry, serve_gate

DEEP: Any = []
for _ in range(600):
    DEEP = [{"errors": DEEP}]
VALUES = (
    None,
    True,
    -1,
    1 << 70,
    1e300,
    "",
    "\x00",
    "../..",
    "\u202e",
    "x" * 3000,
    [],
    {},
    [[]],
    [None],
    DEEP,
)
HEADERS = {
    "Location": ("//[", "https://[::1", "http://", "https://a@b/", "?"),
    "Link": ("<" * 2000, "<?x>; rel=next", '<//[>;rel="next"', "<>; rel=next"),
    "Retry-After": ("0", "-1", "9" * 400, "1e9", "Mon, 1 Jan", "Fri, 31 Dec 9999 23:59:59 +9999"),
    "RateLimit-Remaining": ("0", "0;w=x", "0;w=9", "\u0663"),
    "RateLimit-Reset": ("9" * 400, "-1", "soon"),
    "X-RateLimit-Remaining": ("0", "x"),
    "X-RateLimit-Reset": ("9" * 400, "1e9"),
    "WWW-Authenticate": ("Bearer", "basic x", 'Bearer realm="https://[::1"', 'Bearer realm="\x01"',
        "a" * 9000),
    "ETag": ("", "x", "\x01"),
    "Docker-Content-Digest": ("sha256:x", ""),
    "Content-Encoding": ("br", "gzip", "gzip, gzip", "\x01"),
}  # fmt: skip
RAW = (
    b"",
    b"\x00",
    b"<html>",
    b"HTTP/1.1 200\r\n\r\n",
    b"HTTP/9.9 200 OK\r\n\r\n{}",
    b"HTTP/1.1 999 \xff\xff\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n\xff: \xff\r\n\r\n[]",
    b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"HTTP/1.1 302 x\r\nLocation: \xff\xfe\r\n\r\n",
    b"HTTP/1.1 302 x\r\nLocation: a\r\nLocation: //[\r\n\r\n",
)


class Oddity(NamedTuple):
    """An odd answer: raw bytes, a status with odd JSON or bytes, or the right one with an odd value in it."""

    raw: bytes | None
    status: int | None
    body: bytes | None
    odd: int
    steps: list[int]
    headers: dict[str, str]

    def value(self, right: Any) -> Any:
        """Return a whole odd value, or the right one with another value where the steps lead to."""
        return VALUES[self.odd] if self.status else changed(right, self.steps, VALUES[self.odd])

    def answer(self, right: bytes) -> Answer:
        if self.raw is not None:
            return Answer(200, raw=(self.raw,))
        if self.body is not None:
            return Answer(self.status or 200, self.body, self.headers)
        with suppress(ValueError):
            data = json.dumps(self.value(json.loads(right))).encode()
            return Answer(self.status or 200, data, self.headers)
        return Answer(self.status or 200, right[::-1], self.headers)


def changed(value: Any, steps: list[int], odd: Any) -> Any:
    if not steps or not isinstance(value, dict | list) or not value:
        return odd
    keys: Any = sorted(value) if isinstance(value, dict) else range(len(value))
    at = keys[steps[0] % len(keys)]
    parts = value.items() if isinstance(value, dict) else enumerate(value)
    new = {key: changed(part, steps[1:], odd) if key == at else part for key, part in parts}
    return new if isinstance(value, dict) else list(new.values())


STATUSES = (200, 201, 206, 301, 307, 400, 401, 403, 404, 418, 422, 429, 500, 503, 999)
ODDITIES = st.builds(
    Oddity,
    st.none() | st.sampled_from(RAW),
    st.none() | st.sampled_from(STATUSES),
    st.none() | st.binary(max_size=30) | st.just(b"[" * 5000),
    st.integers(0, len(VALUES) - 1),  # hypothesis prints what it draws
    st.lists(st.integers(0, 7), max_size=5),
    st.fixed_dictionaries({}, optional={name: st.sampled_from(texts) for name, texts in HEADERS.items()}),
)
MANY = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


NAMES = ("odd", "web", "zzz")


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Gate, MemoryRegistry]]:
    with serve_gate() as gate:
        registry = MemoryRegistry()
        for name in NAMES:
            head = f"apiVersion: meta.pkg.crossplane.io/v1\nkind: Provider\nmetadata: {{name: {name}}}\n"
            registry.push_xpkg(name, "v1.0.0", head)
        yield gate, registry


def client_of(gate: Gate) -> RegistryClient:
    clock = VirtualClock(2e9)
    policy = RegistryPolicy(mirrors={"x.io": f"http://{gate.address}"}, silence_s=8, answer_s=16)
    return RegistryClient(policy, lambda _: None, clock=Clock(clock.now, clock.sleep))


def sync(gate: Gate) -> SyncResult:
    inputs = world_of("".join(provider(name, "v1.0.0") for name in NAMES))
    request = SyncRequest(inputs.installs, inputs.catalogue)
    # The odd package is asked for first, each time: its neighbours come to a client that saw nothing else.
    return find_new_versions(request, client_of(gate), Mirror, RegistryPolicy(at_once=1), Limits())


def files_of_neighbours(result: SyncResult) -> list[tuple[str, Any]]:
    return [(each.folder, each.files) for each in result.versions if "/odd/" not in each.folder]


@pytest.fixture(scope="module")
def undisturbed(served: tuple[Gate, MemoryRegistry]) -> list[tuple[str, Any]]:
    gate, gate.plan = served
    return files_of_neighbours(sync(gate))


@MANY
@given(st.sampled_from(["tags", "manifests", "blobs"]), ODDITIES)
def test_odd_answer_about_a_package_is_a_problem_of_it_alone(
    served: tuple[Gate, MemoryRegistry], undisturbed: list[tuple[str, Any]], stage: str, oddity: Oddity
) -> None:
    gate, registry = served

    def plan(asked: Asked) -> Answer | None:
        right = registry(asked)
        is_odd = right is not None and "/odd/" in asked.path and stage in asked.path
        return oddity.answer(right.body) if right is not None and is_odd else right

    gate.plan = plan
    gate.asked.clear()
    result = sync(gate)

    assert len(undisturbed) == 2
    assert files_of_neighbours(result) == undisturbed
    assert {"odd" in each.subject for each in result.problems} <= {True}
    assert Reason.DEFECT not in {each.reason for each in result.problems}
