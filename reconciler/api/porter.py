"""Porter's manifests: bundles and installations, in every generation of their dependency fields."""

from pydantic import BaseModel, ConfigDict, Field


class PorterModel(BaseModel):
    """A part of a Porter document: immutable, fields spelled as on disk, unknown ones carried along."""

    model_config = ConfigDict(
        defer_build=True,  # most runs meet few of these kinds
        extra="allow",
        frozen=True,
        populate_by_name=True,
    )


class InterfaceItem(PorterModel):
    """A parameter, credential or output."""

    name: str
    type: str | list[str] | None = None


class InterfaceDocument(PorterModel):
    """Outputs, parameters and credentials of an interface."""

    outputs: tuple[InterfaceItem, ...] = ()
    parameters: tuple[InterfaceItem, ...] = ()
    credentials: tuple[InterfaceItem, ...] = ()


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


class BundleRequirement(PorterModel):
    """One required bundle: the fields of all generations together."""

    name: str
    bundle: Bundle | None = None
    reference: str = ""
    version: str = ""
    tag: str = ""
    namespace: str | None = None
    scope: str | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    interface: RequiredInterface | None = None
    sharing: SharingPolicy | None = None
    lifecycle: DependencyLifecycle | None = None
    parameters: dict[str, object] = Field(default_factory=dict)
    credentials: dict[str, object] = Field(default_factory=dict)
    outputs: dict[str, object] = Field(default_factory=dict)


class InstalledBundle(PorterModel):
    """The bundle of an installation: digest takes precedence over version, version over tag."""

    repository: str
    version: str = ""
    digest: str = ""
    tag: str = ""


class Installation(PorterModel):
    """`schemaType: Installation`, schemaVersion 1.0.2; an empty namespace means global."""

    name: str
    namespace: str = ""
    uninstalled: bool = False
    labels: dict[str, str] = Field(default_factory=dict)
    bundle: InstalledBundle
    parameters: dict[str, object] = Field(default_factory=dict)
    parameter_sets: tuple[str, ...] = Field(default=(), alias="parameterSets")
    credential_sets: tuple[str, ...] = Field(default=(), alias="credentialSets")
    custom: dict[str, object] = Field(default_factory=dict)
