"""Checks of PackageVariants and their sets: findings in Porch's words and order, then those beyond Porch's.

Beyond are errors that Porch would find only after creating objects, or never.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

import orjson
from pydantic.alias_generators import to_camel

from reconciler.api.meta import ApiModel, SelectorError, compile_selector, key_error, label_error
from reconciler.api.porch import (
    PLACEHOLDER,
    Downstream,
    Function,
    FunctionTemplate,
    InjectionSelector,
    InjectionSelectorTemplate,
    MapExpr,
    ObjectSelector,
    PackageContext,
    PackageContextTemplate,
    PackageVariantSetSpec,
    PackageVariantSpec,
    Pipeline,
    RepositoryTarget,
    Target,
    Upstream,
    VariantTemplate,
)
from reconciler.api.validation import field_text
from reconciler.base.lazy import regex
from reconciler.base.reasons import Reason
from reconciler.cel import Environment, Failure, Program
from reconciler.expand.findings import NO_DOTS, NO_RESERVED_KEY, ONE_OF_SEVERAL, ONE_OF_TWO, Finding
from reconciler.expand.template import Template, compile_template, hint_for
from reconciler.expand.variants import is_object_name
from reconciler.inventory.inventory import FieldPath, PackageState, RepositoryView
from reconciler.krm.yaml import path_text
from reconciler.names.refs import package_name_error, package_path_error, relative_package

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
        findings += _porch_target(target, ("spec", "targets", index))
    return tuple(findings)


def _upstream(upstream: Upstream | None, path: FieldPath = ("spec", "upstream")) -> Iterator[Finding]:
    if upstream is None:
        yield _at(path, "is a required field", _ADD)
        return
    for field in ("package", "repo"):
        if not getattr(upstream, field):
            yield _at((*path, field), "is a required field", _ADD)
    floating = upstream.tag or upstream.version or upstream.branch
    if not upstream.revision and not upstream.workspace_name and not floating:
        name = path_text(path)
        message = f"either {name}.revision or {name}.workspaceName must be specified"
        where, hint = path, "Give one of them."
        if upstream.revision is not None:
            where, hint = (*path, "revision"), "Write 1 or greater, or -1 to follow the branch."
        yield Finding(where, message, hint=hint)


def _porch_target(target: Target, path: FieldPath) -> Iterator[Finding]:
    if target.repositories is not None:
        yield from _repositories(target.repositories, (*path, "repositories"))
    if target.object_selector is not None:
        yield from _object_selector(target.object_selector, path)
    choices = (target.repositories, target.repository_selector, target.object_selector)
    # An empty list is given too, so test for None.
    if sum(selector is not None for selector in choices) != 1:
        yield _at(path, SELECTORS, "Give exactly one of them.")
    if target.template is not None:
        yield from _porch_template(target.template, (*path, "template"))


def _repositories(repositories: Sequence[RepositoryTarget], path: FieldPath) -> Iterator[Finding]:
    if not repositories:
        yield _at(path, "must not be an empty list if specified", _FILL)
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
            message = f"{path_text(path)}.objectselector.{name} cannot be empty"
            yield Finding((*path, "objectSelector", name), message, hint=_FILL)


def _porch_template(template: VariantTemplate, path: FieldPath) -> Iterator[Finding]:
    # In Porch's order, because all messages are joined into one condition.
    if template.adoption_policy is not None and template.adoption_policy not in ADOPTION:
        yield _at((*path, "adoptionPolicy"), 'can only be "adoptNone" or "adoptExisting"', _EITHER)
    if template.deletion_policy is not None and template.deletion_policy not in DELETION:
        yield _at((*path, "deletionPolicy"), 'can only be "orphan" or "delete"', _EITHER)
    for field in ("repo", "package"):
        yield from _both(template.downstream, field, (*path, "downstream"), path, "downstream.")
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
        for field in ("key", "value"):
            yield from _both(entry, field, (*path, index), (*path, index))


def _injector_templates(injectors: Sequence[InjectionSelectorTemplate], path: FieldPath) -> Iterator[Finding]:
    for index, injector in enumerate(injectors):
        at = (*path, index)
        yield from _both(injector, "name", at, at)
        if injector.name is None and injector.name_expr is None:
            yield _at(at, "must specify either `name` or `nameExpr`", ONE_OF_TWO)


def _functions(functions: Sequence[FunctionTemplate], path: FieldPath) -> Iterator[Finding]:
    for index, function in enumerate(functions):
        if not function.image:
            yield _at((*path, index, "image"), "must not be empty", _FILL)
        if "." in (function.name or ""):
            yield _at((*path, index, "name"), "must not contain '.'", NO_DOTS)


def _at(path: FieldPath, message: str, hint: str) -> Finding:
    return Finding(path, f"{path_text(path)} {message}", hint=hint)


def _both(
    value: ApiModel | None, name: str, at: FieldPath, of: FieldPath, prefix: str = ""
) -> Iterator[Finding]:
    if value and getattr(value, name) is not None and getattr(value, f"{name}_expr") is not None:
        field = f"{prefix}{name}"
        message = f"{path_text(of)} may specify only one of `{field}` and `{field}Expr`"
        yield Finding(at, message, hint=ONE_OF_SEVERAL)


def validate_variant(spec: PackageVariantSpec) -> tuple[Finding, ...]:
    """Return Porch's findings for a PackageVariant, in its words and order.

    Source: porch packagevariant_controller.go, validatePackageVariant.
    Differs: `spec.upstream.revision` is not overwritten.
    """
    return (
        *validate_upstream(spec.upstream),
        *_missing(spec.downstream, ("spec", "downstream")),
        *_policies(spec),
        *_porch_context(spec.package_context),
        *_injectors(spec.injectors or []),
    )


def validate_upstream(upstream: Upstream | None) -> tuple[Finding, ...]:
    """Return Porch's findings for an upstream."""
    return tuple(_missing(upstream, ("spec", "upstream")))


