"""The worker processes, run in this one: their frames, limits, and what the one for charts keeps."""

import io
import json
import resource
import sys
from collections.abc import Callable, Sequence
from hashlib import sha256
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import orjson
import pytest

from reconciler.functions.runtimes import helm_worker, starlark_worker

MEMORY = 77 << 20


class Worker:
    """Runs `main()` of a worker on frames, and records the limits that it sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch, self.limits = monkeypatch, dict[int, tuple[int, int]]()
        self.alarms: list[int] = []

    def ask(self, main: Callable[[], None], frames: Sequence[bytes]) -> list[bytes]:
        sent = b"".join(len(frame).to_bytes(4) + frame for frame in frames)
        answered = io.BytesIO()
        with self.monkeypatch.context() as patch:
            patch.setattr(resource, "setrlimit", self.limits.__setitem__)
            patch.setattr("signal.alarm", self.alarms.append)
            patch.setattr("os.chdir", lambda path: self.limits.update({-1: path}))
            patch.setattr(sys, "argv", ["worker", str(MEMORY)])
            patch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(sent)))
            patch.setattr(sys, "stdout", SimpleNamespace(buffer=answered))
            main()
        data, bodies = answered.getvalue(), []
        while data:
            size = 4 + int.from_bytes(data[:4])
            bodies.append(data[4:size])
            data = data[size:]
        return bodies


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Worker:
    return Worker(monkeypatch)


def test_scripts_are_run_one_after_another_within_limits(worker: Worker) -> None:
    def request(source: str) -> bytes:
        return orjson.dumps({"source": source, "resourceList": {"items": []}, "steps": 10_000, "seconds": 3})

    sources = [
        "ctx.resource_list['items'] = [1]",
        "fail('no')",
        "ctx.resource_list['items'] = [1 << 70]",
        "print('a')",
    ]

    replies = [orjson.loads(body) for body in worker.ask(starlark_worker.main, [*map(request, sources)])]

    assert [reply["resource_list"] for reply in replies] == [{"items": [1]}, None, None, {"items": []}]
    assert [reply["error"].partition(": Int")[0] for reply in replies] == [
        *("", "fail: no", "The script left a value that is no JSON", "")
    ]
    assert [reply["stderr"] for reply in replies] == ["", "", "", "a\n"]
    assert worker.alarms == [8, 0] * 4
    assert worker.limits == {
        resource.RLIMIT_AS: (MEMORY, MEMORY),
        resource.RLIMIT_FSIZE: (0, 0),
        resource.RLIMIT_NOFILE: (16, 16),
        resource.RLIMIT_CORE: (0, 0),
        -1: "/",
    }


class HelmError(Exception):
    """As the engine raises it."""


class Engine:
    """A library of Helm: a chart is its own text; its one template shows what it is rendered with."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loaded, self.closed, self.renders = list[bytes](), list[bytes](), 0
        library, native = ModuleType("helm_python"), ModuleType("helm_python._native")
        library.HelmError, library._native = HelmError, native  # type: ignore[attr-defined]
        library.Chart = SimpleNamespace(load_archive=self.load)  # type: ignore[attr-defined]
        native.call_string = self.render  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "helm_python", library)
        monkeypatch.setitem(sys.modules, "helm_python._native", native)

    def load(self, archive: bytes) -> Any:
        if archive == b"broken":
            raise HelmError("no chart")
        self.loaded.append(archive)
        crds = [{"filename": "crds/a.yaml", "data": "crd"}]
        return SimpleNamespace(crds=crds, _raw=lambda: archive, close=lambda: self.closed.append(archive))

    def render(self, function: str, chart: bytes, values: str, options: str) -> str:
        assert function == "helm_render"
        self.renders += 1
        asked = json.loads(options)
        assert asked["is_install"] is True
        shown = {"a.yaml": f"{chart!r} {values} {asked['name']} {asked['namespace']}", "empty.yaml": " \n"}
        if "random" in values:
            shown["r.yaml"] = str(self.renders)
        if "checksum" in values:
            shown["c.yaml"] = sha256(values.encode()).hexdigest()
        if "versions" in values:
            shown["v.yaml"] = asked.get("kube_version", "newest")
        if "apis" in values:
            shown["x.yaml"] = " ".join(asked["api_versions"])
        return json.dumps({**shown, "web/NOTES.txt": "notes"})


