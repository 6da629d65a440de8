"""Templates of a set: compile once per target, render once per variant, in Porch's order."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from reconciler.api.porch import (
    Downstream,
    DownstreamTemplate,
    Function,
    FunctionTemplate,
    InjectionSelector,
    InjectionSelectorTemplate,
    MapExpr,
    PackageContext,
    PackageContextTemplate,
    PackageVariantSpec,
    Pipeline,
    PipelineTemplate,
    Upstream,
    VariantTemplate,
)
from reconciler.base.reasons import Reason
from reconciler.cel import EXTENSIONS, STRING_FUNCTIONS, Environment, Failure, Program
from reconciler.cel.check import MAP_ORDER
from reconciler.expand.findings import EXPRESSIONS, ExpansionError, Finding
from reconciler.expand.targets import Context, selected_repository
from reconciler.expand.variants import CEL_EXTENSIONS, FROM_TARGET
from reconciler.inventory.inventory import FieldPath, RepositoryView
from reconciler.krm.yaml import path_text

Step = Program | Failure


_HIDDEN = frozenset({"spec", "status", "kind", "apiVersion", "metadata", "data"})
_EXPRESSION_HINTS = {
    "no such attribute(s): repository": "Use it in other fields: repo and repoExpr name it first.",
    MAP_ORDER: "Name the keys, as in target.labels.region, or ask with `in`, size(), exists() or all().",
    "has() argument must be a field selection": "Write the field, as in has(target.labels.x).",
}


class TemplateError(Exception):
    """One variant cannot be rendered: its field at `path` has an expression with a `failure`."""

    def __init__(self, path: FieldPath, failure: Failure) -> None:
        super().__init__(failure.message)
        self.path = path
        self.failure = failure


class Expression(Struct, frozen=True):
    """An expression of a template: its path below `template`, its text, and the compiled program or error."""

    path: FieldPath
    text: str
    step: Step

    @property
    def origin(self) -> str:
        """Its name in a trace."""
        return f"{path_text(self.path)}: {self.text}"


class Scope(Struct):
    """The variables of one rendering, bound once; `trace` collects the origins of its fields."""

    expressions: Environment
    bound: Any
    trace: dict[str, str] | None = None

    def evaluate(self, expression: Expression) -> str:
        """Return an expression's string.

        Raises:
            TemplateError: The expression was refused, or fails on these variables.
        """
        step = expression.step
        if isinstance(step, Program):
            if step.constant is not None:
                return step.constant
            result = self.expressions.evaluate(step, self.bound)
            if isinstance(result, str):
                return result
            step = result
        raise TemplateError(expression.path, step)


class MapStep(Struct, frozen=True):
    """One entry of a map template; an expression wins over a literal, an absent side is empty."""

    key: str | Expression
    value: str | Expression
    literal: str


class MapTemplate(Struct, frozen=True):
    """Literals, then entries in order; later ones win. An empty result is no map."""

    name: str
    literals: Mapping[str, str]
    steps: tuple[MapStep, ...] = ()

    def render(self, scope: Scope) -> dict[str, str] | None:
        """Return the map for one variant."""
        result = dict(self.literals)
        if scope.trace is not None:
            scope.trace |= {f"{self.name}.{name}": "literal" for name in result}
        for step in self.steps:
            key = step.key if isinstance(step.key, str) else scope.evaluate(step.key)
            value = step.value if isinstance(step.value, str) else scope.evaluate(step.value)
            result[key] = value
            if scope.trace is not None:
                origin = step.literal if isinstance(step.value, str) else step.value.origin
                scope.trace[f"{self.name}.{key}"] = origin
        return result or None


class TextTemplate(Struct, frozen=True):
    """One string: an expression, else a literal, else the default."""

    name: str
    literal: str | None = None
    expression: Expression | None = None

    def render(self, scope: Scope, default: str, origin: str = FROM_TARGET) -> str:
        """Return the string for one variant."""
        if scope.trace is not None:
            literal = "literal" if self.literal else origin
            scope.trace[self.name] = self.expression.origin if self.expression else literal
        return scope.evaluate(self.expression) if self.expression else self.literal or default

    @property
    def is_fixed(self) -> bool:
        """Whether rendering it needs no variables."""
        step = self.expression.step if self.expression else None
        return step is None or (isinstance(step, Program) and step.constant is not None)


class Template(Struct, frozen=True):
    """A compiled template; `expressions` are all of its expressions in Porch's order of evaluation."""

    repo: TextTemplate
    package: TextTemplate
    fields: tuple[tuple[str, Callable[[Scope], Any]], ...]
    policies: Mapping[str, str]
    expressions: tuple[Expression, ...]