def _missing(side: Upstream | Downstream | None, path: FieldPath) -> Iterator[Finding]:
    missing = [path] if side is None else [(*path, n) for n in ("repo", "package") if not getattr(side, n)]
    for field in missing:
        yield Finding(field, f"missing required field {path_text(field)}", hint=_ADD)


def _policies(spec: PackageVariantSpec) -> Iterator[Finding]:
    if spec.adoption_policy and spec.adoption_policy not in ADOPTION:
        message = 'spec.adoptionPolicy field can only be "adoptNone" or "adoptExisting"'
        yield Finding(("spec", "adoptionPolicy"), message, hint=_EITHER)
    if spec.deletion_policy and spec.deletion_policy not in DELETION:
        message = 'spec.deletionPolicy can only be "orphan" or "delete"'
        yield Finding(("spec", "deletionPolicy"), message, hint=_EITHER)


def _porch_context(context: PackageContext | None) -> Iterator[Finding]:
    if context is None:
        return
    path = ("spec", "packageContext")
    for reserved in RESERVED_KEYS:
        if reserved in (context.data or {}):
            yield _porch_reserved((*path, "data"), "data", context.data, reserved)
        for index, key in enumerate(context.remove_keys or ()):
            if key == reserved:
                at = (*path, "removeKeys", index)
                yield _porch_reserved(at, "removeKeys", context.remove_keys, reserved)


def _porch_reserved(path: FieldPath, field: str, value: object, key: str) -> Finding:
    message = f"spec.packageContext.{field}: Invalid value: {go_json(value)}"
    message += f': must not contain the key "{key}"'
    return Finding((*path, key) if field == "data" else path, message, hint=NO_RESERVED_KEY)


def _injectors(injectors: list[InjectionSelector]) -> Iterator[Finding]:
    for index, injector in enumerate(injectors):
        if not injector.name:
            yield _at(("spec", "injectors", index, "name"), "must not be empty", _FILL)


def go_json(value: object) -> str:
    """Return JSON as Go's encoding/json writes it: compact, keys sorted, `<>&` and separators escaped."""
    text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


_ONE_SELECTOR = (
    "may specify only one of `revision`, `workspaceName`, `tag`, `version` and `branch`,"
    " except `revision` with `workspaceName`"
)

_VARIABLE = regex(r"\$\{[^}]*\}|\{\{.*?\}\}")


