"""Porch's validation of a PackageVariant: its messages, its order, all at once."""

from collections.abc import Iterator

import orjson

from reconciler.api.porch import Downstream, InjectionSelector, PackageContext, PackageVariantSpec, Upstream
from reconciler.expand.findings import Finding
from reconciler.inventory import FieldPath

RESERVED_KEYS = ("name", "package-path")

ADOPTION = ("adoptNone", "adoptExisting")
DELETION = ("orphan", "delete")


def validate_variant(spec: PackageVariantSpec) -> tuple[Finding, ...]:
    """Return what Porch would say about a PackageVariant, in its words and order.

    Source: porch packagevariant_controller.go, validatePackageVariant.
    Differs: `spec.upstream.revision` is not overwritten.
    """
    return (
        *validate_upstream(spec.upstream),
        *_downstream(spec.downstream),
        *_policies(spec),
        *_context(spec.package_context),
        *_injectors(spec.injectors or []),
    )


def validate_upstream(upstream: Upstream | None) -> tuple[Finding, ...]:
    """Return what Porch would say about an upstream."""
    path: FieldPath = ("spec", "upstream")
    if upstream is None:
        return (Finding(path, "missing required field spec.upstream"),)
    return tuple(
        Finding((*path, name), f"missing required field spec.upstream.{name}")
        for name, value in (("repo", upstream.repo), ("package", upstream.package))
        if not value
    )


def _downstream(downstream: Downstream | None) -> Iterator[Finding]:
    path: FieldPath = ("spec", "downstream")
    if downstream is None:
        yield Finding(path, "missing required field spec.downstream")
        return
    for name, value in (("repo", downstream.repo), ("package", downstream.package)):
        if not value:
            yield Finding((*path, name), f"missing required field spec.downstream.{name}")


def _policies(spec: PackageVariantSpec) -> Iterator[Finding]:
    if spec.adoption_policy and spec.adoption_policy not in ADOPTION:
        message = 'spec.adoptionPolicy field can only be "adoptNone" or "adoptExisting"'
        yield Finding(("spec", "adoptionPolicy"), message)
    if spec.deletion_policy and spec.deletion_policy not in DELETION:
        yield Finding(("spec", "deletionPolicy"), 'spec.deletionPolicy can only be "orphan" or "delete"')


def _context(context: PackageContext | None) -> Iterator[Finding]:
    if context is None:
        return
    path = ("spec", "packageContext")
    for reserved in RESERVED_KEYS:
        if reserved in (context.data or {}):
            yield _reserved((*path, "data"), "data", context.data, reserved)
        for index, key in enumerate(context.remove_keys or ()):
            if key == reserved:
                yield _reserved((*path, "removeKeys", index), "removeKeys", context.remove_keys, reserved)


def _reserved(path: FieldPath, field: str, value: object, key: str) -> Finding:
    message = (
        f'spec.packageContext.{field}: Invalid value: {go_json(value)}: must not contain the key "{key}"'
    )
    return Finding((*path, key) if field == "data" else path, message)


def _injectors(injectors: list[InjectionSelector]) -> Iterator[Finding]:
    for index, injector in enumerate(injectors):
        if not injector.name:
            path = ("spec", "injectors", index, "name")
            yield Finding(path, f"spec.injectors[{index}].name must not be empty")


def go_json(value: object) -> str:
    """Return JSON as Go's encoding/json writes it: compact, keys sorted, `<>&` and separators escaped."""
    text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