def compile_template(template: VariantTemplate, expressions: Environment) -> Template:
    """Compile every expression of a template once; invalid ones fail when they are evaluated.

    Source: porch packagevariantset render.go, renderPackageVariantSpec.
    """
    compiler = _Compiler(expressions)
    downstream = template.downstream or DownstreamTemplate()
    repo = compiler.choice("downstream.repo", downstream.repo, downstream.repo_expr)
    package = compiler.choice("downstream.package", downstream.package, downstream.package_expr)
    fields: list[tuple[str, Callable[[Scope], Any]]] = []
    for name, literals, entries in (
        ("labels", template.labels, template.label_exprs),
        ("annotations", template.annotations, template.annotation_exprs),
    ):
        if literals or entries:
            path = (f"{name.removesuffix('s')}Exprs",)
            fields.append((name, compiler.overlay(name, literals, entries, path).render))
    if template.package_context is not None:
        fields.append(("package_context", compiler.context(template.package_context)))
    if template.injectors:
        fields.append(("injectors", compiler.injectors(template.injectors)))
    if template.pipeline is not None:
        fields.append(("pipeline", compiler.pipeline(template.pipeline)))
    names = ("adoption_policy", "deletion_policy")
    policies = {name: value for name in names if (value := getattr(template, name)) is not None}
    return Template(repo, package, tuple(fields), policies, tuple(compiler.expressions_in_order))


class _Compiler:
    """Walks a template in the order of evaluation and remembers every expression."""

    def __init__(self, expressions: Environment) -> None:
        self.expressions = expressions
        self.expressions_in_order: list[Expression] = []

    def expression(self, text: str, *path: str | int) -> Expression:
        expression = Expression(("template", *path), text, self.expressions.compile(text))
        self.expressions_in_order.append(expression)
        return expression

    def choice(self, name: str, literal: str | None, text: str | None) -> TextTemplate:
        expression = self.expression(text, *f"{name}Expr".split(".")) if text else None
        return TextTemplate(name, literal, expression)

    def overlay(
        self,
        name: str,
        literals: Mapping[str, str] | None,
        entries: Sequence[MapExpr] | None,
        path: FieldPath,
    ) -> MapTemplate:
        steps = []
        for index, entry in enumerate(entries or ()):
            at = (*path, index)
            key = self.side(entry.key, entry.key_expr, *at, "keyExpr")
            value = self.side(entry.value, entry.value_expr, *at, "valueExpr")
            steps.append(MapStep(key, value, f"{path_text(('template', *at))}: literal"))
        return MapTemplate(name, literals or {}, tuple(steps))

    def side(self, literal: str | None, text: str | None, *path: str | int) -> str | Expression:
        return self.expression(text, *path) if text is not None else literal or ""

    def context(self, context: PackageContextTemplate) -> Callable[[Scope], PackageContext]:
        path = ("packageContext", "dataExprs")
        data = self.overlay("packageContext.data", context.data, context.data_exprs, path)
        literals = frozenset(context.remove_keys or ())
        removals = [
            self.expression(text, "packageContext", "removeKeyExprs", index)
            for index, text in enumerate(context.remove_key_exprs or ())
        ]

        def render(scope: Scope) -> PackageContext:
            rendered = data.render(scope)
            # Sorted and without duplicates, so that equal templates give equal specs.
            keys = sorted(literals.union(scope.evaluate(removal) for removal in removals))
            return PackageContext(data=rendered, remove_keys=keys or None)

        return render

    def injectors(
        self, injectors: Sequence[InjectionSelectorTemplate]
    ) -> Callable[[Scope], list[InjectionSelector]]:
        compiled = []
        for index, injector in enumerate(injectors):
            text = injector.name_expr
            expression = self.expression(text, "injectors", index, "nameExpr") if text else None
            constants = {
                name: value
                for name in ("group", "version", "kind", "target")
                if (value := getattr(injector, name)) is not None
            }
            compiled.append((constants, TextTemplate(f"injectors[{index}].name", injector.name, expression)))
        return lambda scope: [
            InjectionSelector(**constants, name=choice.render(scope, "")) for constants, choice in compiled
        ]

    def pipeline(self, pipeline: PipelineTemplate) -> Callable[[Scope], Pipeline | None]:
        validators, mutators = (
            [self.function(kind, index, function) for index, function in enumerate(functions or ())]
            for kind, functions in (("validators", pipeline.validators), ("mutators", pipeline.mutators))
        )

        def render(scope: Scope) -> Pipeline | None:
            checks = [function(scope) for function in validators]
            changes = [function(scope) for function in mutators]
            if not checks and not changes:
                return None
            return Pipeline(mutators=changes or None, validators=checks or None)

        return render

    def function(self, kind: str, index: int, function: FunctionTemplate) -> Callable[[Scope], Function]:
        path = ("pipeline", kind, index, "configMapExprs")
        name = f"pipeline.{kind}[{index}].configMap"
        overlay = self.overlay(name, function.config_map, function.config_map_exprs, path)
        fields = {
            name: value
            for name in Function.model_fields
            if name != "config_map" and (value := getattr(function, name)) is not None
        }
        return lambda scope: Function(**fields, config_map=overlay.render(scope))


