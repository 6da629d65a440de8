"""The resources that a rendered chart gives, with their files."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

from msgspec.structs import replace

from reconciler.base.lazy import regex
from reconciler.base.text import plural
from reconciler.functions.charts import SEPARATOR, ChartCall, ChartError, RenderedTemplate
from reconciler.functions.protocol import default_path
from reconciler.functions.resources import Resource
from reconciler.krm.documents import DocumentKind, PackageFile, split_file
from reconciler.krm.values import copy_value, is_same

_TESTS: Final = frozenset(("test", "test-success", "test-failure"))
_UNSAFE: Final = regex(r"[^A-Za-z0-9._-]")
_CACHED: Final = 256
"""Templates, of a few large charts."""
_HOOK: Final = "helm.sh/hook"
_GLUED: Final = regex(r"(?m)^---(?=[^\s-])")
"""A separator with text right behind it, as trimming in templates leaves it: Helm separates there too."""


def to_resources(call: ChartCall, rendered: Sequence[RenderedTemplate], package: str) -> list[Resource]:
    """Return the resources of a rendered chart, each with its text and its file in the package.

    Hooks are resources like others, with their annotations: Argo CD takes them for its own hooks. Tests are
    left out where the configuration skips them.

    Raises:
        ChartError: A template gave something that is no resource with a name, or another one twice, or all
            of them more than the limits of a package.
    """
    by_identity: dict[tuple[str, ...], tuple[Resource, str]] = {}
    templates = [template for template in rendered if not template.path.endswith("NOTES.txt")]
    limits = call.chart.limits
    documents = sum(len(SEPARATOR.findall(template.text)) + 1 for template in templates)
    size = sum(len(template.text) for template in templates)
    if documents > limits.yaml_documents or size > limits.package_bytes:
        what = f"{plural(documents, 'document')} with {plural(size, 'byte')}"
        most = f"limits.yamlDocuments is {limits.yaml_documents}, limits.packageBytes {limits.package_bytes}"
        raise ChartError(f"The chart {call.chart.name} gives {what}: {most}", call.path)
    for template in templates:
        split = _documents(template.text)
        if split.problem is not None:
            line = f":{split.problem.line}" if split.problem.line else ""
            raise ChartError(
                f"What {template.path} of the chart gives is no YAML{line}: {split.problem.message}",
                call.path,
            )
        for document in split.documents:
            if document.kind is DocumentKind.EMPTY or document.value is None:
                continue
            for made in _resources(call, document.value, document.text, template.path, package):
                other = by_identity.setdefault(made.identity, (made, template.path))
                if other[0] is not made and not is_same(other[0].value, made.value):
                    what = f"{template.path} of the chart {call.chart.name} gives {made.kind} {made.name}"
                    raise ChartError(f"{what} with other content than {other[1]}", call.path)
    return [resource for resource, _ in by_identity.values()]


@lru_cache(maxsize=_CACHED)
def _documents(text: str) -> PackageFile:
    """Return the documents of what a template gives: most give the same for all clusters and versions."""
    split = split_file(_GLUED.sub("---\n", text).encode(), "")
    # Nodes take many times the memory of their text, and nothing edits these.
    return split.with_documents(replace(document, tree=None) for document in split.documents)


def _resources(call: ChartCall, value: Any, text: str, template: str, package: str) -> Iterator[Resource]:
    items = value.get("items") if isinstance(value, dict) and value.get("kind") == "List" else None
    if isinstance(items, list):
        for item in items:
            yield from _resources(call, item, "", template, package)
        return
    resource = Resource(copy_value(value) if isinstance(value, dict) else {}, package=package)
    if not (resource.api_version and resource.kind and resource.name):
        why = "no resource with apiVersion, kind and metadata.name"
        raise ChartError(f"{template} of the chart {call.chart.name} gives {why}", call.path)
    hooks = {hook.strip() for hook in str(resource.annotations.get(_HOOK) or "").split(",")}
    if call.skip_tests and hooks & _TESTS:
        return
    if text:
        resource.written = f"# Source: {template}\n{text.strip()}\n"
        resource.held = value
    path = _template_file(template) if call.by_template else _resource_file(resource)
    resource.path = f"{package}/{path}" if package else path
    yield resource


def _resource_file(resource: Resource) -> str:
    """Return the file of a resource by its kind, name and namespace, as functions name new resources.

    A slash is no directory here but that of the namespace: charts may name roles `a/b`.
    """
    start = f"{resource.namespace}/" if resource.namespace else ""
    name = _UNSAFE.sub("_", default_path(resource).removeprefix(start))
    return f"{_UNSAFE.sub('_', resource.namespace)}/{name}" if start else name


def _template_file(template: str) -> str:
    """Return the file of a resource by its template: `app/charts/db/templates/x.yaml` is `db/x.yaml`."""
    parts = [part for part in template.split("/")[1:] if part not in ("templates", "charts")]
    name = "/".join(_UNSAFE.sub("_", part) for part in parts)
    return name if name.endswith((".yaml", ".yml")) else f"{name}.yaml"
