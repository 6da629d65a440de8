"""Settings of registries: where they are read, and how much of them."""

from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from reconciler.policy.settings import Bound, SettingsGroup


@dataclass(frozen=True, slots=True)
class RegistryPolicy(SettingsGroup):
    """Registries, which `index sync` and `package from-chart` read, and no other command."""

    mirrors: dict[str, Annotated[str, Field(pattern=r"^(https?://)?[^/:]")]] = field(default_factory=dict)
    """Where names below a prefix are read, by prefix: `xpkg.crossplane.io: mirror.example.com/xpkg`.

    `http://` before a mirror reads it without encryption. The names of packages stay what they are.
    """
    at_once: Bound = 4
    """Requests side by side."""
    silence_s: Annotated[Bound, Field(alias="silence")] = 30
    """Longest silence of a registry within one answer, in seconds."""
    answer_s: Annotated[Bound, Field(alias="answer")] = 300
    """Longest time of one answer, in seconds."""
    wait_s: Annotated[Bound, Field(alias="wait")] = 120
    """Longest wait that a registry may ask for with Retry-After, in seconds."""
    tags: Bound = 50_000
    """Tags of one package."""
    versions: Bound = 10_000
    """New versions of one run; the next run continues."""
    layer_bytes: Bound = 64 << 20
    """Size of one layer or configuration, as it is sent, in bytes."""
    unpacked_bytes: Bound = 256 << 20
    """Size of the layers of one image when they are unpacked, in bytes."""
