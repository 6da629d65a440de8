"""From one context to one PackageVariant spec."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reconciler.api.porch import Downstream, PackageVariantSpec, Upstream, VariantTemplate
from reconciler.cel import Environment, Failure
from reconciler.expand.findings import Finding, field_name
from reconciler.expand.hints import hint_for
from reconciler.expand.targets import Context
from reconciler.expand.template import Scope, Template, TemplateError, compile_template
from reconciler.inventory import RepositoryView
from reconciler.reasons import Reason


class RenderError(Exception):
    """A context cannot be rendered: `path` below the target is the field to blame, empty for none."""

    def __init__(self, finding: Finding, failure: Failure | None = None) -> None:
        super().__init__(finding.message)
        self.finding = finding
        self.failure = failure


@dataclass(frozen=True, slots=True)
class Rendered:
    """One variant's spec, not yet validated, and where its fields came from."""

    spec: PackageVariantSpec
    trace: Mapping[str, str]


class Renderer:
    """Renders the contexts of one set: every template is compiled once, every Repository looked up once.

    `defaults` are fields of the spec where no template gives them.

    Source: porch packagevariantset render.go, renderPackageVariantSpec.
    """

    def __init__(
        self,
        upstream: Upstream | None,
        upstream_input: Mapping[str, Any],
        repositories: Mapping[str, RepositoryView],
        expressions: Environment,
        *,
        defaults: Mapping[str, str] | None = None,
        trace: bool = False,
    ) -> None:
        self._blank: dict[str, Any] = {**(defaults or {}), "upstream": upstream}
        self._upstream_input = upstream_input
        self._repositories = repositories
        self._expressions = expressions
        self._trace = trace
        self._templates: dict[int, Template] = {}
        self._inputs: dict[str, Mapping[str, Any]] = {}

    def render(self, context: Context) -> Rendered:
        """Render one context.

        Raises:
            RenderError: An expression fails, or the Repository is not registered.
        """
        trace: dict[str, str] = {}
        if context.template is None:
            if self._trace:
                trace = {"downstream.repo": "default", "downstream.package": "default"}
            return Rendered(self._spec(context.repo_default, context.package_default, {}), trace)
        template = self._template(context.template)
        try:
            return self._render(context, template, trace)
        except TemplateError as error:
            message = f"{field_name(error.path)}: {error.failure.message}"
            path = ("spec", "targets", context.number, *error.path)
            finding = Finding(path, message, Reason.INVALID_EXPRESSION, hint_for(error.failure))
            raise RenderError(finding, error.failure) from error

    def _render(self, context: Context, template: Template, trace: dict[str, str]) -> Rendered:
        inputs = {
            "repoDefault": context.repo_default,
            "packageDefault": context.package_default,
            "upstream": self._upstream_input,
            "target": context.target_input(),
        }
        bind, origins = self._expressions.bind, trace if self._trace else None
        scope = Scope(self._expressions, None if template.repo.is_fixed else bind(inputs), origins)
        repo = template.repo.render(scope, context.repo_default)
        scope.bound = bind({**inputs, "repository": self._repository(repo, context)})
        package = template.package.render(scope, context.package_default)
        fields = {name: render(scope) for name, render in template.fields}
        return Rendered(self._spec(repo, package, {**template.policies, **fields}), trace)

    def _spec(self, repo: str, package: str, fields: Mapping[str, Any]) -> PackageVariantSpec:
        downstream = Downstream(repo=repo, package=package)
        return PackageVariantSpec(**{**self._blank, **fields, "downstream": downstream})

    def _template(self, template: VariantTemplate) -> Template:
        found = self._templates.get(id(template))
        if found is None:
            found = self._templates[id(template)] = compile_template(template, self._expressions)
        return found

    def _repository(self, name: str, context: Context) -> Mapping[str, Any]:
        found = self._inputs.get(name)
        if found is None:
            view = self._repositories.get(name)
            if view is None:
                raise RenderError(missing_repository(name, context))
            found = self._inputs[name] = repository_input(view)
        return found


def repository_input(view: RepositoryView) -> Mapping[str, Any]:
    """Return the CEL variable `repository`: metadata only."""
    metadata = view.manifest.metadata
    return {
        "name": view.key.name,
        "namespace": view.key.namespace,
        "labels": metadata.labels or {},
        "annotations": metadata.annotations or {},
    }


def missing_repository(name: str, context: Context) -> Finding:
    """Return the finding for a downstream Repository that is not registered in the set's namespace."""
    path = ("spec", "targets", context.number)
    hint = "Register it as a Repository object in the set's namespace."
    return Finding(path, f'repository "{name}" could not be loaded', Reason.REPOSITORY_NOT_FOUND, hint)
