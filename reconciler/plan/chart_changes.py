"""Changes of what the templates of charts see: values, versions, the release, what the cluster serves."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson

from reconciler.api.kptfile import KPTFILE
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
from reconciler.krm.values import copy_value, is_same, value_at
from reconciler.krm.yaml import Path, YamlError, emit
from reconciler.names.ids import Oid
from reconciler.names.objects import File, Files
from reconciler.plan.chart_values import template_of
from reconciler.render.charts import chart_configurations, upstream_names
from reconciler.render.merging import Contents
from reconciler.resolve.resolution import ResolvedVariant

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
            of = f" of {folder.split('/')[-2]}" if folder else ""
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
