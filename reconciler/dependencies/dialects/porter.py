"""Read Porter's bundles and installations, in every generation of their dependencies."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

import orjson
from msgspec import Struct

from reconciler.api import porter as api
from reconciler.base.reasons import Reason
from reconciler.dependencies.dialects.reading import (
    Diagnostics,
    Document,
    ParsedManifest,
    Path,
    canonical_interface,
    manifest_label,
    parse_image,
)
from reconciler.dependencies.model.bundles import written_values
from reconciler.dependencies.model.packages import (
    Actions,
    Candidate,
    Dialect,
    Ecosystem,
    Install,
    Interface,
    InterfaceNeed,
    Need,
    PackageId,
    PackageNeed,
    Pairs,
    Requirement,
    Share,
    Sharing,
    VersionRange,
    exact_range,
)
from reconciler.dependencies.versions import Version, VersionError, VersionPolicy, parse_loose
from reconciler.inventory.inventory import Source

BINDINGS = "reconciler.dev/dependencies"
EXTERNAL = "reconciler.dev/external"
PRUNE_DEPENDENCIES = "reconciler.dev/prune-dependencies"
STRATEGY = "reconciler.dev/version-strategy"
_V1 = "io.cnab.dependencies"
_V2 = "org.getporter.dependencies@v2"
_LEGACY_V2 = "org.getporter.dependencies"
_TEMPLATE = re.compile(r"\{\{\s*([^}]*?)\s*\}\}")
_NAMESPACE, _NAME = "installation.namespace", "installation.name"
_PARAMETER, _CREDENTIAL = "parameter", "credential"


def read_installation(document: Document, source: Source) -> ParsedManifest:
    """Read an Installation; one that is marked uninstalled asks for nothing. Total."""
    notes = Diagnostics(source, manifest_label(document))
    parsed = notes.parse(api.Installation, document)
    if parsed is None or parsed.uninstalled:
        return notes.reading()
    bundle, custom = parsed.bundle, parsed.custom
    bindings = custom.get(BINDINGS)
    strategy = str(custom.get(STRATEGY, VersionPolicy.HIGHEST))
    install = Install(
        parsed.namespace,
        parsed.name,
        Dialect.PORTER,
        PackageNeed(
            PackageId(Ecosystem.BUNDLE, bundle.repository),
            _pinned(bundle, notes),
            notes.at("bundle", "version"),
        ),
        kind="Installation",
        api_version=str(document.get("schemaVersion", "")),
        labels=tuple(sorted(parsed.labels.items())),
        external=custom.get(EXTERNAL) is True,
        interfaces=tuple(_provided(custom.get("provides"), (), notes)),
        skip_dependencies=bindings is False,
        prune_dependencies=custom.get(PRUNE_DEPENDENCIES) is not False,
        gives=tuple(sorted(name for name in parsed.parameters if "#" in name)),
        gives_credentials=bool(parsed.credential_sets),
        bindings=_pairs(bindings),
        inherit=_inherited(parsed),
        policy=VersionPolicy(strategy) if strategy in list(VersionPolicy) else VersionPolicy.HIGHEST,
        location=source.location,
    )
    return notes.reading(installs=(install,))


def _inherited(parsed: "api.Installation") -> Pairs:
    """Return the settings that dependencies inherit, as canonical JSON: credentials and parameters."""
    given = {"credentialSets": list(parsed.credential_sets), "parameters": dict(parsed.parameters)}
    return written_values({name: value for name, value in given.items() if value})


def _pinned(bundle: "api.InstalledBundle", notes: Diagnostics) -> VersionRange:
    """Return the range of an installation: its digest, else its version, else its tag."""
    named_version = bundle.digest or bundle.version or bundle.tag
    if not named_version:
        notes.warn(("bundle",), "No version is named: the highest one is taken")
        return VersionRange(Dialect.PORTER)
    try:
        return exact_range(Dialect.PORTER, named_version)
    except VersionError as error:
        notes.refuse(("bundle",), str(error), reason=Reason.INVALID_VERSION)
        return VersionRange(Dialect.PORTER)


def _pairs(value: object) -> Pairs:
    return tuple(sorted((str(k), str(v)) for k, v in value.items())) if isinstance(value, Mapping) else ()


def read_bundle(
    document: Document, source: Source, *, repository: str = "", version: str = "", digest: str = ""
) -> ParsedManifest:
    """Read a `porter.yaml` or `bundle.json` as one candidate. Total.

    `repository` and `version` are what the index calls it; without them the manifest's own words count.
    """
    notes = Diagnostics(source, f"bundle {document.get('name', '')}")
    name, tag, _ = parse_image(str(document.get("reference") or ""))
    own = (
        repository
        or name
        or "/".join(
            part for part in (str(document.get("registry") or ""), str(document.get("name") or "")) if part
        )
    )
    try:
        number = parse_loose(_tag(version or str(document.get("version") or tag)))
    except VersionError as error:
        notes.refuse(("version",), str(error), reason=Reason.INVALID_VERSION)
        return notes.reading()
    requires, provided, path = _sections(document, notes)
    requirements = [_requirement(item, (*path, key), notes) for key, item in requires]
    shape = tuple(_items(document.get(key)) for key in ("outputs", "parameters", "credentials"))
    candidate = Candidate(
        PackageId(Ecosystem.BUNDLE, own),
        number,
        digest=digest,
        requires=tuple(requirement for requirement in requirements if requirement is not None),
        interfaces=tuple(_provided(provided, shape, notes)),
        inputs=tuple(sorted(_inputs(document))),
        defaults=written_values(dict(_defaults(document))),
        names=tuple({str(document.get("name"))} - {own, "None"}),
        keywords=tuple(map(str, document.get("keywords") or ())),
        source=own,
        location=source.location,
    )
    return notes.reading(candidates=(candidate,))


def _tag(text: str) -> str:
    """Return a version in the spelling of OCI tags: an underscore replaces a plus."""
    return text.replace("_", "+")


Items = list[tuple[str | int, Any]]


def _sections(document: Document, notes: Diagnostics) -> tuple[Items, Any, Path]:
    """Find the requirements and provided interfaces of a bundle, in every generation of the format."""
    custom = document.get("custom")
    if isinstance(custom, Mapping):
        for key in (_V2, _LEGACY_V2, _V1):
            if isinstance(custom.get(key), Mapping):
                declared = custom[key]
                return (
                    _listed(declared.get("requires")),
                    declared.get("provides"),
                    ("custom", key, "requires"),
                )
    section = document.get("dependencies") or {}
    if isinstance(section, list):
        notes.warn(("dependencies",), "The list dependencies is read as dependencies.requires")
        return _listed(section), None, ("dependencies",)
    if section and isinstance(section, Mapping) and not {"requires", "provides"} & section.keys():
        notes.warn(("dependencies",), "The map dependencies is read as dependencies.requires")
        return _listed(section), None, ("dependencies",)
    return _listed(section.get("requires")), section.get("provides"), ("dependencies", "requires")


def _listed(requires: Any) -> Items:
    if isinstance(requires, Mapping):
        return [
            (name, {"name": name, **(item if isinstance(item, Mapping) else {"reference": item})})
            for name, item in requires.items()
        ]
    return list(enumerate(requires)) if isinstance(requires, list) else []


def _requirement(item: Any, path: Path, notes: Diagnostics) -> Requirement | None:
    if isinstance(item, Mapping) and isinstance(item.get("bundle"), str):
        item = {**item, "reference": item["bundle"], "bundle": None}
    parsed = notes.parse(api.BundleRequirement, _flat_version(item))
    if parsed is None:
        return None
    reader = _Required(parsed, path, notes)
    alternatives, default = reader.needs()
    share = reader.share()
    inner = [*parsed.parameters.values(), *parsed.credentials.values()]
    return Requirement(
        alternatives,
        alias=parsed.name,
        share=share,
        actions=reader.actions(share),
        default=default,
        gives=tuple(sorted(_input(_CREDENTIAL, name) for name in parsed.credentials)),
        parameters=written_values(parsed.parameters),
        wired=any("bundle.dependencies." in str(value) or ".outputs." in str(value) for value in inner),
        location=notes.at(*path),
    )


def _flat_version(item: Any) -> Any:
    """Bring bundle.json's version object ({ranges, prereleases}) into one range."""
    version = item.get("version") if isinstance(item, Mapping) else None
    if not isinstance(version, Mapping):
        return item
    return {**item, "version": " || ".join(map(str, version.get("ranges") or ()))}


