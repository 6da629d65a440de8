"""Settings of reconciler.yaml that choose which functions may run, and their limits."""

import re
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from reconciler.policy import FunctionPolicy

_POLICY: Final = FunctionPolicy()
_DIGEST: Final = re.compile(r"(?:id:)?sha256:[0-9a-f]{64}")


def _absolute(path: str) -> str:
    if not path.startswith("/"):
        raise ValueError(f"{path!r} is no absolute path")
    return path


def _digest(text: str) -> str:
    if not _DIGEST.fullmatch(text):
        raise ValueError(f"{text!r} is no digest; write sha256: and 64 hexadecimal digits")
    return text


class FunctionSettings(BaseModel):
    """The functions of packages: those built in always run; the rest only as it is said here."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        extra="forbid",
        frozen=True,
        populate_by_name=True,
        use_attribute_docstrings=True,
    )

    runtime: Literal["", "docker", "podman", "nerdctl"] = ""
    """Engine that runs pinned images; none: containers are off."""
    engine_arguments: tuple[str, ...] = ()
    """Further arguments of the engine's `run`."""
    images: dict[str, Annotated[str, AfterValidator(_digest)]] = {}
    """Digest of each image by its name and tag; `reconciler functions pull` writes them."""
    exec: dict[str, Annotated[str, AfterValidator(_absolute)]] = {}
    """Executables by the name that a package gives: absolute paths."""
    network: tuple[str, ...] = ()
    """Images, without a tag, that may use the network."""
    parallel: int = Field(_POLICY.container.parallel, ge=1)
    """Containers at one time."""
    claim_floating: bool = _POLICY.claim_floating
    """Run what is built in for `latest` and for no tag."""
    compatible: bool = _POLICY.compatible
    """Copy the faults of the functions that are reproduced."""
    timeout: int = Field(_POLICY.timeout_s, ge=1)
    """Longest time of one function, in seconds."""
    memory_bytes: int = Field(_POLICY.memory_bytes, ge=1 << 24)
    """Memory of one function, in bytes."""
    output_bytes: int = Field(_POLICY.output_bytes, ge=1 << 10)
    """Output of one function, in bytes."""
    starlark_steps: int = Field(_POLICY.starlark_steps, ge=1000)
    """Steps of one Starlark script."""
