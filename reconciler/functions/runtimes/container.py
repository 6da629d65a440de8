"""Functions in containers: pinned by digest, without network, files and privileges, within a time limit."""

import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from reconciler.functions.protocol import FunctionCall, FunctionRun
from reconciler.functions.runtimes.process import ProcessRun, read_run, run_process, write_call
from reconciler.functions.runtimes.result_cache import ImageCache
from reconciler.policy import FunctionPolicy

_ENVIRONMENT: Final = (
    "PATH",
    "HOME",
    "DOCKER_HOST",
    "CONTAINER_HOST",
    "XDG_RUNTIME_DIR",
    "DOCKER_CONFIG",
    "CONTAINERS_CONF",
)
# Exit codes of `docker run` and `podman run` that are not the function's own.
_ENGINE_FAILED: Final = 125
_NOT_RUNNABLE: Final = (126, 127)
_TIMED_OUT: Final = 255
_QUICK_S: Final = 60
_PULL_S: Final = 900
_ENGINE_OUTPUT: Final = 1 << 20


class ContainerRuntime:
    """Runs pinned images by a container engine. Off unless an engine is configured."""

    def __init__(
        self, policy: FunctionPolicy, cache: Path | None = None, check: Callable[[], None] = lambda: None
    ) -> None:
        self._policy = policy
        self._results = ImageCache(cache)
        self._check = check
        self._present: dict[str, str] = {}

    @property
    def engine(self) -> str:
        """The name of the engine, "" if containers are off."""
        return self._policy.runtime

    def can_run(self, call: FunctionCall) -> str:
        """Return "" for an image that is pinned and present, else the reason; never pulls."""
        if not self.engine:
            return "Containers are off"
        if not call.image:
            return "It has no image"
        if shutil.which(self.engine) is None:
            return f"{self.engine} is not installed"
        pinned = self.pinned(call.image)
        if not pinned:
            return "Its digest is not pinned; `reconciler functions pull` pins it"
        if pinned not in self._present:
            inspected = self._engine("image", "inspect", "--format", "{{.Id}}", pinned)
            self._present[pinned] = "" if inspected.exit_code == 0 else f"{pinned} is not on this machine"
        return self._present[pinned]

    def pinned(self, image: str) -> str:
        """Return the image by its digest (or its local id, `sha256:...`), "" if it is not pinned."""
        if "@" in image:
            return image
        digest = self._policy.images.get(image, "")
        if digest.startswith("id:"):
            return digest.removeprefix("id:")
        return f"{image.rpartition(':')[0]}@{digest}" if digest else ""

    def run(self, call: FunctionCall) -> FunctionRun:
        """Run the image on the items, unless the result is cached. Never raises; leaves no container behind.

        Results of images with network access are not cached.
        """
        image = self.pinned(call.image)
        if self._may_use_network(call):
            return self._run(call)
        cached = self._results.find(image, call)
        if cached is not None:
            return cached
        run = self._run(call)
        self._results.keep(image, call, run)
        return run

    def _run(self, call: FunctionCall) -> FunctionRun:
        name = f"krm-{uuid.uuid4()}"
        command = [self.engine, *self._arguments(name, call), self.pinned(call.image)]
        try:
            ended = run_process(
                command,
                write_call(call),
                environment=_environment(),
                timeout_s=self._policy.timeout_s,
                output_bytes=self._policy.output_bytes,
                check=self._check,
            )
        except BaseException:
            self._remove(name)
            raise
        if ended.problem or ended.exit_code:
            self._remove(name)
        if not ended.problem and ended.exit_code in (_ENGINE_FAILED, *_NOT_RUNNABLE, _TIMED_OUT):
            return FunctionRun(
                None, (), ended.exit_code, _without_pull_messages(ended.stderr), self._engine_error(ended)
            )
        run = read_run(ended, self._policy.output_bytes)
        return replace(run, stderr=_without_pull_messages(run.stderr))

    def _remove(self, name: str) -> None:
        """Remove a container: killing the client of the engine leaves it running."""
        # Podman waits ten seconds unless told not to.
        self._engine("rm", "-f", *(("-t", "0") if self.engine == "podman" else ()), name)

    def pull(self, image: str) -> tuple[str, str]:
        """Pull an image; return its digest (`id:...` if it is local) and the problem, one of them empty."""
        ended = self._engine("pull", "--quiet", image, timeout_s=_PULL_S)
        if ended.exit_code or ended.problem:
            return "", ended.problem or ended.stderr.strip().rpartition("\n")[2]
        return self.digest(image)

    def digest(self, image: str) -> tuple[str, str]:
        """Return the digest of a present image and the problem, one of them empty."""
        template = "{{range .RepoDigests}}{{println .}}{{end}}id:{{.Id}}"
        ended = self._engine("image", "inspect", "--format", template, image)
        if ended.exit_code or ended.problem:
            return "", ended.problem or ended.stderr.strip()
        lines = ended.stdout.decode().split()
        name = image.partition("@")[0].rpartition(":")[0] or image
        digests = sorted(line.partition("@")[2] for line in lines if line.startswith(f"{name}@"))
        if digests and not image.startswith("localhost/"):
            return digests[0], ""
        local = next((line.removeprefix("id:") for line in lines if line.startswith("id:")), "")
        return f"id:sha256:{local.removeprefix('sha256:')}", ""

    def _arguments(self, name: str, call: FunctionCall) -> list[str]:
        policy = self._policy
        arguments = [
            *("run", "--rm", "-i", "--name", name, "--pull", "never"),
            *(() if self._may_use_network(call) else ("--network", "none")),
            *("--user", "65534:65534", "--read-only", "--cap-drop=all"),
            *("--security-opt=no-new-privileges", "--pids-limit", "256"),
            *("--memory", str(policy.memory_bytes), "--cpus", "1", "--log-driver", "none"),
        ]
        # Podman passes variables and proxies of the host to the container unless told not to.
        if self.engine == "podman":
            arguments += ["--timeout", str(policy.timeout_s), "--read-only-tmpfs=false"]
            arguments += ["--env-host=false", "--unsetenv-all", "--http-proxy=false"]
        return [*arguments, *policy.engine_arguments]

    def _may_use_network(self, call: FunctionCall) -> bool:
        name, _, digest = call.image.partition("@")
        return (name if digest else name.rpartition(":")[0]) in self._policy.network

    def _engine_error(self, ended: ProcessRun) -> str:
        if ended.exit_code == _TIMED_OUT and self.engine == "podman":
            return f"It was stopped after {self._policy.timeout_s} s"
        failed = ended.exit_code == _ENGINE_FAILED
        return f"{self.engine} cannot start it" if failed else "The image has no program that can run"

    def _engine(self, *arguments: str, timeout_s: float = _QUICK_S) -> ProcessRun:
        return run_process(
            [self.engine, *arguments],
            b"",
            environment=_environment(),
            timeout_s=timeout_s,
            output_bytes=_ENGINE_OUTPUT,
        )


def _environment() -> dict[str, str]:
    """Return the environment of the engine's client: the variables of its address and credentials only."""
    return {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}


def _without_pull_messages(stderr: str) -> str:
    prefixes = (
        "Trying to pull",
        "Getting image source",
        "Copying blob",
        "Copying config",
        "Writing manifest",
    )
    return "\n".join(line for line in stderr.splitlines() if not line.startswith(prefixes))