class RenderedSpec(Struct, frozen=True):
    """The spec of one variant, not yet validated, and the origins of its fields."""

    spec: PackageVariantSpec
    trace: Mapping[str, str]


class Renderer:
    """Renders the contexts of one set, compiling every template and looking up every Repository once.

    `defaults` are fields of the spec that no template sets.

    Source: porch packagevariantset render.go, renderPackageVariantSpec.
    """

    def __init__(
        self,
        upstream: Upstream | None,
        upstream_input: Mapping[str, Any],
        repositories: Mapping[str, RepositoryView],
        expressions: Environment,
        hint: Callable[[str], str] = lambda _: REGISTER,
        *,
        defaults: Mapping[str, str] | None = None,
        trace: bool = False,
    ) -> None:
        self._hint = hint
        self._blank: dict[str, Any] = {**(defaults or {}), "upstream": upstream}
        self._upstream_input = upstream_input
        self._repositories = repositories
        self._expressions = expressions
        self._trace = trace
        self._templates: dict[int, Template] = {}
        self._inputs: dict[str, Mapping[str, Any]] = {}

    def render(self, context: Context) -> RenderedSpec:
        """Render one context.

        Raises:
            ExpansionError: An expression fails, or the Repository is not registered.
        """
        trace: dict[str, str] = {}
        if context.template is None:
            if self._trace:
                trace = {"downstream.repo": FROM_TARGET, "downstream.package": FROM_TARGET}
            return RenderedSpec(self._spec(context.repo_default, context.package_default, {}), trace)
        # By identity: models are not hashable, and the templates of a set outlive its renderer.
        if id(context.template) not in self._templates:
            self._templates[id(context.template)] = compile_template(context.template, self._expressions)
        template = self._templates[id(context.template)]
        try:
            return self._render(context, template, trace)
        except TemplateError as error:
            message = f"{path_text(error.path)}: {error.failure.message}"
            path = ("spec", "targets", context.number, *error.path)
            hint, offset = hint_for(error.failure), error.failure.offset
            raise ExpansionError(Finding(path, message, Reason.INVALID_EXPRESSION, hint, offset)) from error

    def _render(self, context: Context, template: Template, trace: dict[str, str]) -> RenderedSpec:
        inputs = {
            "repoDefault": context.repo_default,
            "packageDefault": context.package_default,
            "upstream": self._upstream_input,
            "target": context.target_input(),
        }
        bind, origins = self._expressions.bind, trace if self._trace else None
        # Binding variables is slow: skip it for a repository that is a literal.
        scope = Scope(self._expressions, None if template.repo.is_fixed else bind(inputs), origins)
        repo = template.repo.render(scope, context.repo_default)
        # As in Porch, `repository` exists only from here on: its name is rendered first.
        if repo not in self._inputs:
            view = self._repositories.get(repo)
            if view is None:
                raise ExpansionError(
                    missing_repository(repo, ("spec", "targets", context.number), self._hint(repo))
                )
            self._inputs[repo] = selected_repository(view).as_input()
        scope.bound = bind({**inputs, "repository": self._inputs[repo]})
        package = template.package.render(scope, context.package_default)
        fields = {name: render(scope) for name, render in template.fields}
        return RenderedSpec(self._spec(repo, package, {**template.policies, **fields}), trace)

    def _spec(self, repo: str, package: str, fields: Mapping[str, Any]) -> PackageVariantSpec:
        downstream = Downstream(repo=repo, package=package)
        return PackageVariantSpec(**{**self._blank, **fields, "downstream": downstream})


REGISTER = "Register it as a Repository object in the set's namespace."


def missing_repository(name: str, path: FieldPath, hint: str) -> Finding:
    """Return the finding for a downstream Repository that is not registered in the owner's namespace."""
    return Finding(path, f'repository "{name}" could not be loaded', Reason.REPOSITORY_NOT_FOUND, hint)


def hint_for(failure: Failure) -> str:
    """Return the hint for a failed expression, "" for none."""
    if failure.undeclared in STRING_FUNCTIONS:
        return f"Annotate the set with {CEL_EXTENSIONS}: {', '.join(sorted(EXTENSIONS))}."
    if failure.undeclared:
        return f"There are repoDefault, packageDefault, upstream, target and repository; see {EXPRESSIONS}."
    if failure.missing in _HIDDEN:
        return "Expressions see only name, namespace, labels and annotations of an object."
    if failure.missing:
        return "Test for it first, as in has(target.labels.x) ? target.labels.x : 'none'."
    if failure.is_no_string:
        return "Write string(...) around the value."
    return _EXPRESSION_HINTS.get(failure.message, "")
