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


class Item(PorterModel):
    """A parameter, credential or output."""

    name: str
    type: str | list[str] | None = None


class InterfaceDocument(PorterModel):
    """What a required interface looks like."""

    outputs: tuple[Item, ...] = ()
    parameters: tuple[Item, ...] = ()
    credentials: tuple[Item, ...] = ()


class RequiredInterface(InterfaceDocument):
    """An interface by name (seed) or by id, reference or document (today)."""

    name: str = ""
    id: str = ""
    version: str = ""
    reference: str = ""
    document: InterfaceDocument | None = None


class Bundle(PorterModel):
    """Which bundle meets a dependency."""

    reference: str = ""
    version: str = ""
    interface: RequiredInterface | None = None


class Group(PorterModel):
    """A group of installations that share a dependency."""

    name: str = ""


class SharingPolicy(PorterModel):
    """Whether a dependency is shared; the mode is a flag or a word."""

    mode: bool | str | None = None
    group: Group | None = None


class Lifecycle(PorterModel):
    """Which actions reach a dependency."""

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
    lifecycle: Lifecycle | None = None
    parameters: dict[str, object] = Field(default_factory=dict)
    credentials: dict[str, object] = Field(default_factory=dict)
    outputs: dict[str, object] = Field(default_factory=dict)


class InstalledBundle(PorterModel):
    """What an installation installs: digest before version before tag."""

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