class _Required(Struct, frozen=True):
    item: "api.BundleRequirement"
    path: Path
    notes: Diagnostics

    def needs(self) -> tuple[tuple[Need, ...], PackageNeed | None]:
        """Return the needs, and the bundle to create if an interface is enough."""
        item, bundle = self.item, self.item.bundle
        reference = (bundle.reference if bundle else "") or item.reference
        version = (bundle.version if bundle else "") or item.version
        interface = (bundle.interface if bundle else None) or item.interface
        if interface is None:
            return (self._bundle(reference or item.name, version),), None
        default = self._bundle(reference, version) if reference else None
        return (self._interface(interface),), default

    def _bundle(self, reference: str, version: str) -> PackageNeed:
        name, tag, digest = parse_image(reference)
        package = PackageId(Ecosystem.BUNDLE, name)
        if version:
            second = self.item.bundle is not None
            where = (*self.path, "bundle", "version") if second else (*self.path, "version")
            range_ = self.notes.range(Dialect.PORTER, _tag(version), where, releases_only=second)
            return PackageNeed(package, range_, self.notes.at(*where))
        tagged = digest or (_tag(tag) if tag and tag != "latest" else "")
        try:
            return PackageNeed(
                package, exact_range(Dialect.PORTER, tagged) if tagged else VersionRange(Dialect.PORTER)
            )
        except VersionError as error:
            self.notes.refuse(self.path, str(error), reason=Reason.INVALID_VERSION)
            return PackageNeed(package, VersionRange(Dialect.PORTER))

    def _interface(self, interface: "api.RequiredInterface") -> InterfaceNeed:
        written = interface.id or interface.name or interface.reference
        shape = interface.document or interface
        where = (*self.path, "interface", "version")
        parameters = tuple((name, "") for name in sorted(self.item.parameters))
        return InterfaceNeed(
            interface_id(written, self.path, self.notes),
            self.notes.range(Dialect.PORTER, interface.version, where),
            outputs=_named_items(shape.outputs),
            parameters=tuple(sorted({*parameters, *_named_items(shape.parameters)})),
            credentials=_named_items(shape.credentials),
        )

    def share(self) -> Share:
        """Return the sharing rule of a requirement, in every generation of the format."""
        item = self.item
        if item.bundle is not None or item.sharing is not None:
            return self._sharing()
        self._check_templates()
        labels = tuple(sorted(item.labels.items()))
        if any(_NAME in _TEMPLATE.findall(value) for value in item.labels.values()):
            return Share(Sharing.EXCLUSIVE, labels=labels)
        scope = item.scope or ("global" if item.namespace is None else "namespace")
        if scope not in ("namespace", "global"):
            self.notes.refuse((*self.path, "scope"), f"scope {scope!r} is neither namespace nor global")
            return Share(Sharing.GLOBAL)
        return Share(Sharing(scope), labels=labels)

    def _sharing(self) -> Share:
        sharing = self.item.sharing
        group = sharing.group.name if sharing and sharing.group else ""
        mode = sharing.mode if sharing else None
        shared = mode is True or (isinstance(mode, str) and mode in ("group", "true"))
        if shared and not group:
            self.notes.refuse(
                (*self.path, "sharing"), "sharing needs group.name", reason=Reason.MISSING_FIELD
            )
        if group and not shared:
            self.notes.refuse((*self.path, "sharing"), f"group {group} is named, but sharing.mode is off")
        if not shared:
            return Share(Sharing.EXCLUSIVE)
        return Share(Sharing.NAMESPACE, group=group, inputs=self._inputs())

    def _inputs(self) -> Pairs:
        """Return a digest of the inputs: it distinguishes them without writing secrets into locks."""
        if not self.item.parameters:
            return ()
        written = orjson.dumps(self.item.parameters, option=orjson.OPT_SORT_KEYS, default=str)
        return (("inputs", hashlib.sha256(written).hexdigest()[:16]),)

    def _check_templates(self) -> None:
        namespace = self.item.namespace
        if namespace is not None and _TEMPLATE.findall(namespace) != [_NAMESPACE]:
            self.notes.refuse(
                (*self.path, "namespace"),
                f"The namespace {namespace!r} is fixed; a dependency stands in its parent's or in none",
                hint="Write '{{ installation.namespace }}', or leave the field out for global",
            )
        for name, value in self.item.labels.items():
            unknown = [word for word in _TEMPLATE.findall(value) if word not in (_NAMESPACE, _NAME)]
            if unknown:
                self.notes.refuse((*self.path, "labels", name), f"{unknown[0]} is not defined here")

    def actions(self, share: Share) -> Actions:
        """Return which actions reach a dependency that is shared so: single ones win over `managed`."""
        lifecycle = self.item.lifecycle
        if lifecycle is None:
            own = self.item.bundle is not None and share.scope is Sharing.EXCLUSIVE
            return Actions(own, own, own)
        managed = lifecycle.managed is True
        if lifecycle.managed is not None and lifecycle.model_fields_set - {"managed"}:
            self.notes.warn((*self.path, "lifecycle"), "Actions that are named win over managed")
        given = (lifecycle.upgrade, lifecycle.invoke, lifecycle.uninstall)
        return Actions(*(managed if action is None else action for action in given))


