"""Porch's validation of PackageVariants and PackageVariantSets: its messages, its order, all at once."""

from collections.abc import Iterator, Sequence

import orjson

from reconciler.api.porch import (
    Downstream,
    FunctionTemplate,
    InjectionSelector,
    InjectionSelectorTemplate,
    MapExpr,
    ObjectSelector,
    PackageContext,
    PackageVariantSetSpec,
    PackageVariantSpec,
    RepositoryTarget,
    Target,
    Upstream,
    VariantTemplate,
)
from reconciler.expand.findings import (
    NO_DOTS,
    NO_RESERVED_KEY,
    ONE_OF_SEVERAL,
    ONE_OF_TWO,
    Finding,
    field_name,
)
from reconciler.inventory.inventory import FieldPath

RESERVED_KEYS = ("name", "package-path")
ADOPTION = ("adoptNone", "adoptExisting")
DELETION = ("orphan", "delete")
SELECTORS = "must specify one of `repositories`, `repositorySelector`, or `objectSelector`"
_ADD = "Add the field."
_EITHER = "Write one of the two, or remove the field."
_FILL = "Give it a value."


def validate_set(spec: PackageVariantSetSpec) -> tuple[Finding, ...]:
    """Return Porch's findings for a PackageVariantSet, in its words and order.

    Source: porch packagevariantset validate.go, validatePackageVariantSet.
    Differs: tag, version and branch satisfy the last check of the upstream too, and `spec.upstreams`
    may be there in its place.
    """
    findings = [*(_upstream(spec.upstream) if spec.upstreams is None else ())]
    for index, upstream in enumerate(spec.upstreams or ()):
        findings += _upstream(upstream, ("spec", "upstreams", index))
    if not spec.targets:
        message = "must specify at least one item in spec.targets"
        findings.append(Finding(("spec", "targets"), message, hint="Add a target."))
    for index, target in enumerate(spec.targets or ()):
        findings += _target(target, ("spec", "targets", index))
    return tuple(findings)


def _upstream(upstream: Upstream | None, path: FieldPath = ("spec", "upstream")) -> Iterator[Finding]:
    name = field_name(path)
    if upstream is None:
        yield Finding(path, f"{name} is a required field", hint=_ADD)
        return
    if not upstream.package:
        yield Finding((*path, "package"), f"{name}.package is a required field", hint=_ADD)
    if not upstream.repo:
        yield Finding((*path, "repo"), f"{name}.repo is a required field", hint=_ADD)
    floating = upstream.tag or upstream.version or upstream.branch
    if not upstream.revision and not upstream.workspace_name and not floating:
        message = f"either {name}.revision or {name}.workspaceName must be specified"
        yield Finding(path, message, hint="Give one of them.")


def _target(target: Target, path: FieldPath) -> Iterator[Finding]:
    if target.repositories is not None:
        yield from _repositories(target.repositories, (*path, "repositories"))
    if target.object_selector is not None:
        yield from _object_selector(target.object_selector, path)
    choices = (target.repositories, target.repository_selector, target.object_selector)
    # An empty list is given too, so test for None.
    if sum(selector is not None for selector in choices) != 1:
        yield Finding(path, f"{field_name(path)} {SELECTORS}", hint="Give exactly one of them.")
    if target.template is not None:
        yield from _template(target.template, (*path, "template"))


def _repositories(repositories: Sequence[RepositoryTarget], path: FieldPath) -> Iterator[Finding]:
    if not repositories:
        yield Finding(path, f"{field_name(path)} must not be an empty list if specified", hint=_FILL)
    for index, repository in enumerate(repositories):
        if not repository.name:
            yield _at((*path, index, "name"), "cannot be empty", _FILL)
        for position, name in enumerate(repository.package_names or ()):
            if not name:
                yield _at((*path, index, "packageNames", position), "cannot be empty", _FILL)


def _object_selector(selector: ObjectSelector, path: FieldPath) -> Iterator[Finding]:
    for name, value in (("apiVersion", selector.api_version), ("kind", selector.kind)):
        if not value:
            # The lower case is Porch's.
            message = f"{field_name(path)}.objectselector.{name} cannot be empty"
            yield Finding((*path, "objectSelector", name), message, hint=_FILL)