def charts(worker: Worker, *requests: dict[str, Any]) -> list[Any]:
    base = {
        "archive": b"",
        "values": "{}",
        "release": "rel",
        "namespace": "ns",
        "kube_version": "",
        "api_versions": [],
    }
    base |= {"asks_version": False, "asks": [], "include_crds": False, "seconds": 3}
    frames = [msgspec.msgpack.encode(base | request) for request in requests]
    return [msgspec.msgpack.decode(body) for body in worker.ask(helm_worker.main, frames)]


def test_a_chart_is_rendered_and_what_would_differ_elsewhere_is_named(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    Engine(monkeypatch)
    asks = {"asks_version": True, "asks": ["b/v1"], "api_versions": ["a/v1"]}

    plain, random, everything, fixed = charts(
        worker,
        {"digest": "1", "archive": b"c"},
        {"digest": "1", "values": "random", "include_crds": True},
        {"digest": "1", "values": "versions apis", **asks},
        {"digest": "1", "values": "versions apis", **asks, "kube_version": "v1.30.0", "asks": []},
    )

    assert plain == {
        "files": {"a.yaml": "b'c' {} rel ns"},
        "crds": {},
        "differs": {"random": []},
        "kept": ["1"],
        "again": {},
    }
    assert (random["differs"], random["crds"]) == ({"random": ["r.yaml"]}, {"crds/a.yaml": "crd"})
    assert everything["differs"] == {"random": [], "version": ["v.yaml"], "apis": ["x.yaml"]}
    assert {path: everything["files"][path] for path in ("v.yaml", "x.yaml")} == {
        "v.yaml": "newest",
        "x.yaml": "a/v1",
    }
    assert (fixed["files"]["v.yaml"], fixed["differs"]) == ("v1.30.0", {"random": []})
    assert worker.alarms == [8, 0] * 4
    assert worker.limits == {
        resource.RLIMIT_DATA: (MEMORY, MEMORY),
        resource.RLIMIT_FSIZE: (0, 0),
        resource.RLIMIT_NOFILE: (64, 64),
        resource.RLIMIT_CORE: (0, 0),
        -1: "/",
    }


@pytest.mark.parametrize(
    ("value", "renders", "random"), [("dev", 3, []), ("checksum", 4, []), ("random", 4, ["r.yaml"])]
)
def test_the_rendering_for_another_cluster_is_the_second_one_where_only_its_words_differ(
    value: str, renders: int, random: list[str], worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(monkeypatch)
    values = [f'{{"cluster": "{value}-{number}"}}' for number in (1, 2)]

    made = charts(worker, *({"digest": "1", "archive": b"c", "values": text} for text in values))

    assert engine.renders == renders
    assert [reply["differs"] for reply in made] == [{"random": random}] * 2
    assert [reply["files"]["a.yaml"] for reply in made] == [f"b'c' {text} rel ns" for text in values]


def test_the_last_eight_charts_are_kept_and_a_broken_one_is_an_error(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(monkeypatch)
    loads = [{"digest": str(number), "archive": b"%d" % number} for number in range(9)]

    *_, last, broken, again = charts(worker, *loads, {"digest": "x", "archive": b"broken"}, {"digest": "8"})

    assert last["kept"] == [str(number) for number in range(1, 9)]
    assert engine.closed[0] == b"0"
    assert (broken["error"], broken.get("files")) == ("no chart", None)
    assert again["files"]["a.yaml"].startswith("b'8'")
    assert len(engine.loaded) == 9
