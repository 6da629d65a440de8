"""Checks beyond Porch's: errors that Porch would find only after creating objects, or never."""

import re
from collections.abc import Iterator, Mapping, Sequence

from pydantic.alias_generators import to_camel

from reconciler.api.meta import SelectorError, compile_selector, key_error, label_error
from reconciler.api.porch import (
    PLACEHOLDER,
    Function,
    FunctionTemplate,
    MapExpr,
    PackageContext,
    PackageContextTemplate,
    PackageVariantSetSpec,
    PackageVariantSpec,
    Pipeline,
    Target,
    Upstream,
    VariantTemplate,
)
from reconciler.api.validation import field_text
from reconciler.base.reasons import Reason
from reconciler.cel import Environment, Failure, Program
from reconciler.expand.findings import (
    NO_DOTS,
    NO_RESERVED_KEY,
    ONE_OF_SEVERAL,
    ONE_OF_TWO,
    Finding,
    field_name,
)
from reconciler.expand.porch_checks import RESERVED_KEYS, map_entries
from reconciler.expand.template import Template, compile_template, hint_for
from reconciler.expand.variants import is_object_name
from reconciler.inventory.inventory import FieldPath, PackageState, RepositoryView
from reconciler.names.refs import package_name_error, package_path_error, relative_package

_ONE_SELECTOR = (
    "may specify only one of `revision`, `workspaceName`, `tag`, `version` and `branch`,"
    " except `revision` with `workspaceName`"
)

_VARIABLE = re.compile(r"\$\{[^}]*\}|\{\{.*?\}\}")


def check_variant(name: str, spec: PackageVariantSpec) -> tuple[Finding, ...]:
    """Return the findings for an authored PackageVariant beyond Porch's own checks.

    The name matters to the pipeline: its functions are recognised by a name of four dotted parts.
    """
    findings = [*_selectors(spec.upstream), *_mutators(spec), *check_labels(("spec",), spec)]
    findings += check_context(("spec",), spec.package_context)
    pipeline = spec.pipeline or Pipeline()
    functions = [
        *_paths(("spec", "pipeline", "validators"), pipeline.validators),
        *_paths(("spec", "pipeline", "mutators"), pipeline.mutators),
        *_paths(("spec", "mutators"), spec.mutators),
    ]
    for path, function in functions:
        findings += _function(function, path)
    findings += check_name(name, has_functions=bool(functions))
    return tuple(findings)


def check_labels(path: FieldPath, spec: PackageVariantSpec | VariantTemplate) -> Iterator[Finding]:
    """Yield findings for labels and annotations of package revisions that Kubernetes would refuse."""
    errors = [("labels", key, label_error(key, value)) for key, value in (spec.labels or {}).items()]
    errors += [("annotations", key, key_error(key)) for key in spec.annotations or {}]
    for name, key, why in errors:
        if why:
            at = (*path, name, key)
            hint = "Correct it, or write it in annotations, which take any text." if name == "labels" else ""
            message = f"{field_text(at)}: {why}"
            yield Finding(at, message, hint=hint if not key_error(key) else "Correct the key.")


def check_context(
    path: FieldPath, context: PackageContext | PackageContextTemplate | None
) -> Iterator[Finding]:
    """Yield findings for keys that a package context sets and removes, or that no ConfigMap can have."""
    at, data = (*path, "packageContext"), (context.data if context else None) or {}
    removed = [
        (key, (*at, "removeKeys", index)) for index, key in enumerate((context and context.remove_keys) or ())
    ]
    for key, where in (*((key, (*at, "data", key)) for key in data), *removed):
        if not key or any(map(str.isspace, key)):
            yield Finding(where, f'{field_name(where[:-1])} has the key "{key}", which no ConfigMap can have')
    for key, where in removed:
        if key in data:
            message = f'{field_name(where)} removes the key "{key}", which {field_name((*at, "data"))} sets'
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
        yield Finding(path, "spec.upstreams must not be an empty list if specified", hint="Add an upstream.")
    first: dict[str, int] = {}
    for index, upstream in enumerate(spec.upstreams):
        at = (*path, index)
        yield from _selectors(upstream, at)
        package = (upstream.package or "").strip("/")
        if package and first.setdefault(package, index) != index:
            message = (
                f'{field_name(at)} has the package "{package}", as {field_name((*path, first[package]))} has'
            )
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
        message = f"{field_name(at)} gives one name to the packages of all of spec.upstreams"
        hint = "Remove it: each is called like its upstream. For other names write packageExpr."
        yield Finding(at, message, hint=hint)