def _named_items(items: "tuple[api.InterfaceItem, ...]") -> Pairs:
    return tuple(sorted((item.name, item.type if isinstance(item.type, str) else "") for item in items))


def _items(section: Any) -> Pairs:
    """Return names and types of a bundle's outputs, parameters or credentials."""
    if isinstance(section, Mapping):
        section = [
            {"name": name, **(value if isinstance(value, Mapping) else {})} for name, value in section.items()
        ]
    items = [item for item in section if isinstance(item, Mapping)] if isinstance(section, list) else []
    return tuple(sorted((str(item.get("name")), str(item.get("type") or "")) for item in items))


def _inputs(document: Document) -> Iterator[str]:
    """Yield the required inputs of a bundle, in `porter.yaml` or `bundle.json`.

    In `porter.yaml`: parameters without a default and credentials that are not optional. In
    `bundle.json`, where sections are maps: items with `required: true`.
    """
    for what, key in ((_PARAMETER, "parameters"), (_CREDENTIAL, "credentials")):
        section = document.get(key)
        for name, value in _listed(section):
            listed = isinstance(section, list)
            item = value if isinstance(value, Mapping) else {}
            optional = "default" in item or item.get("required") is False
            if (listed and not optional) or (not listed and item.get("required") is True):
                yield _input(what, str(item.get("name") or name))