def check_variant(name: str, spec: PackageVariantSpec) -> tuple[Finding, ...]:
    """Return the findings for an authored PackageVariant beyond Porch's own checks.

    The name matters to the pipeline: its functions are recognised by a name of four dotted parts.
    """
    findings = [*_selectors(spec.upstream, is_optional=True)]
    pipeline = spec.pipeline or Pipeline()
    if spec.mutators is not None and pipeline.mutators is not None:
        message = "spec may specify only one of `mutators` and `pipeline.mutators`"
        findings.append(Finding(("spec", "mutators"), message, hint=ONE_OF_SEVERAL))
    findings += check_labels(("spec",), spec)
    findings += check_context(("spec",), spec.package_context)
    lists: tuple[tuple[FieldPath, Sequence[Function] | None], ...] = (
        (("spec", "pipeline", "validators"), pipeline.validators),
        (("spec", "pipeline", "mutators"), pipeline.mutators),
        (("spec", "mutators"), spec.mutators),
    )
    for path, functions in lists:
        for index, function in enumerate(functions or ()):
            findings += _function(function, (*path, index))
    findings += check_name(name, has_functions=any(functions for _, functions in lists))
    return tuple(findings)


def check_labels(path: FieldPath, spec: PackageVariantSpec | VariantTemplate) -> Iterator[Finding]:
    """Yield findings for labels and annotations of package revisions that Kubernetes would refuse."""
    errors = [("labels", key, label_error(key, value)) for key, value in (spec.labels or {}).items()]
    errors += [("annotations", key, key_error(key)) for key in spec.annotations or {}]
    for name, key, why in errors:
        if why:
            at = (*path, name, key)
            hint = "Correct it, or write it in annotations, which take any text."
            message = f"{field_text(at)}: {why}"
            yield Finding(at, message, hint=hint if not key_error(key) else "Correct the key.")


def check_context(
    path: FieldPath, context: PackageContext | PackageContextTemplate | None
) -> Iterator[Finding]:
    """Yield findings for keys that a package context sets and removes, or that no ConfigMap can have."""
    at, data = (*path, "packageContext"), (context.data if context else None) or {}
    keys = enumerate((context and context.remove_keys) or ())
    removed = [(key, (*at, "removeKeys", index)) for index, key in keys]
    for key, where in (*((key, (*at, "data", key)) for key in data), *removed):
        if not key or any(map(str.isspace, key)):
            yield Finding(where, f'{path_text(where[:-1])} has the key "{key}", which no ConfigMap can have')
    for key, where in removed:
        if key in data:
            message = f'{path_text(where)} removes the key "{key}", which {path_text((*at, "data"))} sets'
            yield Finding(where, message, hint="Remove it from one of them.")


def check_name(name: str, *, has_functions: bool) -> Iterator[Finding]:
    """Yield findings for an invalid object name, or for one that breaks the names of its functions."""
    path = ("metadata", "name")
    if not is_object_name(name):
        message = f'"{name}" is not a valid object name'
        hint = (
            "Use lower-case letters, digits, - and . only, and no / in the package name."
            " A set names another package in template.downstream.package."
        )
        yield Finding(path, message, Reason.INVALID_NAME, hint)
    elif "." in name and has_functions:
        message = f"metadata.name \"{name}\" must not contain '.' where there is a pipeline"
        hint = "Write it without dots: they separate the parts of the names of its functions."
        yield Finding(path, message, Reason.INVALID_NAME, hint)


def check_set(spec: PackageVariantSetSpec, expressions: Environment) -> tuple[Finding, ...]:
    """Return the findings for a set beyond Porch's own checks, above all for its expressions.

    Every expression is checked here without any object, so that a pull request shows the fault.
    """
    findings = [*_selectors(spec.upstream), *_upstreams(spec)]
    for index, target in enumerate(spec.targets or ()):
        findings += _target(target, ("spec", "targets", index), expressions)
    return tuple(findings)


def _upstreams(spec: PackageVariantSetSpec) -> Iterator[Finding]:
    """Yield findings for the list of upstreams: each package in it is in it once, and has its own name."""
    path: FieldPath = ("spec", "upstreams")
    if spec.upstreams is None:
        return
    if spec.upstream is not None:
        yield Finding(path, "spec may specify only one of `upstream` and `upstreams`", hint=ONE_OF_SEVERAL)
    if not spec.upstreams:
        yield _at(path, "must not be an empty list if specified", "Add an upstream.")
    first: dict[str, int] = {}
    for index, upstream in enumerate(spec.upstreams):
        at = (*path, index)
        yield from _selectors(upstream, at)
        package = (upstream.package or "").strip("/")
        if package and first.setdefault(package, index) != index:
            message = f'{path_text(at)} has the package "{package}", as spec.upstreams[{first[package]}] has'
            hint = "Keep one of them. For two revisions, or two packages with one name, write two sets."
            yield Finding((*at, "package"), message, hint=hint)
    for index, target in enumerate(spec.targets or () if len(spec.upstreams) > 1 else ()):
        yield from _shared_names(target, ("spec", "targets", index))