def _template(template: VariantTemplate, path: FieldPath) -> Iterator[Finding]:
    # In Porch's order, because all messages are joined into one condition.
    if template.adoption_policy is not None and template.adoption_policy not in ADOPTION:
        yield _at((*path, "adoptionPolicy"), 'can only be "adoptNone" or "adoptExisting"', _EITHER)
    if template.deletion_policy is not None and template.deletion_policy not in DELETION:
        yield _at((*path, "deletionPolicy"), 'can only be "orphan" or "delete"', _EITHER)
    downstream = template.downstream
    if downstream is not None:
        if downstream.repo is not None and downstream.repo_expr is not None:
            yield _both((*path, "downstream"), path, "downstream.repo", "downstream.repoExpr")
        if downstream.package is not None and downstream.package_expr is not None:
            yield _both((*path, "downstream"), path, "downstream.package", "downstream.packageExpr")
    yield from map_entries(template.label_exprs, (*path, "labelExprs"))
    yield from map_entries(template.annotation_exprs, (*path, "annotationExprs"))
    if template.package_context is not None:
        yield from map_entries(template.package_context.data_exprs, (*path, "packageContext", "dataExprs"))
    yield from _injector_templates(template.injectors or [], (*path, "injectors"))
    if template.pipeline is not None:
        yield from _functions(template.pipeline.validators or [], (*path, "pipeline", "validators"))
        yield from _functions(template.pipeline.mutators or [], (*path, "pipeline", "mutators"))


def map_entries(entries: Sequence[MapExpr] | None, path: FieldPath) -> Iterator[Finding]:
    """Yield findings for entries that set key or value twice."""
    for index, entry in enumerate(entries or ()):
        at = (*path, index)
        if entry.key is not None and entry.key_expr is not None:
            yield _both(at, at, "key", "keyExpr")
        if entry.value is not None and entry.value_expr is not None:
            yield _both(at, at, "value", "valueExpr")


def _injector_templates(injectors: Sequence[InjectionSelectorTemplate], path: FieldPath) -> Iterator[Finding]:
    for index, injector in enumerate(injectors):
        at = (*path, index)
        if injector.name is not None and injector.name_expr is not None:
            yield _both(at, at, "name", "nameExpr")
        if injector.name is None and injector.name_expr is None:
            yield _at(at, "must specify either `name` or `nameExpr`", ONE_OF_TWO)


def _functions(functions: Sequence[FunctionTemplate], path: FieldPath) -> Iterator[Finding]:
    for index, function in enumerate(functions):
        if not function.image:
            yield _at((*path, index, "image"), "must not be empty", _FILL)
        if "." in (function.name or ""):
            yield _at((*path, index, "name"), "must not contain '.'", NO_DOTS)


def _at(path: FieldPath, message: str, hint: str) -> Finding:
    return Finding(path, f"{field_name(path)} {message}", hint=hint)


def _both(at: FieldPath, field_path: FieldPath, field: str, other: str) -> Finding:
    message = f"{field_name(field_path)} may specify only one of `{field}` and `{other}`"
    return Finding(at, message, hint=ONE_OF_SEVERAL)


def validate_variant(spec: PackageVariantSpec) -> tuple[Finding, ...]:
    """Return Porch's findings for a PackageVariant, in its words and order.

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
    """Return Porch's findings for an upstream."""
    path: FieldPath = ("spec", "upstream")
    if upstream is None:
        return (Finding(path, "missing required field spec.upstream", hint=_ADD),)
    if upstream.repo and upstream.package:
        return ()
    return tuple(
        Finding((*path, name), f"missing required field spec.upstream.{name}", hint=_ADD)
        for name, value in (("repo", upstream.repo), ("package", upstream.package))
        if not value
    )


def _downstream(downstream: Downstream | None) -> Iterator[Finding]:
    path: FieldPath = ("spec", "downstream")
    if downstream is None:
        yield Finding(path, "missing required field spec.downstream", hint=_ADD)
        return
    for name, value in (("repo", downstream.repo), ("package", downstream.package)):
        if not value:
            yield Finding((*path, name), f"missing required field spec.downstream.{name}", hint=_ADD)


def _policies(spec: PackageVariantSpec) -> Iterator[Finding]:
    if spec.adoption_policy and spec.adoption_policy not in ADOPTION:
        message = 'spec.adoptionPolicy field can only be "adoptNone" or "adoptExisting"'
        yield Finding(("spec", "adoptionPolicy"), message, hint=_EITHER)
    if spec.deletion_policy and spec.deletion_policy not in DELETION:
        message = 'spec.deletionPolicy can only be "orphan" or "delete"'
        yield Finding(("spec", "deletionPolicy"), message, hint=_EITHER)


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
    return Finding((*path, key) if field == "data" else path, message, hint=NO_RESERVED_KEY)


def _injectors(injectors: list[InjectionSelector]) -> Iterator[Finding]:
    for index, injector in enumerate(injectors):
        if not injector.name:
            path = ("spec", "injectors", index, "name")
            yield Finding(path, f"spec.injectors[{index}].name must not be empty", hint=_FILL)


def go_json(value: object) -> str:
    """Return JSON as Go's encoding/json writes it: compact, keys sorted, `<>&` and separators escaped."""
    text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
