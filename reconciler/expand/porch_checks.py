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
from reconciler.expand.findings import Finding, field_name
from reconciler.inventory.inventory import FieldPath

RESERVED_KEYS = ("name", "package-path")
ADOPTION = ("adoptNone", "adoptExisting")
DELETION = ("orphan", "delete")
SELECTORS = "must specify one of `repositories`, `repositorySelector`, or `objectSelector`"


def validate_set(spec: PackageVariantSetSpec) -> tuple[Finding, ...]:
    """Return Porch's findings for a PackageVariantSet, in its words and order.

    Source: porch packagevariantset validate.go, validatePackageVariantSet.
    Differs: tag, version and branch satisfy the last check of the upstream too.
    """
    findings = [*_upstream(spec.upstream)]
    if not spec.targets:
        findings.append(Finding(("spec", "targets"), "must specify at least one item in spec.targets"))
    for index, target in enumerate(spec.targets or ()):
        findings += _target(target, ("spec", "targets", index))
    return tuple(findings)


def _upstream(upstream: Upstream | None) -> Iterator[Finding]:
    path: FieldPath = ("spec", "upstream")
    if upstream is None:
        yield Finding(path, "spec.upstream is a required field")
        return
    if not upstream.package:
        yield Finding((*path, "package"), "spec.upstream.package is a required field")
    if not upstream.repo:
        yield Finding((*path, "repo"), "spec.upstream.repo is a required field")
    floating = upstream.tag or upstream.version or upstream.branch
    if not upstream.revision and not upstream.workspace_name and not floating:
        yield Finding(path, "either spec.upstream.revision or spec.upstream.workspaceName must be specified")


def _target(target: Target, path: FieldPath) -> Iterator[Finding]:
    if target.repositories is not None:
        yield from _repositories(target.repositories, (*path, "repositories"))
    if target.object_selector is not None:
        yield from _object_selector(target.object_selector, path)
    given = (target.repositories, target.repository_selector, target.object_selector)
    # An empty list is given too, so test for None.
    if sum(selector is not None for selector in given) != 1:
        yield Finding(path, f"{field_name(path)} {SELECTORS}")
    if target.template is not None:
        yield from _template(target.template, (*path, "template"))


def _repositories(repositories: Sequence[RepositoryTarget], path: FieldPath) -> Iterator[Finding]:
    if not repositories:
        yield Finding(path, f"{field_name(path)} must not be an empty list if specified")
    for index, repository in enumerate(repositories):
        if not repository.name:
            yield _at((*path, index, "name"), "cannot be empty")
        for place, name in enumerate(repository.package_names or ()):
            if not name:
                yield _at((*path, index, "packageNames", place), "cannot be empty")


def _object_selector(selector: ObjectSelector, path: FieldPath) -> Iterator[Finding]:
    for name, value in (("apiVersion", selector.api_version), ("kind", selector.kind)):
        if not value:
            # The lower case is Porch's.
            message = f"{field_name(path)}.objectselector.{name} cannot be empty"
            yield Finding((*path, "objectSelector", name), message)


def _template(template: VariantTemplate, path: FieldPath) -> Iterator[Finding]:
    # In Porch's order, because all messages are joined into one condition.
    if template.adoption_policy is not None and template.adoption_policy not in ADOPTION:
        yield _at((*path, "adoptionPolicy"), 'can only be "adoptNone" or "adoptExisting"')
    if template.deletion_policy is not None and template.deletion_policy not in DELETION:
        yield _at((*path, "deletionPolicy"), 'can only be "orphan" or "delete"')
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
            yield _at(at, "must specify either `name` or `nameExpr`")


def _functions(functions: Sequence[FunctionTemplate], path: FieldPath) -> Iterator[Finding]:
    for index, function in enumerate(functions):
        if not function.image:
            yield _at((*path, index, "image"), "must not be empty")
        if "." in (function.name or ""):
            yield _at((*path, index, "name"), "must not contain '.'")


def _at(path: FieldPath, message: str) -> Finding:
    return Finding(path, f"{field_name(path)} {message}")


def _both(at: FieldPath, shown: FieldPath, field: str, other: str) -> Finding:
    return Finding(at, f"{field_name(shown)} may specify only one of `{field}` and `{other}`")


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
        return (Finding(path, "missing required field spec.upstream"),)
    if upstream.repo and upstream.package:
        return ()
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
