"""Convert objects that kubectl exported from a cluster with Porch to manifests of a control repository."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from itertools import chain, count
from typing import Any, NamedTuple

from reconciler.api.meta import Manifest, label_error
from reconciler.api.migration import migrate_set, untranslated_fields
from reconciler.api.porch import (
    GROUP,
    PACKAGE_VARIANT_SET,
    REPOSITORY,
    SET_LABEL,
    PackageVariant,
    PackageVariantSet,
    Repository,
)
from reconciler.api.validation import field_text, parse_model, parse_partly
from reconciler.base.errors import ConfigurationError, Location
from reconciler.base.text import plural, some, verb
from reconciler.dependencies.versions import Grammar, VersionError, parse_constraint
from reconciler.krm.values import mapping_at, mappings_at
from reconciler.krm.yaml import YamlError, emit, load_documents
from reconciler.krm.yaml.compose import SNAPSHOT_LIMITS
from reconciler.names.ids import normalise_url

_MODELS: Mapping[str, type[Manifest]] = {
    "Repository": Repository,
    "PackageVariantSet": PackageVariantSet,
    "PackageVariant": PackageVariant,
}
_METADATA = ("name", "namespace", "labels", "annotations")
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_MOST_NAMES = 3
_ADOPTED = "adoptionPolicy -> adoptExisting (Porch has made packages of it, and they are taken over)"
_DELETED = "left out, Porch is deleting it: what it made stays where it is, and nothing here owns it"
_WITHOUT_SET = "stays without its PackageVariantSet {}, which was not exported or is left out"
_IN_GIT = "what it describes is in Git, and is read there"
_FOLLOWED = "that is what Porch calls the head of the branch; each change of the package on it is proposed"
_NEPHIO_APPROVAL = "approval.nephio.org/policy"
_NO_APPROVAL = (
    f"{_NEPHIO_APPROVAL} says nothing here: approval.auto of reconciler.yaml approves without people"
)
_DROPPED: Mapping[str, str] = {
    "spec.git.secretRef": "credentials come from the environment: see spec.credentials of reconciler.yaml",
    "spec.sync": "repositories are read by every run",
    "spec.mutators": "no equivalent: write functions into Kptfiles or spec.pipeline of a variant",
    "spec.validators": "no equivalent: write functions into Kptfiles or spec.pipeline of a variant",
    "spec.upstream": "no equivalent: name the upstream in a PackageVariant",
}
"""Fields of Repositories that mean something to Porch and nothing here."""


class Note(NamedTuple):
    """A change of an object, or the reason why it is left out; those that concern `many` are printed once."""

    text: str
    subject: str
    many: bool = False


class Conversion(NamedTuple):
    """Manifests by their kind, and what has no equivalent."""

    manifests: Mapping[str, str]
    notes: tuple[Note, ...]

    def lines(self) -> Iterator[str]:
        """Yield the notes, one line for each object and change."""
        yield from (f"{note.subject}: {note.text}" for note in self.notes if not note.many)
        for text in dict.fromkeys(note.text for note in self.notes if note.many):
            group = [note.subject for note in self.notes if note.text == text]
            yield f"{some(group, _MOST_NAMES)}: {text}"


def convert_export(exports: Mapping[str, bytes]) -> Conversion:
    """Convert Repositories, PackageVariantSets and PackageVariants of files, by their names.

    Status, fields that a cluster sets and variants that a set of the export owns are left out. A variant of a
    package that Porch has created adopts it. Addresses in place of Repositories become Repositories.

    Raises:
        ConfigurationError: The only file is not YAML or JSON, or no file has an object of these kinds.
    """
    notes: list[Note] = []
    items = [
        (name, item) for name, data in exports.items() for item in _objects(name, data, notes, len(exports))
    ]
    objects = [item for _, item in items]
    sets = {
        _key(item): str(mapping_at(item, "metadata").get("uid", ""))
        for item in objects
        if item.get("kind") == "PackageVariantSet" and _convert(item, [], {}) is not None
    }
    owners = [_owner(item, sets) for item in objects]
    owned = Counter(owner for owner in owners if owner)
    converted: dict[str, dict[str, Any]] = {}
    files: dict[str, str] = {}
    for (file, item), owner in zip(items, owners, strict=True):
        if owner or (manifest := _convert(item, notes, owned)) is None:
            continue
        subject = _key(manifest)
        if converted.setdefault(subject, manifest) != manifest:
            text = f"the one of {file} is left out (that of {files[subject]} has the same name)"
            notes.append(Note(text, subject))
        files.setdefault(subject, file)
    if not converted:
        message = f"{', '.join(exports)} has no Repository, PackageVariant or PackageVariantSet of {GROUP}"
        hint = "Export them: kubectl get packagevariants -A -o yaml. Name packages themselves to read inside."
        raise ConfigurationError(message, hint=hint)
    _settle_repositories(converted, notes)
    for subject, manifest in converted.items():
        notes += (Note(text, subject, text == _NO_APPROVAL) for text in _settle(manifest, converted))
    for owner, n in owned.items():
        variants = f"{plural(n, 'PackageVariant')} of a set {verb(n, 'is', 'are')}"
        notes.append(Note(f"{variants} left out: the set makes them", owner))
    texts: dict[str, str] = {}
    for kind in _MODELS:
        group = [converted[key] for key in sorted(converted) if key.startswith(f"{kind} ")]
        texts |= {kind: "---\n".join(f"{emit(manifest)}\n" for manifest in group)} if group else {}
    return Conversion(texts, tuple(dict.fromkeys(notes)))


def _objects(name: str, data: bytes, notes: list[Note], files: int) -> Iterator[dict[str, Any]]:
    try:
        documents = load_documents(data, SNAPSHOT_LIMITS)
    except YamlError as error:
        if files == 1:
            raise ConfigurationError(str(error), location=Location(name)) from error
        notes.append(Note(f"left out, it is not YAML: {error}", name))
        return
    for document in documents:
        yield from _flatten(document.value)


def _flatten(value: Any) -> Iterator[dict[str, Any]]:
    if not isinstance(value, dict):
        return
    items = value.get("items")
    if str(value.get("kind", "")).endswith("List") and isinstance(items, list):
        item_kind = str(value["kind"]).removesuffix("List")
        typed = {"apiVersion": value.get("apiVersion"), "kind": item_kind} if item_kind else {}
        for item in items:
            if isinstance(item, dict):
                yield from _flatten({**typed, **item})
    else:
        yield value


# One object


def _convert(item: dict[str, Any], notes: list[Note], owned: Mapping[str, int]) -> dict[str, Any] | None:
    kind, group = str(item.get("kind", "")), str(item.get("apiVersion", "")).partition("/")[0]
    if group != GROUP or kind not in _MODELS:
        is_porch = group in {GROUP, "porch.kpt.dev"}
        text = _IN_GIT if is_porch else "not of Porch: `reconciler snapshot import` takes what sets select"
        notes.append(Note(f"left out, {text}", f"every {kind or 'object without a kind'}"))
        return None
    metadata = mapping_at(item, "metadata")
    if metadata.get("deletionTimestamp") and kind != "Repository":
        notes.append(Note(_DELETED, _key(item)))
        return None
    copied = {name: metadata[name] for name in _METADATA if metadata.get(name)}
    annotations = {k: v for k, v in mapping_at(copied.pop("annotations", None)).items() if k != _APPLIED}
    manifest = {
        "apiVersion": item["apiVersion"],
        "kind": kind,
        "metadata": {**copied, "annotations": annotations} if annotations else copied,
        "spec": deepcopy(mapping_at(item, "spec")),
    }
    subject = _key(manifest)
    if kind == "PackageVariantSet" and item["apiVersion"] != PACKAGE_VARIANT_SET:
        migrated = _migrate(manifest, notes)
        if migrated is None:
            return None
        manifest = migrated
    if kind == "Repository" and manifest["spec"].get("type", "git") != "git":
        notes.append(Note("left out, only Git repositories are read", subject))
        return None
    if kind == "Repository":
        notes += [
            Note(f"{path} is left out ({why})", subject)
            for path, why in _DROPPED.items()
            if _remove(manifest, path.split("."))
        ]
    elif owned.get(subject) or mapping_at(item, "status").get("downstreamTargets"):
        _adopt(manifest)
        notes.append(Note(_ADOPTED, subject))
    for owner in mappings_at(metadata, "ownerReferences"):
        if kind == "PackageVariant" and owner.get("kind") == "PackageVariantSet":
            notes.append(Note(_WITHOUT_SET.format(f"{_namespace(item)}/{owner.get('name', '')}"), subject))
    notes += _without_unknown(manifest, subject)
    return manifest


def _migrate(manifest: dict[str, Any], notes: list[Note]) -> dict[str, Any] | None:
    """Return a set of v1alpha1 as one of v1alpha2, None if it cannot be translated."""
    current = {**manifest, "apiVersion": PACKAGE_VARIANT_SET}
    version = f"apiVersion: {manifest['apiVersion']} -> {PACKAGE_VARIANT_SET}"
    if isinstance(parse_model(PackageVariantSet, current), PackageVariantSet):
        notes.append(Note(f"{version} (its fields are of that version)", _key(manifest)))
        return current
    if lost := untranslated_fields(manifest):
        text = f"left out, {', '.join(lost[:_MOST_NAMES])} of v1alpha1 cannot be translated"
        notes.append(Note(text, _key(manifest)))
        return None
    notes.append(Note(f"{version}, with its fields (no Porch serves the old one any more)", _key(manifest)))
    (document,) = load_documents(migrate_set(manifest).encode())
    migrated: dict[str, Any] = document.value
    return migrated


def _adopt(manifest: dict[str, Any]) -> None:
    """Let a variant take over what Porch made for it, whatever its policy about packages of others is."""
    spec = manifest["spec"]
    if manifest["kind"] == "PackageVariant":
        spec["adoptionPolicy"] = "adoptExisting"
        return
    for target in mappings_at(spec, "targets"):
        target["template"] = {**mapping_at(target, "template"), "adoptionPolicy": "adoptExisting"}


def _without_unknown(manifest: dict[str, Any], subject: str) -> Iterator[Note]:
    """Remove the fields that do not exist here, apart from misspelt ones; yield them."""
    for error in parse_partly(_MODELS[manifest["kind"]], manifest).errors:
        if error.of_key and not error.meant:
            _remove(manifest, error.path)
            yield Note(f"{field_text(error.path)} is left out (it has no equivalent)", subject)


# Several objects


def _settle_repositories(converted: dict[str, dict[str, Any]], notes: list[Note]) -> None:
    """Replace addresses by the names of Repositories, and note the Repositories that are missing."""
    named: dict[str, str] = {}
    taken = {
        (_namespace(manifest), str(place.get(field)))
        for manifest in converted.values()
        for place, field, _ in _repository_fields(manifest)
    }
    for subject, manifest in list(converted.items()):
        namespace = _namespace(manifest)
        for place, field, is_deployed in _repository_fields(manifest):
            name = place.get(field)
            if not isinstance(name, str) or not name:
                continue
            if "/" in name or "@" in name:
                place[field] = _repository_at(
                    name, namespace, converted, taken, notes, is_deployed=is_deployed
                )
                text = f"{name} -> {place[field]} (manifests name Repositories, not addresses)"
                notes.append(Note(text, subject))
            elif f"Repository {namespace}/{name}" not in converted:
                options = f" --namespace {namespace}" if namespace != "default" else ""
                options += " --deployment" if is_deployed else ""
                named[f"Repository {namespace}/{name}"] = f"reconciler repo add {name} URL{options}"
    text = "it is named and was not exported: register it with"
    notes += (Note(f"{text} `{command}`", subject) for subject, command in sorted(named.items()))


def _repository_fields(manifest: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], str, bool]]:
    if manifest["kind"] == "Repository":
        return
    spec = manifest["spec"]
    yield mapping_at(spec, "upstream"), "repo", False
    yield mapping_at(spec, "downstream"), "repo", True
    for target in mappings_at(spec, "targets"):
        yield from ((repository, "name", True) for repository in mappings_at(target, "repositories"))
        yield mapping_at(target, "template", "downstream"), "repo", True


def _repository_at(
    address: str,
    namespace: str,
    converted: dict[str, dict[str, Any]],
    taken: set[tuple[str, str]],
    notes: list[Note],
    *,
    is_deployed: bool,
) -> str:
    """Return the name of the Repository at an address; one is made if there is none.

    Its name is none of those `taken`, which may be of a Repository that was not exported.
    """
    url, names = normalise_url(address), {name for place, name in taken if place == namespace}
    for manifest in converted.values():
        if manifest["kind"] == "Repository" and _namespace(manifest) == namespace:
            names.add(manifest["metadata"]["name"])
            if normalise_url(str(mapping_at(manifest["spec"], "git").get("repo", ""))) == url:
                return str(manifest["metadata"]["name"])
    last = re.sub(r"[^a-z0-9]+", "-", url.rpartition("/")[2].lower()).strip("-") or "repository"
    candidates = chain([last], (f"{last}-{number}" for number in count(2)))
    name = next(candidate for candidate in candidates if candidate not in names)
    spec = {"type": "git", **({"deployment": True} if is_deployed else {}), "git": {"repo": address}}
    metadata = {"name": name, "namespace": namespace}
    made = {"apiVersion": REPOSITORY, "kind": "Repository", "metadata": metadata, "spec": spec}
    converted[_key(made)] = made
    notes.append(Note(f"made for the address {address}, with its branch main", _key(made)))
    return name


def _settle(manifest: dict[str, Any], converted: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Write a variant or set as it is meant here; yield what was changed and why."""
    if manifest["kind"] == "Repository":
        return
    spec = manifest["spec"]
    if upstream := mapping_at(spec, "upstream"):
        repository = converted.get(f"Repository {_namespace(manifest)}/{upstream.get('repo')}", {})
        git = mapping_at(repository, "spec", "git")
        yield from _settle_upstream(upstream, str(git.get("branch") or "main") if git else "")
    targets = spec.get("targets")
    templates = [("spec", spec)] if manifest["kind"] == "PackageVariant" else []
    templates += [
        (f"spec.targets[{index}].template", template)
        for index, target in enumerate(targets if isinstance(targets, list) else ())
        if (template := mapping_at(mapping_at(target).get("template")))
    ]
    for place, template in templates:
        if injector := mapping_at(template, "injectors"):
            template["injectors"] = [injector]
            yield f"{place}.injectors -> a list of one (it is a list)"
        for name, value in list(mapping_at(template, "labels").items()):
            if label_error(name, "") == "" and (why := label_error(name, value)):
                del template["labels"][name]
                template["annotations"] = {**mapping_at(template, "annotations"), name: value}
                yield f"{place}.labels.{name} -> annotations ({why})"
        if _NEPHIO_APPROVAL in mapping_at(template, "annotations"):
            yield _NO_APPROVAL