def _defaults(document: Document) -> Iterator[tuple[str, Any]]:
    """Yield the defaults of parameters, in `porter.yaml` or in the definitions of `bundle.json`."""
    definitions = document.get("definitions")
    for name, value in _listed(document.get("parameters")):
        item = value if isinstance(value, Mapping) else {}
        defined = definitions.get(item.get("definition")) if isinstance(definitions, Mapping) else None
        for place in (item, defined):
            if isinstance(place, Mapping) and "default" in place:
                yield str(item.get("name") or name), place["default"]


def _input(what: str, name: str) -> str:
    return f"{what} {name}"


def _provided(provides: Any, shape: tuple[Pairs, ...], notes: Diagnostics) -> Iterator[Interface]:
    outputs, parameters, credentials = shape or ((), (), ())
    if isinstance(provides, Mapping):
        provides = [provides]
    for number, item in enumerate(provides if isinstance(provides, list) else ()):
        interface = item.get("interface") if isinstance(item, Mapping) else item
        written = str(interface.get("id", "")) if isinstance(interface, Mapping) else str(interface)
        text = str(item.get("version") or "") if isinstance(item, Mapping) else ""
        own = _items(item.get("outputs")) if isinstance(item, Mapping) else ()
        path: Path = ("dependencies", "provides", number)
        version = _version(text, path, notes)
        yield Interface(interface_id(written, path, notes), version, own or outputs, parameters, credentials)


def _version(text: str, path: Path, notes: Diagnostics) -> Version | None:
    try:
        return parse_loose(text) if text else None
    except VersionError as error:
        notes.refuse(path, str(error), reason=Reason.INVALID_VERSION)
        return None


def interface_id(text: str, path: Path, notes: Diagnostics) -> str:
    """Return the one name of an interface; a name without a domain is warned about."""
    name = canonical_interface(text)
    if name != text and "." not in text:
        notes.warn(path, f"The interface {text} is read as {name}")
    return name
