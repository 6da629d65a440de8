"""Calls of a container engine, without one: a script on the PATH records its arguments and answers."""

import json
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from reconciler.functions.protocol import FunctionCall
from reconciler.functions.runtimes.container import ContainerRuntime
from reconciler.functions.runtimes.pipelines import open_runtimes
from reconciler.policy import FunctionPolicy

DIGEST = "sha256:" + "a" * 64
ID = "sha256:" + "b" * 64
OUTPUT = "apiVersion: config.kubernetes.io/v1\nkind: ResourceList\nitems: []\n"
ENGINE = """#!{python} -S
import json, sys

with open({calls!r}, "a") as file:
    print(json.dumps(sys.argv[1:]), file=file)
answers = json.load(open({answers!r}))
code, stdout, stderr = answers.get(sys.argv[1], [0, "", ""])
sys.stdin.read() if sys.argv[1] == "run" else None
sys.stdout.write(stdout)
sys.stderr.write(stderr)
sys.exit(code)
"""
Answer = tuple[int, str, str]


class Engine:
    """A container engine with fixed answers: exit code, output and errors of each subcommand."""

    def __init__(self, directory: Path) -> None:
        self._calls, self._answers = directory / "calls", directory / "answers"
        for name in ("docker", "podman"):
            script = directory / name
            script.write_text(
                ENGINE.format(python=sys.executable, calls=str(self._calls), answers=str(self._answers))
            )
            script.chmod(script.stat().st_mode | stat.S_IXUSR)
        self.answer()

    def answer(self, **answers: Answer) -> None:
        self._answers.write_text(json.dumps(answers))

    @property
    def calls(self) -> list[list[str]]:
        lines = self._calls.read_text().splitlines() if self._calls.exists() else []
        return [json.loads(line) for line in lines]


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    monkeypatch.setenv("PATH", str(tmp_path))
    return Engine(tmp_path)


def runtime(cache: Path | None = None, **policy: Any) -> ContainerRuntime:
    return ContainerRuntime(FunctionPolicy(**{"runtime": "docker", **policy}), cache)


def digests(*names: str) -> str:
    return "".join(f"{name}@{DIGEST.replace('a', str(n))}\n" for n, name in enumerate(names)) + f"id:{ID}\n"


@pytest.mark.parametrize(
    ("reason", "image", "names", "expected"),
    [
        ("the digest of this name", "host/fn:v1", ("host/other", "host/fn"), DIGEST.replace("a", "1")),
        ("a registry with a port", "host:5000/fn:v1", ("host/fn", "host:5000/fn"), DIGEST.replace("a", "1")),
        ("an image without a digest", "host/fn:v1", (), f"id:{ID}"),
        ("digests of other names alone", "host/fn:v1", ("host/fn-two", "other/host/fn"), f"id:{ID}"),
        ("an image that was built here", "localhost/fn:v1", ("localhost/fn",), f"id:{ID}"),
    ],
)
def test_image_is_pinned_by_its_own_digest_or_id(
    engine: Engine, reason: str, image: str, names: tuple[str, ...], expected: str
) -> None:
    engine.answer(image=(0, digests(*names), ""))

    assert runtime().pull(image) == (expected, ""), reason
    assert [call[:2] for call in engine.calls] == [["pull", "--quiet"], ["image", "inspect"]]


def test_image_that_cannot_be_pulled_has_the_last_line_of_the_engine(engine: Engine) -> None:
    engine.answer(pull=(1, "", "Trying to pull host/fn:v1...\nError: access denied\n"))

    assert runtime().pull("host/fn:v1") == ("", "Error: access denied")
    assert len(engine.calls) == 1


def test_absent_image_has_the_message_of_the_engine(engine: Engine) -> None:
    engine.answer(image=(1, "", "Error: no such image\n"))

    assert runtime().digest("host/fn:v1") == ("", "Error: no such image")