def _shared_names(target: Target, path: FieldPath) -> Iterator[Finding]:
    """Yield findings for names of packages that all upstreams of a list would share."""
    named = [
        (*path, "repositories", index, "packageNames")
        for index, repository in enumerate(target.repositories or ())
        if repository.package_names
    ]
    downstream = target.template.downstream if target.template else None
    named += [(*path, "template", "downstream", "package")] if downstream and downstream.package else []
    for at in named:
        hint = "Remove it: each is called like its upstream. For other names write packageExpr."
        yield _at(at, "gives one name to the packages of all of spec.upstreams", hint)


def _selectors(
    upstream: Upstream | None, at: FieldPath = ("spec", "upstream"), *, is_optional: bool = False
) -> Iterator[Finding]:
    """Yield findings for the choice of a revision, which is optional in a variant alone."""
    if upstream is None:
        return
    names = ("revision", "workspace_name", "tag", "version", "branch")
    chosen = [name for name in names if getattr(upstream, name)]
    is_wrong = upstream.revision is not None and upstream.revision < 1 and upstream.revision != PLACEHOLDER
    # Of a set without another choice Porch's own check says it.
    if is_wrong and (chosen or is_optional):
        step = "Remove the field to follow the latest published revision"
        step = step if is_optional else "Write its number"
        hint = f"{step}, or write -1 to follow the branch."
        yield _at((*at, "revision"), f"must be 1 or greater, not {upstream.revision}", hint)
    # Revision and workspace together must name one revision, which is checked when it is resolved (D9).
    if len(chosen) > 1 and chosen != ["revision", "workspace_name"]:
        yield _at(at, _ONE_SELECTOR, ONE_OF_SEVERAL)
    for name in ("repo", "package", "workspace_name", "tag", "version", "branch"):
        if variable := _VARIABLE.search(getattr(upstream, name) or ""):
            message = f"contains the variable {variable.group()}, which nothing substitutes"
            hint = "Write its value, as the script or template that had it would."
            yield _at((*at, to_camel(name)), message, hint)


def _function(function: Function, path: FieldPath) -> Iterator[Finding]:
    if not function.image and not function.exec:
        yield _at(path, "must specify `image` or `exec`", "Add one of the two.")
    if "." in (function.name or ""):
        yield _at((*path, "name"), "must not contain '.'", NO_DOTS)


def _target(target: Target, path: FieldPath, expressions: Environment) -> Iterator[Finding]:
    for name, selector in (
        ("repositorySelector", target.repository_selector),
        ("objectSelector", target.object_selector),
    ):
        if selector is not None:
            try:
                compile_selector(selector)
            except SelectorError as error:
                where = (*path, name, *error.field)
                yield Finding(where, f"{path_text((*path, name))}: {error}", hint=error.hint)
    if target.template is not None:
        template = compile_template(target.template, expressions)
        for expression in template.expressions:
            if isinstance(step := expression.step, Failure):
                message = f"{path_text(expression.path)}: {step.message}"
                where = (*path, *expression.path)
                yield Finding(where, message, Reason.INVALID_EXPRESSION, hint_for(step), step.offset)
        yield from _unknown_fields(template, path, _TARGET if target.repositories else _OBJECT)
        yield from _template(target.template, template, (*path, "template"))


_OBJECT = frozenset({"name", "namespace", "labels", "annotations"})
_TARGET = frozenset({"repo", "package"})
_LITERAL = regex(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"")
_FIELD = regex(r"(?<![\w.])(target|repository|upstream)\.([A-Za-z_]\w*)(?!\w|\s*\()")


def _unknown_fields(template: Template, path: FieldPath, of_target: frozenset[str]) -> Iterator[Finding]:
    """Yield findings for fields that a variable never has, whatever object it is.

    An expression that tests with `has()`, or names a variable of a macro so, is left to its evaluation.
    """
    for expression in template.expressions:
        text = _LITERAL.sub(lambda match: " " * len(match[0]), expression.text)
        if isinstance(expression.step, Failure) or re.search(
            r"\bhas\(|\(\s*(target|repository|upstream)\s*,", text
        ):
            continue
        for match in _FIELD.finditer(text):
            variable, name = match.groups()
            fields = of_target if variable == "target" else _OBJECT
            if name not in fields:
                message = f"{path_text(expression.path)}: {variable} has no field {name}"
                hint = f"It has {', '.join(sorted(fields))}."
                where, reason = (*path, *expression.path), Reason.INVALID_EXPRESSION
                yield Finding(where, message, reason, hint, match.start(2))
                break


