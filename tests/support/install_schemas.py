"""What three package managers accept, field for field: strict schemas from the public facts about each.

A schema here is a mapping of field to check, a final `_` marking the required ones; a field that is not
named is refused, as an API server that validates strictly does.

Source: crossplane, cluster/crds/pkg.crossplane.io_{providers,functions,configurations}.yaml, with the pattern
of `spec.package` and the enums of the Go types; kapp-controller, config/config/crds.yml,
packageinstalls.packaging.carvel.dev; Porter, pkg/schema/installation.schema.json of its branch release/v1.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

Check = Callable[[Any, str], list[str]]


def text(pattern: str = r".+") -> Check:
    def check(value: Any, path: str) -> list[str]:
        fits = isinstance(value, str) and re.fullmatch(pattern, value)
        return [] if fits else [f"{path}: {value!r} is not {pattern}"]

    return check


def flag(value: Any, path: str) -> list[str]:
    return [] if isinstance(value, bool) else [f"{path}: {value!r} is no boolean"]


def number(value: Any, path: str) -> list[str]:
    fits = isinstance(value, int) and not isinstance(value, bool)
    return [] if fits else [f"{path}: {value!r} is no integer"]


def anything(value: Any, path: str) -> list[str]:
    del value, path
    return []


def words(value: Any, path: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{path}: {value!r} is no mapping"]
    return [f"{path}.{k}: {v!r} is no string" for k, v in value.items() if not isinstance(v, str)]


def many(one: Check) -> Check:
    def check(value: Any, path: str) -> list[str]:
        if not isinstance(value, list):
            return [f"{path}: {value!r} is no list"]
        return [wrong for number_, item in enumerate(value) for wrong in one(item, f"{path}[{number_}]")]

    return check


def record(**fields: Check) -> Check:
    """Return the check of a mapping; a field whose name ends with `_` must be there."""
    known = {name.rstrip("_"): check for name, check in fields.items()}
    required = {name.rstrip("_") for name in fields if name.endswith("_")}

    def check(value: Any, path: str) -> list[str]:
        if not isinstance(value, dict):
            return [f"{path}: {value!r} is no mapping"]
        wrong = [f"{path}.{name}: unknown field" for name in sorted(value.keys() - known.keys())]
        wrong += [f"{path}.{name}: missing" for name in sorted(required - value.keys())]
        for name in sorted(value.keys() & known.keys()):
            wrong += known[name](value[name], f"{path}.{name}")
        return wrong

    return check


def exactly_one(fields: tuple[str, ...], mapping: Check) -> Check:
    """Return the check of a mapping that has one of some fields, and no other one of them."""

    def check(value: Any, path: str) -> list[str]:
        given = [name for name in fields if isinstance(value, dict) and name in value]
        count = [] if len(given) == 1 else [f"{path}: {given} is not exactly one of {fields}"]
        return [*mapping(value, path), *count]

    return check


LABEL = text(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
NAME = text(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
SECRETS = many(record(name_=NAME))
META = record(name_=NAME, labels=words, annotations=words)
SCOPED = record(name_=NAME, namespace_=LABEL, labels=words, annotations=words)
IMAGE = text(
    r"[^/:@\s]+\.[^/@\s]+(/[^/:@\s]+)+(:[\w][\w.-]{0,127}(@sha256:[0-9a-f]{64})?|@sha256:[0-9a-f]{64})"
)
PACKAGE = {
    "package_": IMAGE,
    "revisionActivationPolicy": text("Automatic|Manual"),
    "revisionHistoryLimit": number,
    "packagePullSecrets": SECRETS,
    "packagePullPolicy": text("Always|IfNotPresent|Never"),
    "ignoreCrossplaneConstraints": flag,
    "skipDependencyResolution": flag,
    "commonLabels": words,
    "commonAnnotations": words,
}
RUNTIME = record(apiVersion=text(), kind=text(), name_=NAME)
SECRET_KEY = record(name_=NAME, key=text())
INSTALL = record(
    serviceAccountName=NAME,
    cluster=record(namespace=LABEL, kubeconfigSecretRef=SECRET_KEY),
    packageRef_=record(
        refName_=text(r"[a-z0-9-]+(\.[a-z0-9-]+)+"),
        versionSelection_=record(constraints=text(), prereleases=record(identifiers=many(text()))),
    ),
    values=many(record(secretRef_=SECRET_KEY)),
    paused=flag,
    canceled=flag,
    syncPeriod=text(),
    noopDelete=flag,
    defaultNamespace=LABEL,
)


def _object(kind: str, version: str, metadata: Check, spec: Check) -> Check:
    return record(apiVersion_=text(re.escape(version)), kind_=text(kind), metadata_=metadata, spec_=spec)


SCHEMAS: Mapping[str, Check] = {
    "Provider": _object("Provider", "pkg.crossplane.io/v1", META,
        record(**PACKAGE, runtimeConfigRef=RUNTIME)),
    "Function": _object("Function", "pkg.crossplane.io/v1", META,
        record(**PACKAGE, runtimeConfigRef=RUNTIME)),
    "Configuration": _object("Configuration", "pkg.crossplane.io/v1", META, record(**PACKAGE)),
    "PackageInstall": _object("PackageInstall", "packaging.carvel.dev/v1alpha1", SCOPED, INSTALL),
    "Installation": record(schemaType_=text("Installation"), schemaVersion_=text(r"1\.0\.2"), name_=text(),
        namespace=text(r"|[\w.-]+"), labels=words,
        bundle_=exactly_one(("version", "digest", "tag"),
        record(repository_=text(r"[^/:@\s]+\.[^/@\s]+(/[^/:@\s]+)+"), digest=text("sha256:[0-9a-f]{64}"),
        version=text(r"\d+\.\d+\.\d+([-+].+)?"), tag=text())), parameterSets=many(text()),
        credentialSets=many(text()), parameters=words, custom=anything),
}  # fmt: skip


def faults(document: Mapping[str, Any]) -> list[str]:
    """Return why the controller of a document's kind would refuse it; nothing if it would not."""
    kind = str(document.get("kind") or document.get("schemaType"))
    return SCHEMAS[kind](document, kind) if kind in SCHEMAS else [f"{kind}: nobody's kind"]