@pytest.mark.parametrize(
    ("call", "policy", "inspected", "reason"),
    [
        (FunctionCall(image="host/fn:v1"), {"runtime": ""}, 0, "Containers are off"),
        (FunctionCall(exec="/bin/fn"), {}, 0, "It has no image"),
        (FunctionCall(image="host/fn:v1"), {"runtime": "nerdctl"}, 0, "nerdctl is not installed"),
        (FunctionCall(image="host/fn:v1"), {}, 0,
            "Its digest is not pinned; `reconciler functions pull` pins it"),
        (FunctionCall(image=f"host/fn@{DIGEST}"), {}, 1, f"host/fn@{DIGEST} is not on this machine"),
        (FunctionCall(image=f"host/fn@{DIGEST}"), {}, 0, ""),
        (FunctionCall(image="host/fn:v1"), {"images": {"host/fn:v1": DIGEST}}, 0, ""),
    ],
)  # fmt: skip
def test_image_runs_if_it_is_pinned_and_present(
    engine: Engine, call: FunctionCall, policy: dict[str, Any], inspected: int, reason: str
) -> None:
    engine.answer(image=(inspected, "", ""))

    assert runtime(**policy).can_run(call) == reason


@pytest.mark.parametrize(("pin", "pinned"), [(DIGEST, f"host:5000/fn@{DIGEST}"), (f"id:{ID}", ID)])
def test_pinned_image_is_the_last_argument(engine: Engine, pin: str, pinned: str) -> None:
    engine.answer(run=(0, OUTPUT, ""))

    result = runtime(images={"host:5000/fn:v1": pin}).run(FunctionCall(image="host:5000/fn:v1"))

    assert result.items == []
    ((*_, image),) = engine.calls
    assert image == pinned


@pytest.mark.parametrize(
    ("network", "isolated"), [((), True), (("host/fn",), False), (("host/other",), True)]
)
@pytest.mark.parametrize("image", ["host/fn:v1", f"host/fn@{DIGEST}"])
def test_network_is_for_named_images_whose_results_are_not_cached(
    engine: Engine, tmp_path: Path, network: tuple[str, ...], *, isolated: bool, image: str
) -> None:
    engine.answer(run=(0, OUTPUT, ""))
    container = runtime(tmp_path / "cache", network=network, images={"host/fn:v1": DIGEST})

    results = [container.run(FunctionCall(image=image)) for _ in range(2)]

    assert [result.items for result in results] == [[], []]
    assert ["--network" in call for call in engine.calls] == ([True] if isolated else [False, False])


FAILURES: list[tuple[str, Answer, str]] = [
    ("docker", (125, "", "Copying blob\nno space left"), "docker cannot start it"),
    ("docker", (126, "", ""), "The image has no program that can run"),
    ("docker", (127, "", ""), "The image has no program that can run"),
    ("podman", (255, "", ""), "It was stopped after 7 s"),
]


@pytest.mark.parametrize(("name", "answer", "error"), FAILURES)
def test_failure_of_the_engine_is_told_from_one_of_the_function(
    engine: Engine, name: str, answer: Answer, error: str
) -> None:
    engine.answer(run=answer)

    result = runtime(runtime=name, timeout_s=7, images={"host/fn:v1": DIGEST}).run(
        FunctionCall(image="host/fn:v1")
    )

    assert (result.items, result.exit_code, result.error) == (None, answer[0], error)
    assert result.stderr in ("", "no space left")
    (run, remove) = engine.calls
    assert remove[:2] == ["rm", "-f"]
    assert remove[-1] == run[run.index("--name") + 1]


def test_run_that_is_stopped_leaves_no_container(engine: Engine) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    call, policy = (
        FunctionCall(image="host/fn:v1"),
        FunctionPolicy(runtime="docker", images={"host/fn:v1": DIGEST}),
    )
    with open_runtimes(policy, check=stop) as runtimes, pytest.raises(KeyboardInterrupt):
        next(runtime for runtime in runtimes if not runtime.can_run(call)).run(call)

    remove = engine.calls[-1]
    assert remove[:2] == ["rm", "-f"]
    assert remove[-1].startswith("krm-")


def test_messages_of_the_engine_are_no_output_of_the_function(engine: Engine) -> None:
    engine.answer(run=(0, OUTPUT, "Trying to pull x\nGetting image source\nof the function\n"))

    result = runtime(images={"host/fn:v1": DIGEST}).run(FunctionCall(image="host/fn:v1"))

    assert result.stderr == "of the function"
