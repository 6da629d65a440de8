"""Risk classes: kinds of resources and registries of images that reports list before other changes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final

from reconciler.policy.settings import SettingsGroup

LOSS: Final = "loss"
DELETION: Final = "deletion"
CONFLICT: Final = "conflict"
REMOVAL: Final = "removal"
REGISTRY: Final = "registry"
KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "rbac": ("*.rbac.authorization.k8s.io", "ServiceAccount"),
    "crd": ("CustomResourceDefinition.apiextensions.k8s.io", "APIService.apiregistration.k8s.io"),
    "namespace": ("Namespace",),
    "storage": ("PersistentVolume", "PersistentVolumeClaim", "*.storage.k8s.io"),
    "admission": ("*.admissionregistration.k8s.io",),
}
"""Kinds of resources by class, the most dangerous first."""


@dataclass(frozen=True, slots=True)
class RiskPolicy(SettingsGroup):
    """Changes that reports list first."""

    kinds: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Kinds of resources by class, as `Kind.group` with `*`; a class of this name is replaced, or added."""
    registries: tuple[str, ...] = ()
    """Prefixes of the images in use; images of other registries are the class `registry`. Empty: those
    that the package has on main."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Every class, the most dangerous first: deletions, built-in classes, registries, further classes."""
        added = (name for name in self.kinds if name not in KINDS)
        return tuple(dict.fromkeys((DELETION, REMOVAL, *KINDS, REGISTRY, *added)))

    def of_kind(self, group_kind: str) -> tuple[str, ...]:
        """Return the classes of a kind of resource, written as `Kind.group`."""
        patterns = {**KINDS, **self.kinds}
        return tuple(
            name for name in self.classes if any(fnmatchcase(group_kind, p) for p in patterns.get(name, ()))
        )