def _settle_upstream(upstream: dict[str, Any], branch: str) -> Iterator[str]:
    """Write what selects the upstream as it is called here; `branch` is its Repository's, "" if unknown."""
    revision, workspace = upstream.get("revision"), upstream.get("workspaceName")
    number = str(revision).removeprefix("v")
    is_name = isinstance(revision, str) and not number.lstrip("-").isdecimal()
    if number == "-1" and workspace:
        del upstream["revision"]
        yield "spec.upstream.revision: -1 is left out (Porch ignores it beside a workspaceName)"
    if is_name and workspace not in (None, "", revision):
        return
    name = workspace or (revision if is_name else "")
    if branch and (name == branch or (number == "-1" and not workspace)):
        before = f"workspaceName: {workspace}" if workspace else f"revision: {revision}"
        for field in ("revision", "workspaceName"):
            upstream.pop(field, None)
        upstream["branch"] = branch
        yield f"spec.upstream.{before} -> branch: {branch} ({_FOLLOWED})"
    elif is_name:
        del upstream["revision"]
        field, why = "workspaceName", "numbers are revisions, names are workspaces"
        if _is_range(str(revision)):
            field, why = "version", "it is a range of versions"
        upstream[field] = revision
        yield f"spec.upstream.revision: {revision} -> {field}: {revision} ({why})"


