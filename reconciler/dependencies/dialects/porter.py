"""Read Porter's bundles and installations, in every generation of their dependencies."""

import hashlib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import orjson
from msgspec import Struct

from reconciler.base.lazy import LazyModule, regex
from reconciler.base.reasons import Reason
from reconciler.base.suggestions import parse_boolean, suggest
from reconciler.dependencies.dialects.reading import (
    Diagnostics,
    Document,
    ParsedManifest,
    Path,
    canonical_interface,
    manifest_label,
    parse_image,
)
from reconciler.dependencies.model.cluster import written_values
from reconciler.dependencies.model.packages import (
    Actions,
    BundleInput,
    Candidate,
    Dialect,
    Ecosystem,
    InputKind,
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
from reconciler.dependencies.versions import VersionError, VersionPolicy
from reconciler.inventory.inventory import Source
from reconciler.krm.values import mapping_at, value_at

if TYPE_CHECKING:
    from reconciler.api import porter as api
else:  # its models are slow to make, and few fleets have such manifests
    api = LazyModule("reconciler.api.porter")

BINDINGS = "reconciler.dev/dependencies"
EXTERNAL = "reconciler.dev/external"
PRUNE_DEPENDENCIES = "reconciler.dev/prune-dependencies"
STRATEGY = "reconciler.dev/version-strategy"
_V1 = "io.cnab.dependencies"
_V2 = "org.getporter.dependencies@v2"
_LEGACY_V2 = "org.getporter.dependencies"
_TEMPLATE = regex(r"\{\{\s*([^}]*?)\s*\}\}")
_NAMESPACE, _NAME = "installation.namespace", "installation.name"


def read_installation(document: Document, source: Source) -> ParsedManifest:
    """Read an Installation; one that is marked uninstalled asks for nothing. Total."""
    notes = Diagnostics(source, manifest_label(document))
    parsed = notes.parse(api.Installation, document)
    if parsed is None or parsed.uninstalled:
        return notes.reading()
    bundle, custom = parsed.bundle, parsed.custom
    bindings = custom.get(BINDINGS, {})
    if bindings is not False and not isinstance(bindings, Mapping):
        message = f"{BINDINGS} must be a mapping of aliases, or false, but is {str(bindings)[:60]!r}"
        hint = "Write ALIAS: NAMESPACE/NAME below it."
        hint = "Write false without quotes." if bindings == "false" else hint
        notes.refuse(("custom", BINDINGS), message, reason=Reason.INVALID_ANNOTATION, hint=hint)
    strategy = str(custom.get(STRATEGY, VersionPolicy.HIGHEST))
    if strategy not in list(VersionPolicy):
        message = f"{STRATEGY} must be {' or '.join(VersionPolicy)}, but is {strategy[:60]!r}"
        hint = suggest(strategy, list(VersionPolicy))
        notes.refuse(("custom", STRATEGY), message, reason=Reason.INVALID_ANNOTATION, hint=hint)
    named_version = bundle.digest or bundle.version or bundle.tag
    if not named_version:
        notes.warn(("bundle",), "No version is named: the highest one is taken")
    settings = {"credentialSets": list(parsed.credential_sets), "parameters": dict(parsed.parameters)}
    bound = bindings.items() if isinstance(bindings, Mapping) else ()
    install = Install(
        parsed.namespace,
        parsed.name,
        Dialect.PORTER,
        PackageNeed(
            PackageId(Ecosystem.BUNDLE, notes.image(bundle.repository, ("bundle", "repository"))),
            _exact(named_version, ("bundle",), notes),
            notes.at("bundle", "version"),
        ),
        kind="Installation",
        api_version=str(document.get("schemaVersion", "")),
        labels=tuple(sorted(parsed.labels.items())),
        external=custom.get(EXTERNAL) is True,
        interfaces=tuple(_provided(custom.get("provides"), (), ("custom", "provides"), notes)),
        skip_dependencies=bindings is False,
        prune_dependencies=parse_boolean(custom.get(PRUNE_DEPENDENCIES)) is not False,
        gives=tuple(sorted(name for name in parsed.parameters if "#" in name)),
        gives_credentials=bool(parsed.credential_sets),
        bindings=tuple(sorted((str(alias), str(name)) for alias, name in bound)),
        inherit=written_values({name: value for name, value in settings.items() if value}),
        tag=(bundle.version or bundle.tag) if bundle.digest else "",
        policy=VersionPolicy(strategy) if strategy in list(VersionPolicy) else VersionPolicy.HIGHEST,
        location=source.location,
    )
    return notes.reading(installs=(install,))


def _exact(text: str, path: Path, notes: Diagnostics) -> VersionRange:
    """Return the range of one version or digest; any version without a text, or where it is none."""
    try:
        return exact_range(Dialect.PORTER, text) if text else VersionRange(Dialect.PORTER)
    except VersionError:
        message = f"{text} is no version, so nothing can be compared with it"
        notes.refuse(path, message, reason=Reason.INVALID_VERSION, hint="Name a version, or the digest.")
        return VersionRange(Dialect.PORTER)


def read_bundle(
    document: Document, source: Source, *, repository: str = "", version: str = ""
) -> ParsedManifest:
    """Read a `porter.yaml` or `bundle.json` as one candidate. Total.

    `repository` and `version` are what the index calls it; without them the manifest's own words count.
    """
    notes = Diagnostics(source, f"bundle {document.get('name', '')}")
    parsed = notes.parse(api.BundleManifest, document)
    _check_sections(document, notes)
    if parsed is None:
        return notes.reading()
    name, tag, _ = parse_image(parsed.reference)
    own_name = repository or name or "/".join(filter(None, (parsed.registry.rstrip("/"), parsed.name)))
    # Tags of OCI have no plus: an underscore replaces it.
    number = notes.version((version or parsed.version or tag).replace("_", "+"), ("version",))
    if number is None:
        return notes.reading()
    requires, provided, path = _sections(document, notes)
    _check_names(requires, path, notes)
    registry = own_name.rpartition("/")[0]
    used = _used_outputs(document)
    requirements = [_requirement(item, (*path, key), notes, registry, used) for key, item in requires]
    _check_wiring(document, requires, path, notes)
    listed = [_mappings(document.get(key)) for key in ("outputs", "parameters", "credentials")]
    shape = tuple(
        tuple(sorted((str(item.get("name")), str(item.get("type") or "")) for _, item in items))
        for items in listed
    )
    provides = tuple(_provided(provided, shape, (*path[:-1], "provides"), notes))
    candidate = Candidate(
        PackageId(Ecosystem.BUNDLE, own_name),
        number,
        requires=tuple(requirement for requirement in requirements if requirement is not None),
        interfaces=provides,
        inputs=tuple(sorted(_inputs(document))),
        defaults=written_values(dict(_defaults(document))),
        has=tuple(
            sorted(
                f"{what} {name}"
                for what, items in zip(("output", "parameter"), shape[:2], strict=True)
                for name, _ in items
            )
        ),
        names=tuple({parsed.name} - {own_name}),
        keywords=parsed.keywords,
        source=own_name,
        location=source.location,
    )
    return notes.reading(candidates=(candidate,))


Items = list[tuple[str | int, Any]]


def _sections(document: Document, notes: Diagnostics) -> tuple[Items, Any, Path]:
    custom = mapping_at(document, "custom")
    for key in (_V2, _LEGACY_V2, _V1):
        if custom.get(key) is not None:
            return _section(custom[key], ("custom", key), notes)
    section, path = document.get("dependencies") or {}, ("dependencies",)
    if isinstance(section, list):
        notes.warn(path, "The list dependencies is read as dependencies.requires")
        return _listed(section), None, path
    words = {"requires", "provides"}
    if isinstance(section, Mapping) and section and not words & section.keys():
        wrong = [name for name, item in section.items() if not isinstance(item, Mapping | str)]
        for name in wrong:
            message, hint = f"Unknown field dependencies.{name}", suggest(str(name), words, most=1)
            notes.refuse((*path, name), message, reason=Reason.UNKNOWN_FIELD, hint=hint)
        notes.warn(path, "The map dependencies is read as dependencies.requires")
        return [item for item in _listed(section) if item[0] not in wrong], None, path
    return _section(section, path, notes)


def _section(section: Any, path: Path, notes: Diagnostics) -> tuple[Items, Any, Path]:
    parsed = notes.parse(api.DependencySection, section, path)
    where = (*path, "requires")
    return (_listed(parsed.requires), parsed.provides, where) if parsed else ([], None, where)


def _check_sections(document: Document, notes: Diagnostics) -> None:
    """Refuse a section that is nearly called like one that decides, and is no action."""
    for name, value in document.items():
        items = value if isinstance(value, list) else [{"name": name}] if isinstance(value, Mapping) else []
        is_similar = name not in _SECTIONS and get_close_matches(str(name), _SECTIONS, n=1, cutoff=0.85)
        if is_similar and any(isinstance(item, Mapping) and "name" in item for item in items):
            hint = suggest(str(name), _SECTIONS, most=1)
            notes.refuse((name,), f"Unknown field {name}", reason=Reason.UNKNOWN_FIELD, hint=hint)


_SECTIONS = ("dependencies", "parameters", "credentials", "outputs", "custom")
_OUTPUTS = regex(r"bundle\.(?:dependencies\.([^.\s}]+)\.)?outputs\.([^.\s}|]+)")


def _used_outputs(document: Document) -> dict[str, set[str]]:
    """Return the outputs of each dependency that templates anywhere in a bundle, or its parameters, use."""
    used: dict[str, set[str]] = {}
    queue: list[Any] = [document]
    for value in queue:
        if isinstance(value, Mapping):
            queue += value.values()
            if value.get("dependency") and value.get("output"):
                used.setdefault(str(value["dependency"]), set()).add(f"output {value['output']}")
        elif isinstance(value, list):
            queue += value
        elif isinstance(value, str):
            for alias, name in _OUTPUTS.findall(value):
                used.setdefault(alias, set()).add(f"output {name}")
    return used


def _check_names(requires: Items, path: Path, notes: Diagnostics) -> None:
    """Refuse a second dependency of one name: both would be one installation.

    Source: Porter, pull request 3067.
    """
    first: dict[str, str | int] = {}
    for key, item in requires:
        name = str(value_at(item, "name") or "")
        if name and first.setdefault(name, key) != key:
            message = f"Two dependencies are called {name}"
            hint = "Give each a name of its own: bindings, parameters and outputs are by name."
            notes.refuse((*path, key, "name"), message, reason=Reason.DUPLICATE_OBJECT, hint=hint)


def _check_wiring(document: Document, requires: Items, path: Path, notes: Diagnostics) -> None:
    """Refuse an output of what is no other dependency: it does not exist when the dependency is made.

    Source: Porter, pkg/porter/dependency_wiring.go, strict since pull request 3656.
    """
    items = [(key, item) for key, item in requires if isinstance(item, dict)]
    aliases = {str(item.get("name")) for _, item in items}

    def check(alias: str, own_name: str, where: Path) -> None:
        if alias in aliases - {own_name}:
            return
        what = f"of {alias}, which is no dependency," if alias else "of the bundle itself"
        message = "An output of the dependency itself" if alias == own_name else f"An output {what}"
        hint = suggest(alias, aliases - {own_name}) if aliases - {own_name} else ""
        notes.refuse(where, f"{message} is not there when it is needed", reason=Reason.NOT_FOUND, hint=hint)

    for key, item in items:
        for name in ("parameters", "credentials", "outputs"):
            for field, value in mapping_at(item, name).items():
                own_name = str(item.get("name")) if name != "outputs" else ""
                for alias, _ in _OUTPUTS.findall(str(value)):
                    check(alias, own_name, (*path, key, name, field))
    for key, item in _listed(document.get("parameters")):
        if alias := value_at(item, "source", "dependency"):
            check(str(alias), "", ("parameters", key, "source", "dependency"))


def _listed(requires: Any) -> Items:
    if isinstance(requires, Mapping):
        return [
            (name, {"name": name, **(item if isinstance(item, Mapping) else {"reference": item})})
            for name, item in requires.items()
        ]
    return list(enumerate(requires)) if isinstance(requires, list) else []


def _mappings(items: Any) -> list[tuple[str | int, dict[str, Any]]]:
    return [(key, item) for key, item in _listed(items) if isinstance(item, dict)]


def _requirement(
    item: Any, path: Path, notes: Diagnostics, registry: str, used: Mapping[str, set[str]]
) -> Requirement | None:
    if isinstance(item, Mapping) and isinstance(item.get("bundle"), str):
        # In `bundle.json` no generation shares what does not say so.
        item = {**item, "reference": item["bundle"], "bundle": None, "sharing": item.get("sharing") or {}}
    parsed = notes.parse(api.BundleRequirement, item, path)
    if parsed is None:
        return None
    reader = _Required(parsed, path, notes, registry)
    alternatives, default = reader.needs()
    share = reader.share()
    inner = [*parsed.parameters.values(), *parsed.credentials.values()]
    return Requirement(
        alternatives,
        alias=parsed.name,
        share=share,
        actions=reader.actions(share),
        default=default,
        gives=tuple(BundleInput(InputKind.CREDENTIAL, name) for name in sorted(parsed.credentials)),
        parameters=written_values(parsed.parameters),
        uses=tuple(sorted(used.get(parsed.name, set()).union(f"parameter {n}" for n in parsed.parameters))),
        after=tuple(sorted({alias for v in inner for alias, _ in _OUTPUTS.findall(str(v)) if alias})),
        wired=any("bundle.dependencies." in str(value) or ".outputs." in str(value) for value in inner),
        location=notes.at(*path),
    )


class _Required(Struct, frozen=True):
    item: "api.BundleRequirement"
    path: Path
    notes: Diagnostics
    registry: str

    def needs(self) -> tuple[tuple[Need, ...], PackageNeed | None]:
        """Return the needs, and the bundle to create if an interface is enough.

        A bundle without a reference is the one of that name in its parent's registry: the first one
        anywhere would be chosen at random.

        Source: Porter's dependency proposal, rejected ideas.
        """
        item, bundle = self.item, self.item.bundle
        reference = (bundle.reference if bundle else "") or item.reference
        self.notes.image(parse_image(reference)[0], self.path)
        ranges = item.version if isinstance(item.version, str) else " || ".join(item.version.ranges)
        version = (bundle.version if bundle else "") or ranges
        interface = (bundle.interface if bundle else None) or item.interface
        if interface is None:
            own_name = "/".join(filter(None, (self.registry, item.name)))
            return (self._bundle(reference or own_name, version),), None
        default = self._bundle(reference, version) if reference else None
        return (self._interface(interface),), default

    def _bundle(self, reference: str, version: str) -> PackageNeed:
        name, tag, digest = parse_image(reference)
        package = PackageId(Ecosystem.BUNDLE, name)
        if version:
            second = self.item.bundle is not None
            where = (*self.path, "bundle", "version") if second else (*self.path, "version")
            range_ = self.notes.range(Dialect.PORTER, version.replace("_", "+"), where, releases_only=second)
            return PackageNeed(package, range_, self.notes.at(*where))
        tagged = digest or (tag.replace("_", "+") if tag != "latest" else "")
        return PackageNeed(package, _exact(tagged, self.path, self.notes))

    def _interface(self, interface: "api.RequiredInterface") -> InterfaceNeed:
        if interface.reference and interface.document:
            message = "An interface has a reference or a document, not both"
            self.notes.refuse((*self.path, "interface"), message, hint="Remove one of the two.")
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
        shared = mode == "group" or parse_boolean(mode)
        if shared is None and mode not in (None, "none"):
            hint = suggest(str(mode), ("none", "group", "true", "false"))
            message = f"sharing.mode {mode!r} is none of none, group, true and false"
            self.notes.refuse((*self.path, "sharing", "mode"), message, hint=hint)
        if shared and not group:
            at = (*self.path, "sharing")
            self.notes.refuse(at, "sharing needs group.name", reason=Reason.MISSING_FIELD)
        if group and not shared:
            self.notes.refuse((*self.path, "sharing"), f"group {group} is named, but sharing.mode is off")
        if not shared:
            return Share(Sharing.EXCLUSIVE)
        inputs: Pairs = ()
        if self.item.parameters:
            # A digest distinguishes the inputs without writing secrets into locks.
            written = orjson.dumps(self.item.parameters, option=orjson.OPT_SORT_KEYS, default=str)
            inputs = (("inputs", hashlib.sha256(written).hexdigest()[:16]),)
        return Share(Sharing.NAMESPACE, group=group, inputs=inputs)

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
            has_own = self.item.bundle is not None or self.item.sharing is not None
            is_own = has_own and share.scope is Sharing.EXCLUSIVE
            return Actions(is_own, is_own, is_own)
        managed = lifecycle.managed is True
        if lifecycle.managed is not None and lifecycle.model_fields_set - {"managed"}:
            self.notes.warn((*self.path, "lifecycle"), "Actions that are named win over managed")
        hooks = (lifecycle.upgrade, lifecycle.invoke, lifecycle.uninstall)
        return Actions(*(managed if action is None else action for action in hooks))


def _named_items(items: "tuple[api.InterfaceItem, ...]") -> Pairs:
    return tuple(sorted((item.name, item.type if isinstance(item.type, str) else "") for item in items))


_ACTIONS = frozenset({"install", "upgrade", "uninstall"})


def _inputs(document: Document) -> Iterator[BundleInput]:
    """Yield the inputs that an installation of a bundle must get, in `porter.yaml` or `bundle.json`.

    In `porter.yaml`: parameters without a default and credentials that are not optional. In
    `bundle.json`, where sections are maps: items with `required: true`. Not those of custom actions, and not
    a parameter that is an output: of a dependency, or of the bundle itself where its installation is over.
    """
    sources = mapping_at(document, "custom", "io.cnab.parameter-sources")
    for kind, key in ((InputKind.PARAMETER, "parameters"), (InputKind.CREDENTIAL, "credentials")):
        section = document.get(key)
        for name, value in _listed(section):
            listed = isinstance(section, list)
            item = mapping_at(value)
            optional = "default" in item or item.get("required") is False
            source = mapping_at(item.get("source") or mapping_at(sources, str(name)))
            actions = _ACTIONS.intersection(item.get("applyTo") or _ACTIONS)
            is_output = "dependency" in source or "dependencies.output" in source.get("sources", ())
            if not actions or is_output or (source and "install" not in actions):
                continue
            if (listed and not optional) or (not listed and item.get("required") is True):
                yield BundleInput(kind, str(item.get("name") or name))


def _defaults(document: Document) -> Iterator[tuple[str, Any]]:
    """Yield the defaults of parameters, in `porter.yaml` or in the definitions of `bundle.json`."""
    definitions = mapping_at(document, "definitions")
    for name, item in _mappings(document.get("parameters")):
        for place in (item, mapping_at(definitions, str(item.get("definition")))):
            if "default" in place:
                yield str(item.get("name") or name), place["default"]


def _provided(provides: Any, shape: tuple[Pairs, ...], path: Path, notes: Diagnostics) -> Iterator[Interface]:
    outputs, parameters, credentials = shape or ((), (), ())
    listed = provides if isinstance(provides, list) else [provides]
    for number, item in enumerate(listed if provides else ()):
        where = (*path, number) if isinstance(provides, list) else path
        fields = item if isinstance(item, Mapping) else {"interface": item}
        parsed = notes.parse(api.ProvidedInterface, fields, where)
        if parsed is None:
            continue
        interface = parsed.interface
        written = interface if isinstance(interface, str) else interface.id
        version = notes.version(parsed.version, where) if parsed.version else None
        declared = _named_items(parsed.outputs) or outputs
        yield Interface(interface_id(written, where, notes), version, declared, parameters, credentials)


def interface_id(text: str, path: Path, notes: Diagnostics) -> str:
    """Return the one name of an interface; a name without a domain is warned about."""
    name = canonical_interface(text)
    if name != text and "." not in text:
        notes.warn(path, f"The interface {text} is read as {name}")
    return name
