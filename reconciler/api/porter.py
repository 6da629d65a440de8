"""Porter's manifests: bundles and installations, in every generation of their dependency fields."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field

from reconciler.api.meta import ForeignModel, Items, known_versions

BundleSchema = Annotated[str, known_versions("1.0.0", "1.1.0", "1.2.0", pattern=r"v?1\.[0-2]\.\d+(-.+)?")]
InstallationSchema = Annotated[str, known_versions("1.0.2", pattern=r"v?1\.0\.\d+(-.+)?")]


class PorterModel(ForeignModel):
    """A part of a Porter document: fields are spelled as on disk."""

    model_config = ConfigDict(alias_generator=None)


def _listed(items: Any) -> Any:
    """Return what `bundle.json` has by name as the list that it is in `porter.yaml`."""
    if not isinstance(items, Mapping):
        return items
    return [{"name": name, **item} if isinstance(item, Mapping) else item for name, item in items.items()]


class InterfaceItem(PorterModel):
    """A parameter, credential or output; further fields are a JSON schema."""

    model_config = ConfigDict(extra="allow")

    name: str
    type: str | list[str] | None = None


NamedItems = Annotated[Items[InterfaceItem], BeforeValidator(_listed)]


class InterfaceDocument(PorterModel):
    """Outputs, parameters and credentials of an interface."""

    outputs: NamedItems = ()
    parameters: NamedItems = ()
    credentials: NamedItems = ()


class RequiredInterface(InterfaceDocument):
    """An interface by name (seed) or by id, reference or document (today)."""

    name: str = ""
    id: str = ""
    version: str = ""
    reference: str = ""
    document: InterfaceDocument | None = None


class Bundle(PorterModel):
    """Reference, versions and interface of a required bundle."""

    reference: str = ""
    version: str = ""
    interface: RequiredInterface | None = None


class SharingGroup(PorterModel):
    """A group of installations that share a dependency."""

    name: str = ""


class SharingPolicy(PorterModel):
    """Sharing of a dependency; the mode is a boolean or a word."""

    mode: bool | str | None = None
    group: SharingGroup | None = None


class DependencyLifecycle(PorterModel):
    """Actions that also run on a dependency."""

    managed: bool | None = None
    upgrade: bool | None = None
    invoke: bool | None = None
    uninstall: bool | None = None


class VersionRanges(PorterModel):
    """The versions of a required bundle, as `bundle.json` has them."""

    ranges: Items[str] = ()
    prereleases: bool = False


class BundleRequirement(PorterModel):
    """One required bundle: the fields of all generations together."""

    name: str
    bundle: Bundle | None = None
    reference: str = ""
    version: str | VersionRanges = ""
    namespace: str | None = None
    scope: str | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    interface: RequiredInterface | None = None
    sharing: SharingPolicy | None = None
    lifecycle: DependencyLifecycle | None = None
    parameters: dict[str, object] = Field(default_factory=dict)
    credentials: dict[str, object] = Field(default_factory=dict)
    outputs: dict[str, object] = Field(default_factory=dict)


class ProvidedInterface(PorterModel):
    """The interface that a bundle or an installation implements."""

    interface: str | RequiredInterface = ""
    version: str = ""
    outputs: NamedItems = ()


class DependencySection(PorterModel):
    """The needs of a bundle, a list or by name, and the interface that it provides."""

    requires: list[object] | dict[str, object] | None = None
    provides: object = None
    sequence: Items[str] = ()


class BundleManifest(PorterModel):
    """The parts of `porter.yaml` and `bundle.json` that decide; mixins and actions have their own names."""

    model_config = ConfigDict(extra="allow")

    schemaVersion: BundleSchema = ""
    name: str
    version: str = ""
    registry: str = ""
    reference: str = ""
    keywords: Items[str] = ()
    outputs: NamedItems = ()
    parameters: NamedItems = ()
    credentials: NamedItems = ()


class InstalledBundle(PorterModel):
    """The bundle of an installation: digest takes precedence over version, version over tag."""

    repository: str
    version: str = ""
    digest: str = ""
    tag: str = ""


class Installation(PorterModel):
    """`schemaType: Installation`, schemaVersion 1.0.2; an empty namespace means global."""

    schemaType: str = ""
    schemaVersion: InstallationSchema = ""
    name: str
    namespace: str = ""
    uninstalled: bool = False
    labels: dict[str, str] = Field(default_factory=dict)
    bundle: InstalledBundle
    parameters: dict[str, object] = Field(default_factory=dict)
    parameter_sets: Items[str] = Field(default=(), alias="parameterSets")
    credential_sets: Items[str] = Field(default=(), alias="credentialSets")
    custom: dict[str, object] = Field(default_factory=dict)
    created: str = ""
    modified: str = ""
