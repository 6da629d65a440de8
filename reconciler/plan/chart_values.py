"""Charts: where the values of rendered resources came from, and what their templates see anew."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson
from msgspec.structs import replace

from reconciler.api.kptfile import KPTFILE
from reconciler.functions.builtin.fields import split_path
from reconciler.functions.charts import (
    FILES,
    RENDER_HELM_CHART,
    ChartCall,
    ChartError,
    chart_members,
    read_charts,
    values_of,
)
from reconciler.functions.pipeline import RunPipelines
from reconciler.functions.secrets import NO_SECRET_VALUES, SecretValues, holds_secret, values_in_secrets
from reconciler.krm.documents import documents_of
from reconciler.krm.values import copy_value, is_same, mapping_at, mappings_at, value_at
from reconciler.krm.yaml import Path, Tree, YamlError, emit
from reconciler.krm.yaml.tree import fields_of, path_text
from reconciler.names.ids import Oid
from reconciler.names.objects import File, Files
from reconciler.render.charts import chart_configurations, input_path, upstream_names
from reconciler.render.merging import Contents
from reconciler.render.update import Conflict
from reconciler.resolve.resolution import ResolvedVariant

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


_LONGEST: Final = 60
_CONFIG: Final = "chart.yaml"
_KPTFILE: Final = File.of(
    f"""\
apiVersion: kpt.dev/v1
kind: Kptfile
metadata: {{name: chart}}
pipeline:
  mutators:
  - {{image: "{RENDER_HELM_CHART}:v0.3", configPath: {_CONFIG}}}
""".encode()
)


class _Chart(NamedTuple):
    """A chart as it is rendered for a package, with its files and what its templates see."""

    call: ChartCall
    members: Mapping[str, bytes]
    seen: Mapping[str, Any]


class ChangedValue(NamedTuple):
    """A value that templates of a chart see and that changed, as text; `path` is that below `kind`."""

    chart: str
    kind: str
    path: Path
    before: str
    after: str

    @property
    def name(self) -> str:
        """The value as templates name it: `.Values.image.tag`."""
        path = self.path
        if self.kind == "Chart":
            folder, field = map(str, self.path)
            of = f" of {'/'.join(folder.split('/')[1::2])}" if folder else ""  # charts/db/charts/common/
            path = (f"{field[0].upper()}{field[1:]}{of}",)
        return f".{'.'.join(map(str, (self.kind, *path)))}"


def changed_values(
    run: RunPipelines, resolved: ResolvedVariant, contents: Contents, files: Files
) -> Iterator[ChangedValue]:
    """Yield what changes for the templates of a package's charts; `files` are those of its draft.

    Nothing for a new package: it changes nothing. Values of Secrets are masked.
    """
    base, main = (
        contents.get(oid, {})
        for oid in (resolved.base.tree if resolved.base else Oid(""), resolved.local or Oid(""))
    )
    old = dict(_charts(base, main))
    for name, new in _charts(contents.get(resolved.pin.tree, {}), files):
        changes = list(_changed(old[name].seen, new.seen)) if name in old else []
        secret = _secret_values(run, old[name], new, main, files) if changes else NO_SECRET_VALUES
        for (kind, *path), *sides in changes:
            before, after = (_value_text(secret.value(side)) for side in sides)
            yield ChangedValue(name, str(kind), tuple(path), before, after)


def _secret_values(run: RunPipelines, old: _Chart, new: _Chart, *sides: Files) -> SecretValues:
    """Return the values that templates of a chart see, old or new, and that are in Secrets.

    `sides` are packages with what the chart was rendered to: people may have edited that, so both are
    rendered again.
    """
    members = (File.of(data) for chart in (old, new) for data in chart.members.values())
    if not holds_secret(*members, *(file for side in sides for file in side.values())):
        return NO_SECRET_VALUES
    every = tuple(at for at, *_ in _changed(old.seen, new.seen))
    made = (_rendered(run, _package(old, new, group)) for group in ((), every))
    values = ({"values": chart.seen["Values"]} for chart in (old, new))
    seen = ({"values.json": File.of(orjson.dumps(v, option=orjson.OPT_NON_STR_KEYS))} for v in values)
    return values_in_secrets(*seen, *sides, *made)


def _rendered(run: RunPipelines, package: Files) -> Files:
    """Return what a package with a chart renders to, nothing where that fails."""
    (result,) = run([package])
    made = {} if result.error else result.files
    return {path: file for path, file in made.items() if template_of(file)}


def _value_text(value: Any) -> str:
    text = "none" if value is None else value if isinstance(value, str) else emit(value, flow=True)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _charts(upstream: Files, files: Files) -> Iterator[tuple[str, _Chart]]:
    """Yield the charts of an upstream by their names, with the values that a package records."""
    files = upstream_names(files)
    for package, path, config in chart_configurations(upstream):
        start = f"{package}/" if package else ""
        # A package may keep values files, which people edit or add there.
        downstream = {**upstream, **files}
        inside = {path.removeprefix(start): f for path, f in downstream.items() if path.startswith(start)}
        documents = documents_of(files[path]) if path in files else ()
        try:
            for call in read_charts(documents[0].data if len(documents) == 1 else config, inside):
                members = chart_members(call.chart)
                yield call.chart.name, _Chart(call, members, values_of(call, members))
        except (ChartError, YamlError):
            continue  # another chart or version than the one that is recorded


def _changed(old: Any, new: Any, at: Path = ()) -> Iterator[tuple[Path, Any, Any]]:
    """Yield the values that differ, with both sides; None is absent."""
    if all(value is None or isinstance(value, dict) for value in (old, new)):
        for key in sorted({**(old or {}), **(new or {})}, key=str):
            yield from _changed(value_at(old, key), value_at(new, key), (*at, key))
    elif not is_same(old, new):
        yield at, old, new


def _package(old: _Chart, new: _Chart, back: Sequence[Path]) -> Files:
    """Return a package that renders the new chart where changes are put back to what was before."""
    call, members = new.call, dict(new.members)
    seen = {**new.seen, "Values": call.values}
    seen = copy_value(seen)
    for *parents, name in (map(str, at) for at in back):
        below = seen
        for key in parents:
            below[key] = below[key] if isinstance(below.get(key), dict) else {}
            below = below[key]
        below[name] = value_at(old.seen, *parents, name)
    for folder, versions in seen["Chart"].items():
        if new.seen["Chart"].get(folder) != versions and (path := f"{folder}Chart.yaml") in members:
            about = next((document.data for document in documents_of(File.of(members[path]))), None) or {}
            members[path] = orjson.dumps({**about, **versions})
    options = {
        "releaseName": seen["Release"]["Name"],
        "namespace": seen["Release"]["Namespace"],
        "kubeVersion": seen["Capabilities"]["KubeVersion"],
        "apiVersions": seen["Capabilities"]["APIVersions"],
        "includeCRDs": call.include_crds,
        "skipTests": call.skip_tests,
        "values": {"valuesInline": seen["Values"], "valuesMerge": "replace"},
    }
    config = {
        "apiVersion": "fn.kpt.dev/v1alpha1",
        "kind": "RenderHelmChart",
        "metadata": {
            "name": "chart",
            "annotations": {FILES: "templates" if call.by_template else "resources"},
        },
        "helmCharts": [{"chartArgs": {"name": call.chart.name}, "templateOptions": options}],
    }
    home = f"charts/{call.chart.name}/"
    chart = {f"{home}{path}": File.of(data) for path, data in members.items()}
    return {KPTFILE: _KPTFILE, _CONFIG: File.of(orjson.dumps(config)), **chart}
