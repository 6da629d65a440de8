"""Where the values of a rendered chart came from: setters, injected objects, files upstream, or people."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from reconciler.functions.builtin.fields import split_path
from reconciler.krm.documents import documents_of
from reconciler.krm.values import mapping_at, mappings_at, value_at
from reconciler.krm.yaml import Path, Tree, YamlError, emit
from reconciler.krm.yaml.tree import fields_of, path_text
from reconciler.names.objects import File, Files
from reconciler.render.charts import chart_configurations, input_path, upstream_names
from reconciler.render.update import Conflict

_CHARTS, _OPTIONS, _INLINE = "helmCharts", "templateOptions", "valuesInline"
_SETTER = "# kpt-set: "
_SOURCE = "# Source: "


class ChartValue(NamedTuple):
    """A value of a chart: where it is written, and its writer.

    `setter` is the comment that names its setters, `copied` the kind, name and field of an object that
    `apply-replacements` copies there. `changed` tells that the package has another value than its upstream.
    """

    file: str
    field: str
    value: str
    setter: str = ""
    copied: tuple[str, str, str] | None = None
    changed: bool = False


class ChartDefaults(NamedTuple):
    """A chart of a package, which has defaults for all other values."""

    file: str
    name: str
    version: str


def template_of(file: File | None) -> str:
    """Return the template that rendered a file, as its first line tells; "" of any other file."""
    first = file.data.partition(b"\n")[0].decode(errors="replace") if file else ""
    return first.removeprefix(_SOURCE).strip() if first.startswith(_SOURCE) else ""


def with_templates(conflicts: Iterable[Conflict], files: Files, main: Files) -> tuple[Conflict, ...]:
    """Return conflicts with the template of a chart that gave the file; `files` are those of the draft."""
    # A resource that gets a namespace gets another file, and the conflict names that of main.
    return tuple(
        replace(conflict, template=template_of(files.get(conflict.path) or main.get(conflict.path)))
        for conflict in conflicts
    )


def chart_values(upstream: Files, files: Files) -> Iterator[ChartValue | ChartDefaults]:
    """Yield the values that the charts of an upstream are rendered with for a package, and the charts."""
    copied, downstream, files = dict(_copied(upstream)), files, upstream_names(files)
    for _, path, config in chart_configurations(upstream):
        documents = documents_of(files[path]) if path in files else ()
        local = documents[0].data if len(documents) == 1 and isinstance(documents[0].data, dict) else config
        text = (files if documents else upstream)[path].data.decode(errors="replace")
        before = dict(_leaves(config))
        comments = _comments(text)
        for place, value in _leaves(local):
            setter = comments.get(place, "")
            changed = before.get(place) != value
            yield ChartValue(
                input_path(path, downstream),
                path_text(place),
                _text(value),
                setter,
                copied.get(tuple(map(str, place))),
                changed,
            )
        for chart in mappings_at(local, _CHARTS):
            options = value_at(chart, _OPTIONS, "values", "valuesFiles")
            for name in options if isinstance(options, list) else ():
                for value in _of_file(str(name), path.rpartition("/")[0], upstream, files):
                    yield value._replace(file=input_path(value.file, downstream))
            args = mapping_at(chart, "chartArgs")
            yield ChartDefaults(
                input_path(path, downstream), str(args.get("name")), str(args.get("version") or "")
            )


def _leaves(config: Mapping[str, object]) -> Iterator[tuple[Path, object]]:
    """Yield inline values, and facts of the cluster, with their paths."""
    for index, chart in enumerate(mappings_at(config, _CHARTS)):
        options = mapping_at(chart, _OPTIONS)
        at: Path = (_CHARTS, index, _OPTIONS)
        for name in ("kubeVersion", "apiVersions"):
            if name in options:
                yield (*at, name), options[name]
        yield from _below(mapping_at(options, "values", _INLINE), (*at, "values", _INLINE))


def _below(values: Mapping[str, object], at: Path) -> Iterator[tuple[Path, object]]:
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from _below(value, (*at, str(key)))
        else:
            yield (*at, str(key)), value


def _of_file(name: str, package: str, upstream: Files, files: Files) -> Iterator[ChartValue]:
    path = f"{package}/{name}" if package else name
    sides = [documents_of(side[path])[:1] if path in side else () for side in (upstream, files)]
    before, after = (dict(_below(side[0].data or {}, ())) if side else {} for side in sides)
    for place, value in (after or before).items():
        changed = bool(after) and before.get(place) != value
        yield ChartValue(path, path_text(place), _text(value), changed=changed)


def _comments(text: str) -> dict[Path, str]:
    try:
        fields = fields_of(Tree.parse(text), _SETTER)
    except YamlError:
        return {}
    return {setter.path: setter.comment for setter in fields if setter.comment.startswith(_SETTER)}


def _copied(upstream: Files) -> Iterator[tuple[tuple[str, ...], tuple[str, str, str]]]:
    """Yield the fields of RenderHelmCharts that `apply-replacements` writes, with what it copies."""
    marked = (file for file in upstream.values() if b"ApplyReplacements" in file.data)
    for document in (document for file in marked for document in documents_of(file)):
        for replacement in mappings_at(document.data, "replacements"):
            source = mapping_at(replacement, "source")
            kind, name, path = (str(source.get(key) or "") for key in ("kind", "name", "fieldPath"))
            for target in mappings_at(replacement, "targets"):
                if value_at(target, "select", "kind") == "RenderHelmChart":
                    for field in target.get("fieldPaths") or ():
                        yield split_path(str(field)), (kind, name, path)


def _text(value: object) -> str:
    return value if isinstance(value, str) else emit(value, flow=True)
