"""Templates: compiled once per target, rendered once per variant, in Porch's order."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reconciler.api.porch import (
    DownstreamTemplate,
    Function,
    FunctionTemplate,
    InjectionSelector,
    InjectionSelectorTemplate,
    MapExpr,
    PackageContext,
    PackageContextTemplate,
    Pipeline,
    PipelineTemplate,
    VariantTemplate,
)
from reconciler.cel import Environment, Failure, Program
from reconciler.inventory import FieldPath

Step = Program | Failure


class TemplateError(Exception):
    """One variant cannot be rendered. `path` is the template's field, `failure` what its expression says."""

    def __init__(self, path: FieldPath, failure: Failure) -> None:
        super().__init__(failure.message)
        self.path = path
        self.failure = failure


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression of a template: where it stands below `template`, its text, and what compiling gave."""

    path: FieldPath
    text: str
    step: Step

    @property
    def origin(self) -> str:
        """How a trace names it."""
        return f"{_dotted(self.path)}: {self.text}"


@dataclass(slots=True)
class Scope:
    """The variables of one rendering, bound once, and the origins of its fields if they are asked for."""

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


@dataclass(frozen=True, slots=True)
class MapStep:
    """One entry of a map template; an expression wins over a literal, an absent side is empty."""

    key: str | Expression
    value: str | Expression
    literal: str


@dataclass(frozen=True, slots=True)
class MapTemplate:
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


@dataclass(frozen=True, slots=True)
class Choice:
    """One string: an expression, else a literal, else the default."""

    name: str
    literal: str | None = None
    expression: Expression | None = None

    def render(self, scope: Scope, default: str, origin: str = "default") -> str:
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


@dataclass(frozen=True, slots=True)
class Template:
    """A compiled template; `expressions` are all of its expressions in Porch's order of evaluation."""

    repo: Choice
    package: Choice
    fields: tuple[tuple[str, Callable[[Scope], Any]], ...]
    policies: Mapping[str, str]
    expressions: tuple[Expression, ...]


def compile_template(template: VariantTemplate, expressions: Environment) -> Template:
    """Compile every expression of a template once; refused ones fail when they are evaluated.

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
    policies = {
        name: value
        for name, value in (
            ("adoption_policy", template.adoption_policy),
            ("deletion_policy", template.deletion_policy),
        )
        if value is not None
    }
    return Template(repo, package, tuple(fields), policies, tuple(compiler.found))


def compile_map(
    literals: Mapping[str, str], entries: Sequence[Mapping[str, str]], expressions: Environment
) -> MapTemplate:
    """Compile one map template that stands alone.

    Source: porch packagevariantset render.go, copyAndOverlayMapExpr.
    """
    parsed = [MapExpr.model_validate(entry) for entry in entries]
    return _Compiler(expressions).overlay("", literals, parsed, ())


class _Compiler:
    """Walks a template in the order of evaluation and remembers every expression."""

    def __init__(self, expressions: Environment) -> None:
        self.expressions = expressions
        self.found: list[Expression] = []

    def expression(self, text: str, *path: str | int) -> Expression:
        expression = Expression(("template", *path), text, self.expressions.compile(text))
        self.found.append(expression)
        return expression

    def choice(self, name: str, literal: str | None, text: str | None) -> Choice:
        expression = self.expression(text, *f"{name}Expr".split(".")) if text else None
        return Choice(name, literal, expression)

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
            steps.append(MapStep(key, value, f"{_dotted(('template', *at))}: literal"))
        return MapTemplate(name, literals or {}, tuple(steps))

    def side(self, literal: str | None, text: str | None, *path: str | int) -> str | Expression:
        return self.expression(text, *path) if text is not None else literal or ""

    def context(self, context: PackageContextTemplate) -> Callable[[Scope], PackageContext]:
        data = self.overlay(
            "packageContext.data", context.data, context.data_exprs, ("packageContext", "dataExprs")
        )
        literals = frozenset(context.remove_keys or ())
        removals = [
            self.expression(text, "packageContext", "removeKeyExprs", index)
            for index, text in enumerate(context.remove_key_exprs or ())
        ]

        def render(scope: Scope) -> PackageContext:
            rendered = data.render(scope)
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
            given = {
                name: value
                for name in ("group", "version", "kind", "target")
                if (value := getattr(injector, name)) is not None
            }
            compiled.append((given, Choice(f"injectors[{index}].name", injector.name, expression)))
        return lambda scope: [
            InjectionSelector(**given, name=choice.render(scope, "")) for given, choice in compiled
        ]

    def pipeline(self, pipeline: PipelineTemplate) -> Callable[[Scope], Pipeline | None]:
        validators = self.functions("validators", pipeline.validators or ())
        mutators = self.functions("mutators", pipeline.mutators or ())

        def render(scope: Scope) -> Pipeline | None:
            checks = [function(scope) for function in validators]
            changes = [function(scope) for function in mutators]
            if not checks and not changes:
                return None
            return Pipeline(mutators=changes or None, validators=checks or None)

        return render

    def functions(
        self, kind: str, functions: Sequence[FunctionTemplate]
    ) -> tuple[Callable[[Scope], Function], ...]:
        return tuple(self.function(kind, index, function) for index, function in enumerate(functions))

    def function(self, kind: str, index: int, function: FunctionTemplate) -> Callable[[Scope], Function]:
        path = ("pipeline", kind, index, "configMapExprs")
        name = f"pipeline.{kind}[{index}].configMap"
        overlay = self.overlay(name, function.config_map, function.config_map_exprs, path)
        given = {
            name: value
            for name in Function.model_fields
            if name != "config_map" and (value := getattr(function, name)) is not None
        }
        return lambda scope: Function(**given, config_map=overlay.render(scope))


def _dotted(path: FieldPath) -> str:
    return "".join(_segments(path))


def _segments(path: FieldPath) -> Iterator[str]:
    for number, step in enumerate(path):
        yield f"[{step}]" if isinstance(step, int) else f".{step}" if number else step
