"""Functions in real containers: a tiny image is built here, pinned, and run through the pipeline.

Where no engine works this is skipped, except with RECONCILER_CONTAINERS=required, as CI has it.
"""

import os
import shutil
import subprocess
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from reconciler.functions.pipeline import run_pipeline
from reconciler.functions.protocol import FunctionCall
from reconciler.functions.runtimes.container import ContainerRuntime
from reconciler.functions.step import PipelineResult
from reconciler.names.objects import File
from reconciler.policy import Engine, FunctionPolicy
from tests.support.values import replace

REQUIRED = os.environ.get("RECONCILER_CONTAINERS") == "required"
BUSYBOX = shutil.which("busybox")
ARGUMENTS: tuple[tuple[str, ...], ...] = (
    (),
    ("--runtime", "runc"),
    ("--runtime", "runc", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1000:1000"),
)
"""What an engine may need: nothing, or what restricted runners do."""

SCRIPT = """#!/bin/sh
# What to do is the name of the ConfigMap value `do` in the input.
text=$(cat)
case "$text" in
*"do: label"*) echo "$text" | sed 's/^    name: web$/    name: web-from-a-container/' ;;
*"do: look"*)
  { echo "env:$(/bin/env | grep -v -e ^PWD= -e ^SHLVL= -e ^_= -e ^HOME= | sort | tr '\\n' ' ')"
    echo "user:$(id -u):$(id -g)"
    touch /here 2>/dev/null && echo "root:writable" || echo "root:read-only"
    touch /tmp/here 2>/dev/null && echo "tmp:writable" || echo "tmp:read-only"
    echo "links:$(ls /sys/class/net | tr '\\n' ' ')"
    wget -q -T 2 -O- http://192.0.2.1/ 2>/dev/null && echo "network:on" || echo "network:off"
    grep CapEff /proc/self/status
  } >&2
  echo "$text" ;;
*"do: sleep"*) sleep 600 ;;
*"do: fail"*) echo "the reason is here" >&2; exit 3 ;;
*"do: garbage"*) printf '\\t{not yaml' ;;
*"do: nothing"*) ;;
*"do: flood"*) cat /dev/zero ;;
*"do: escape"*) echo "$text" | sed "s#path: web.yaml#path: ../web.yaml#" ;;
esac
"""
IMAGE = f"localhost/reconciler-test-function-{os.getpid()}:1"
LABEL = f"reconciler-test={os.getpid()}"
"""Image and label of this test process: others may run these tests at the same time."""
WEB = b"# kept\napiVersion: v1\nkind: Service\nmetadata:\n  name: web\n"


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FunctionPolicy]:
    """An engine that works here, and the test image pinned by its digest."""
    found, why = _working(tmp_path_factory.mktemp("image"))
    if found is None:
        if REQUIRED:
            pytest.fail(f"no container engine works here, and containers are required: {why}")
        pytest.skip(f"no container engine works here: {why}")
    print(f"\ncontainers: {found.runtime} {' '.join(found.engine_arguments)}")
    yield found
    subprocess.run([found.runtime, "rmi", "-f", IMAGE], check=False, capture_output=True)


def _working(directory: Path) -> tuple[FunctionPolicy | None, str]:
    why = "docker, podman and nerdctl are not installed"
    if BUSYBOX is None:
        return None, "busybox-static is not installed: there is nothing to build an image of"
    tar = _root(directory)
    for engine in filter(shutil.which, get_args(Engine)):
        command = [engine, "import", "--change", 'ENTRYPOINT ["/function"]', str(tar), IMAGE]
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode:
            why = f"{engine} import: {made.stderr.strip()[-300:]}"
            continue
        for needed in ARGUMENTS:
            arguments = (*needed, "--label", LABEL)
            policy = FunctionPolicy(runtime=engine, engine_arguments=arguments, timeout_s=60)
            digest, why = ContainerRuntime(policy).digest(IMAGE)
            policy = replace(policy, images={IMAGE: digest})
            tried = render(policy, "label")
            if tried.ok:
                return policy, ""
            why = f"{engine} {' '.join(arguments)}: {tried.error}"
    return None, why