def _template(template: VariantTemplate, compiled: Template, path: FieldPath) -> Iterator[Finding]:
    constants = {
        expression.path: expression.step.constant
        for expression in compiled.expressions
        if isinstance(expression.step, Program)
    }
    yield from check_labels(path, template)
    yield from check_context(path, template.package_context)
    if template.package_context is not None:
        yield from _context(template.package_context, constants, path)
    pipeline = template.pipeline
    for kind in ("validators", "mutators"):
        functions: Sequence[FunctionTemplate] = (pipeline and getattr(pipeline, kind)) or ()
        for index, function in enumerate(functions):
            at = (*path, "pipeline", kind, index, "configMapExprs")
            yield from map_entries(function.config_map_exprs, at)
            yield from _empty_entries(function.config_map_exprs, at)
    yield from _empty_entries(template.label_exprs, (*path, "labelExprs"))
    yield from _empty_entries(template.annotation_exprs, (*path, "annotationExprs"))


def _empty_entries(entries: Sequence[MapExpr] | None, path: FieldPath) -> Iterator[Finding]:
    for index, entry in enumerate(entries or ()):
        if not entry.key and entry.key_expr is None:
            yield _at((*path, index), "must specify either `key` or `keyExpr`", ONE_OF_TWO)


def _context(
    context: PackageContextTemplate, constants: Mapping[FieldPath, str | None], path: FieldPath
) -> Iterator[Finding]:
    at = (*path, "packageContext")
    yield from _empty_entries(context.data_exprs, (*at, "dataExprs"))
    for key in context.data or {}:
        yield from _reserved(key, (*at, "data"), (*at, "data", key))
    for index, entry in enumerate(context.data_exprs or ()):
        where = (*at, "dataExprs", index)
        side = "keyExpr" if entry.key_expr is not None else "key"
        constant = constants.get(("template", "packageContext", "dataExprs", index, "keyExpr"))
        yield from _reserved(constant if side == "keyExpr" else entry.key, where, (*where, side))
    for index, key in enumerate(context.remove_keys or ()):
        yield from _reserved(key, (*at, "removeKeys"), (*at, "removeKeys", index))
    for index in range(len(context.remove_key_exprs or ())):
        where = (*at, "removeKeyExprs", index)
        constant = constants.get(("template", "packageContext", "removeKeyExprs", index))
        yield from _reserved(constant, where, where)


def _reserved(key: str | None, field: FieldPath, path: FieldPath) -> Iterator[Finding]:
    if key in RESERVED_KEYS:
        yield Finding(path, f'{path_text(field)} must not contain the key "{key}"', hint=NO_RESERVED_KEY)


DOWNSTREAM_PACKAGE: FieldPath = ("spec", "downstream", "package")
_RULE = "Use lower-case letters, digits and - in each segment of the path"


def check_downstream(
    view: RepositoryView, package: str, instance: str, path: FieldPath = DOWNSTREAM_PACKAGE
) -> Iterator[Finding]:
    """Yield a finding if no package can be made at `package` of a repository.

    Every path must be legal in a Git ref. A package that does not exist yet must also have a name that Porch
    accepts; whether it exists is unknown while the repository is unavailable, and then only Git's rule holds.
    The package is below the repository's directory, as the manifest gives it.
    """
    full = view.full_path(package)
    why = package_path_error(full, instance)
    if not why and view.is_available and not view.packages.get(full, PackageState(full)).exists:
        why = package_name_error(view.key.name, relative_package(full, view.directory))
    if why:
        directory = f", and in spec.git.directory of Repository {view.key.name}" if view.directory else ""
        message = f'package path "{full}" is not valid: {why}'
        # The name of a package revision has dots: repository, package and workspace.
        more = " upstream.name is REPOSITORY.PACKAGE.WORKSPACE; packageDefault is the package."
        is_computed = path[-1] == "packageExpr" and "." in package
        yield Finding(path, message, Reason.INVALID_NAME, f"{_RULE}{directory}.{more * is_computed}")