def _is_range(text: str) -> bool:
    """Tell whether a text is a range of versions and no version, nor the name of a workspace."""
    try:
        parse_constraint(text, Grammar.MASTERMINDS)
    except VersionError:
        return False
    return re.search(r"[<>=^~*, ]|\.x\b", text) is not None


def _owner(item: Mapping[str, Any], sets: Mapping[str, str]) -> str:
    """Return the set of the export that owns a variant, by its reference or label; empty if none does."""
    if item.get("kind") != "PackageVariant":
        return ""
    uids = {str(reference.get("uid")) for reference in mappings_at(item, "metadata", "ownerReferences")}
    uids.add(str(mapping_at(item, "metadata", "labels").get(SET_LABEL)))
    return next((name for name, uid in sets.items() if uid and uid in uids), "")


def _key(item: Mapping[str, Any]) -> str:
    metadata = mapping_at(item, "metadata")
    return f"{item.get('kind')} {metadata.get('namespace') or 'default'}/{metadata.get('name', '')}"


def _remove(value: Any, path: Iterable[str | int]) -> bool:
    *parents, last = path
    for step in parents:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return False
    return isinstance(value, dict) and value.pop(last, None) is not None


def _namespace(manifest: Mapping[str, Any]) -> str:
    return str(mapping_at(manifest, "metadata").get("namespace") or "default")