def _root(directory: Path) -> Path:
    binaries = directory / "root/bin"
    binaries.mkdir(parents=True)
    shutil.copy(str(BUSYBOX), binaries / "busybox")
    for name in ("sh", "cat", "ls", "id", "env", "sleep", "touch", "wget", "sed", "sort", "grep", "tr"):
        (binaries / name).symlink_to("busybox")
    (directory / "root/tmp").mkdir(mode=0o1777)
    function = directory / "root/function"
    function.write_text(SCRIPT)
    function.chmod(0o755)
    with tarfile.open(directory / "image.tar", "w") as tar:
        tar.add(directory / "root", arcname=".")
    return directory / "image.tar"


def render(policy: FunctionPolicy, what: str) -> PipelineResult:
    kptfile = (
        "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: p\npipeline:\n  mutators:\n"
        f"  - image: {IMAGE}\n    configMap:\n      do: {what}\n"
        "    selectors:\n    - kind: Service\n"
    )
    files = {"Kptfile": File.of(kptfile.encode()), "web.yaml": File.of(WEB)}
    result = run_pipeline(files, [ContainerRuntime(policy)], policy)
    if result.error:
        assert result.files == files
    return result


def containers(policy: FunctionPolicy) -> str:
    """List the containers that this process started, running or stopped."""
    listed = [policy.runtime, "ps", "-a", "--filter", f"label={LABEL}", "--format", "{{.Names}}"]
    return subprocess.run(listed, capture_output=True, text=True, check=True).stdout


def test_a_function_changes_a_resource_and_nothing_else(policy: FunctionPolicy) -> None:
    result = render(policy, "label")

    assert result.error == ""
    assert result.files["web.yaml"].data == WEB.replace(b"name: web", b"name: web-from-a-container")
    assert result.steps[0].engine == "container"


def test_it_sees_no_network_no_environment_and_writes_nothing(policy: FunctionPolicy) -> None:
    seen = render(policy, "look").steps[0].stderr.splitlines()

    assert "network:off" in seen
    assert "links:lo " in seen
    assert "user:65534:65534" in seen
    assert "root:read-only" in seen
    assert "tmp:read-only" in seen
    assert "CapEff:\t0000000000000000" in seen
    (environment,) = (line for line in seen if line.startswith("env:"))
    names = {pair.partition("=")[0] for pair in environment.removeprefix("env:").split()}
    assert names <= {"PATH", "HOSTNAME", "TERM", "container"}  # the engine's own, none of ours


def test_a_timeout_ends_the_step_and_leaves_no_container(policy: FunctionPolicy) -> None:
    begin = time.monotonic()

    result = render(replace(policy, timeout_s=3), "sleep")

    assert "3 s" in result.error
    assert time.monotonic() - begin < 60
    assert containers(policy) == ""


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("fail", "the reason is here"),
        ("garbage", "is no YAML"),
        ("nothing", "printed nothing"),
        ("flood", "larger than"),
        ("escape", "outside of package"),
    ],
)
def test_what_a_function_does_wrong_fails_its_step_alone(
    policy: FunctionPolicy, what: str, said: str
) -> None:
    result = render(replace(policy, output_bytes=1 << 20), what)

    assert said in result.error
    assert containers(policy) == ""


def test_an_image_that_is_not_pinned_is_named_and_not_run(policy: FunctionPolicy) -> None:
    result = render(replace(policy, images={}), "label")

    assert [each.function for each in result.unrunnable] == [IMAGE]
    assert "not pinned" in result.error


def test_a_pin_of_another_content_is_not_run(policy: FunctionPolicy) -> None:
    result = render(replace(policy, images={IMAGE: "sha256:" + "0" * 64}), "label")

    assert [each.function for each in result.unrunnable] == [IMAGE]


def test_the_same_image_configuration_and_input_run_once(policy: FunctionPolicy, tmp_path: Path) -> None:
    item = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}}
    call = FunctionCall(image=IMAGE, config={"data": {"do": "label"}}, items=[item])
    other = replace(call, items=[item | {"spec": {}}])
    first = ContainerRuntime(policy, tmp_path / "cache").run(call)
    gone = replace(policy, runtime="no-such-engine")

    again = ContainerRuntime(gone, tmp_path / "cache").run(call)

    assert first.items is not None
    assert again == first
    assert ContainerRuntime(gone, tmp_path / "cache").run(other).error
    assert ContainerRuntime(gone).run(call).error