def _selectors(upstream: Upstream | None, at: FieldPath = ("spec", "upstream")) -> Iterator[Finding]:
    if upstream is None:
        return
    if upstream.revision is not None and upstream.revision < 1 and upstream.revision != PLACEHOLDER:
        message = f"{field_name(at)}.revision must be 1 or greater, not {upstream.revision}"
        hint = "Remove the field to follow the latest published revision, or write -1 to follow the branch."
        yield Finding((*at, "revision"), message, hint=hint)
    chosen = [
        name for name in ("revision", "workspace_name", "tag", "version", "branch") if getattr(upstream, name)
    ]
    # Revision and workspace together must name one revision, which is checked when it is resolved (D9).
    if len(chosen) > 1 and chosen != ["revision", "workspace_name"]:
        yield Finding(at, f"{field_name(at)} {_ONE_SELECTOR}", hint=ONE_OF_SEVERAL)
    for name in ("repo", "package", "workspace_name", "tag", "version", "branch"):
        if variable := _VARIABLE.search(getattr(upstream, name) or ""):
            path = (*at, to_camel(name))
            message = (
                f"{field_name(path)} contains the variable {variable.group()}, which nothing substitutes"
            )
            yield Finding(path, message, hint="Write its value, as the script or template that had it would.")


def _mutators(spec: PackageVariantSpec) -> Iterator[Finding]:
    if spec.mutators is not None and spec.pipeline is not None and spec.pipeline.mutators is not None:
        message = "spec may specify only one of `mutators` and `pipeline.mutators`"
        yield Finding(("spec", "mutators"), message, hint=ONE_OF_SEVERAL)


def _paths(path: FieldPath, functions: Sequence[Function] | None) -> Iterator[tuple[FieldPath, Function]]:
    for index, function in enumerate(functions or ()):
        yield (*path, index), function


def _function(function: Function, path: FieldPath) -> Iterator[Finding]:
    if not function.image and not function.exec:
        message = f"{field_name(path)} must specify `image` or `exec`"
        yield Finding(path, message, hint="Add one of the two.")
    if "." in (function.name or ""):
        yield Finding((*path, "name"), f"{field_name(path)}.name must not contain '.'", hint=NO_DOTS)


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
                yield Finding(where, f"{field_name((*path, name))}: {error}", hint=error.hint)
    if target.template is not None:
        template = compile_template(target.template, expressions)
        yield from _expressions(template, path)
        yield from _unknown_fields(template, path, _TARGET if target.repositories else _OBJECT)
        yield from _template(target.template, template, (*path, "template"))


_OBJECT = frozenset({"name", "namespace", "labels", "annotations"})
_TARGET = frozenset({"repo", "package"})
_LITERAL = re.compile(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"")
_FIELD = re.compile(r"(?<![\w.])(target|repository|upstream)\.([A-Za-z_]\w*)(?!\w|\s*\()")


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
                message = f"{field_name(expression.path)}: {variable} has no field {name}"
                hint = f"It has {', '.join(sorted(fields))}."
                where, reason = (*path, *expression.path), Reason.INVALID_EXPRESSION
                yield Finding(where, message, reason, hint, match.start(2))
                break


def _expressions(template: Template, path: FieldPath) -> Iterator[Finding]:
    for expression in template.expressions:
        if isinstance(expression.step, Failure):
            message = f"{field_name(expression.path)}: {expression.step.message}"
            where, offset = (*path, *expression.path), expression.step.offset
            yield Finding(where, message, Reason.INVALID_EXPRESSION, hint_for(expression.step), offset)


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
            at = (*path, index)
            yield Finding(at, f"{field_name(at)} must specify either `key` or `keyExpr`", hint=ONE_OF_TWO)


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
        yield from _reserved(
            constants.get(("template", "packageContext", "removeKeyExprs", index)), where, where
        )


def _reserved(key: str | None, field: FieldPath, path: FieldPath) -> Iterator[Finding]:
    if key in RESERVED_KEYS:
        yield Finding(path, f'{field_name(field)} must not contain the key "{key}"', hint=NO_RESERVED_KEY)


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
        is_computed = path[-1] == "packageExpr" and "." in package
        more = (
            " upstream.name is REPOSITORY.PACKAGE.WORKSPACE; packageDefault is the package."
            if is_computed
            else ""
        )
        yield Finding(path, message, Reason.INVALID_NAME, f"{_RULE}{directory}.{more}")
