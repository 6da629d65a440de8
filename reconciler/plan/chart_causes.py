"""Which change of a chart changes a field: each is put back in turn, and the chart rendered again.

What templates see may have changed: values, versions of the chart, the release, what the cluster serves. So
may the files of the chart. What a field depends on is found by halving: changes that leave it as it is when
they are put back together are out of the question.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

import orjson

from reconciler.api.kptfile import KPTFILE
from reconciler.base.wording import plural
from reconciler.functions.charts import (
    FILES,
    RENDER_HELM_CHART,
    ChartCall,
    ChartError,
    chart_folders,
    chart_members,
    read_charts,
    values_of,
)
from reconciler.functions.pipeline import RunPipelines
from reconciler.functions.secrets import NO_SECRET_VALUES, SecretValues, holds_secret, values_in_secrets
from reconciler.functions.values import copy_value, is_same, value_at
from reconciler.krm.yaml import Path, YamlError, emit
from reconciler.names.ids import Oid
from reconciler.names.objects import File, Files, tree_id
from reconciler.plan.changes import ConflictNote
from reconciler.plan.chart_values import template_of
from reconciler.render.charts import chart_configurations
from reconciler.render.merging import Contents
from reconciler.render.update import UpdateRefused, update_package
from reconciler.render.update.documents import documents_of
from reconciler.render.update.identifiers import with_identifiers, with_identities_of
from reconciler.resolve.resolution import ResolvedVariant

_MOST_RENDERINGS: Final = 40
"""Renderings to find the causes in one package; more changes than these find are counted."""
_MOST_KEPT: Final = 64
_MOST_NAMED: Final = 3
_LONGEST: Final = 60
_CHART_FILES: Final[Path] = ("files",)
_UNDECIDED: Final = "an undecided change"
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


class _Conflicts(NamedTuple):
    """Conflicts of one chart in a package, by their numbers, and the sides where people's values are."""

    notes: Mapping[int, ConflictNote]
    locals: tuple[Files, ...]

    def picked(self, files: Files) -> Files:
        """Return the files that the conflicts are about."""
        paths = {note.path for note in self.notes.values()}
        templates = {note.template for note in self.notes.values()}
        return {path: f for path, f in files.items() if path in paths or template_of(f) in templates}


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


class ChartCauses:
    """Finds what changed conflicting fields of charts; what one package showed is tried first in the next."""

    def __init__(self, run: RunPipelines) -> None:
        self._run = run
        self._rendered: dict[Oid, Files] = {}
        self._causes: dict[tuple[Oid, Oid, str], set[Path]] = {}

    def trace_conflicts(
        self, notes: Sequence[ConflictNote], resolved: ResolvedVariant, contents: Contents, files: Files
    ) -> tuple[ConflictNote, ...]:
        """Return conflicts with the template of a chart and the changes that upstream's value comes from.

        Args:
            notes: The conflicts of a package.
            resolved: Its variant, with the upstreams between which values changed.
            contents: The upstreams and main; a missing one changed no values.
            files: The package as its draft has it.
        """
        main = contents.get(resolved.local or Oid(""), {})
        # A resource that gets a namespace gets another file, and the conflict names that of main.
        traced = {
            n: note._replace(template=template_of(files.get(note.path) or main.get(note.path)))
            for n, note in enumerate(notes)
        }
        names = {note.template.partition("/")[0] for note in traced.values()} - {""}
        if not names:
            return tuple(notes)
        base = resolved.base.tree if resolved.base else Oid("")
        draft = contents.get(resolved.draft.tree, {}) if resolved.draft else {}
        old = dict(_charts(contents.get(base, {}), main))
        new = dict(_charts(contents.get(resolved.pin.tree, {}), files))
        for name in sorted(names & old.keys() & new.keys()):
            own = {n: note for n, note in traced.items() if note.template.startswith(f"{name}/")}
            likely = self._causes.setdefault((base, resolved.pin.tree, name), set())
            search = _Search(self, old[name], new[name], _Conflicts(own, (main, draft)))
            traced |= {n: own[n]._replace(values=text) for n, text in search.causes(likely).items()}
        return tuple(traced.values())

    def changed_values(
        self, resolved: ResolvedVariant, contents: Contents, files: Files
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
            secret = self.secret_values(old[name], new, main, files) if changes else NO_SECRET_VALUES
            for (kind, *path), *sides in changes:
                before, after = (_value_text(secret.value(side)) for side in sides)
                yield ChangedValue(name, str(kind), tuple(path), before, after)

    def secret_values(self, old: _Chart, new: _Chart, *sides: Files) -> SecretValues:
        """Return the values that templates of a chart see, old or new, and that are in Secrets.

        `sides` are packages with what the chart was rendered to: people may have edited that, so both are
        rendered again.
        """
        members = (File.of(data) for chart in (old, new) for data in chart.members.values())
        if not holds_secret(*members, *(file for side in sides for file in side.values())):
            return NO_SECRET_VALUES
        every = tuple(at for at, *_ in _changed(old.seen, new.seen))
        made = (self.render(_package(old, new, group, ())) for group in ((), every))
        values = ({"values": chart.seen["Values"]} for chart in (old, new))
        seen = ({"values.json": File.of(orjson.dumps(v, option=orjson.OPT_NON_STR_KEYS))} for v in values)
        return values_in_secrets(*seen, *sides, *made)

    def render(self, package: Files) -> Files:
        """Return what a package with a chart renders to, nothing where that fails."""
        key = tree_id(package)
        if key not in self._rendered:
            if len(self._rendered) == _MOST_KEPT:
                self._rendered.pop(next(iter(self._rendered)))
            (result,) = self._run([package])
            made = {} if result.error else result.files
            self._rendered[key] = {path: file for path, file in made.items() if template_of(file)}
        return self._rendered[key]


class _Search:
    """Looks for the changes between two charts that conflicts of one package come from."""

    def __init__(self, causes: ChartCauses, old: _Chart, new: _Chart, conflicts: _Conflicts) -> None:
        self._renderer = causes
        self._old = old
        self._new = new
        self._conflicts = conflicts
        self._left = _MOST_RENDERINGS
        self._hits: dict[Sequence[Path], set[int] | None] = {}
        self._changes = {at: pair for at, *pair in _changed(old.seen, new.seen)}
        if _other_files(old.members) != _other_files(new.members):
            self._changes[_CHART_FILES] = []
        templates = {note.template.partition("/")[2] for note in conflicts.notes.values()}
        self._left_out = set(_unneeded(new.members, templates))

    def causes(self, likely: set[Path]) -> dict[int, str]:
        """Return the causes of conflicts as text; `likely` are those of other packages, and gets new ones."""
        if not self._changes:
            return {}
        numbers = set(self._conflicts.notes)
        first = [(at,) for at in self._changes if at in likely]
        rest = tuple(at for at in self._changes if at not in likely)
        groups_of: dict[int, list[Sequence[Path]]] = {}
        for group in (*first, rest):
            for number, groups in self._search(group, numbers).items():
                groups_of.setdefault(number, []).extend(groups)
        groups_of |= self._search(tuple(self._changes), numbers - groups_of.keys())
        likely.update(group[0] for groups in groups_of.values() for group in groups if len(group) == 1)
        order = list(self._changes)
        for groups in groups_of.values():
            groups.sort(key=lambda group: order.index(group[0]))
        return {n: " and ".join(map(self._text, groups_of.get(n, ()))) or _UNDECIDED for n in numbers}

    def _search(self, group: Sequence[Path], numbers: Collection[int]) -> dict[int, list[Sequence[Path]]]:
        """Return the smallest groups of changes that change conflicting fields, by the conflicts' numbers."""
        hits = self._changed_by(group) if group and numbers else set()
        # A group that cannot be rendered says nothing about its parts.
        likely = set(numbers) if hits is None else hits & set(numbers)
        if len(group) <= 1 or not likely or not self._left:
            return {number: [group] for number in likely if hits is not None}
        middle = len(group) // 2
        halves = [self._search(half, likely) for half in (group[:middle], group[middle:])]
        parts = {n: [each for half in halves for each in half.get(n, ())] for n in likely}
        return {n: parts[n] or [group] for n in likely if parts[n] or hits is not None}

    def _changed_by(self, group: Sequence[Path]) -> set[int] | None:
        """Return the conflicts with fields that a group of changes changes when it is put back.

        None where that cannot be rendered; all of them once there were too many renderings.
        """
        if group not in self._hits and self._left:
            self._left -= 1
            sides = self._made(()), self._made(group)
            self._hits[group] = set(self._compare(*sides)) if all(sides) else None
        return self._hits.get(group, set(self._conflicts.notes))

    def _made(self, group: Sequence[Path]) -> Files:
        package = _package(self._old, self._new, group, self._left_out)
        made = self._renderer.render(package)
        return with_identities_of(made, self._conflicts.locals[0], self._new.call.namespace)

    def _compare(self, new: Files, other: Files) -> Iterator[int]:
        """Yield the conflicts that are others: upstream has another value, and people have a third one."""
        pick = self._conflicts.picked
        for local in filter(None, map(pick, self._conflicts.locals)):
            try:
                merged = update_package(*with_identifiers(pick(new), pick(other), local))
            except UpdateRefused:
                continue
            for number, note in self._conflicts.notes.items():
                if any(_is_about(note, *each.place) for each in merged.conflicts):
                    yield number

    @cached_property
    def _secret_values(self) -> SecretValues:
        return self._renderer.secret_values(self._old, self._new, *self._conflicts.locals)

    def _text(self, group: Sequence[Path]) -> str:
        if len(group) == 1:
            return self._name(group[0])
        named = ", ".join(map(self._name, group))
        return f"some of {named if len(group) <= _MOST_NAMED else plural(len(group), 'change')}"

    def _name(self, at: Path) -> str:
        if at == _CHART_FILES:
            return "the template itself"
        old, new = (_value_text(self._secret_values.value(side)) for side in self._changes[at])
        value = ChangedValue(self._new.call.chart.name, str(at[0]), at[1:], old, new)
        return f"{value.name}: {value.before} -> {value.after}"


def _is_about(note: ConflictNote, path: str, resource: str, field: str) -> bool:
    """Tell whether a place is that of a conflict, or has it, or is in it."""
    outer, inner = sorted((note.field, field), key=len)
    inside = inner.startswith(outer) and inner[len(outer) : len(outer) + 1] in ("", ".", "[")
    return (path, resource) == (note.path, note.resource) and (inside or not outer)


def _value_text(value: Any) -> str:
    text = "none" if value is None else value if isinstance(value, str) else emit(value, flow=True)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _charts(upstream: Files, files: Files) -> Iterator[tuple[str, _Chart]]:
    """Yield the charts of an upstream by their names, with the values that a package records."""
    for package, path, config in chart_configurations(upstream):
        start = f"{package}/" if package else ""
        # A package may keep values files, which people edit there.
        own = {**upstream, **{each: files[each] for each in files if each in upstream}}
        inside = {each.removeprefix(start): f for each, f in own.items() if each.startswith(start)}
        documents = documents_of(files[path]) if path in files else ()
        try:
            for call in read_charts(documents[0].data if len(documents) == 1 else config, inside):
                members = chart_members(call.chart)
                yield call.chart.name, _Chart(call, members, values_of(call, members))
        except (ChartError, YamlError):
            continue  # another chart or version than the one that is recorded


def _changed(old: Any, new: Any, at: Path = ()) -> Iterator[tuple[Path, Any, Any]]:
    """Yield the values that differ, with both sides; None is absent."""
    if all(each is None or isinstance(each, dict) for each in (old, new)):
        for key in sorted({**(old or {}), **(new or {})}, key=str):
            yield from _changed(value_at(old, key), value_at(new, key), (*at, key))
    elif not is_same(old, new):
        yield at, old, new


def _other_files(members: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the files of a chart that make its manifests, without those with versions and defaults."""
    described = {
        f"{folder}{name}" for folder in chart_folders(members) for name in ("Chart.yaml", "values.yaml")
    }
    aside = (".helmignore", "values.schema.json")
    return {p: data for p, data in members.items() if p not in described and not p.endswith(aside)}


def _unneeded(members: Mapping[str, bytes], templates: Collection[str]) -> Iterator[str]:
    """Yield the files that give other resources than these templates, and that no template can include.

    So do schemas: what is put back may be no value that the other version of the chart accepts.
    """
    # A dependency may have another name there than its folder.
    ends = tuple(template.rpartition("templates/")[2] for template in templates)
    sources = b"".join(data for path, data in members.items() if "templates/" in path)
    for path, data in members.items():
        name = path.rpartition("/")[2]
        if name == "values.schema.json":
            yield path
            continue
        gives = "templates/" in path and name.endswith((".yaml", ".yml", ".txt")) and b"define" not in data
        if (path.startswith("crds/") or gives) and not path.endswith(ends) and name.encode() not in sources:
            yield path


def _package(old: _Chart, new: _Chart, back: Sequence[Path], left_out: Collection[str]) -> Files:
    """Return a package that renders the new chart where changes are put back to what was before."""
    call, members = new.call, dict(new.members)
    seen = {**new.seen, "Values": call.values}
    if _CHART_FILES in back:
        others = _other_files(new.members).keys()
        described = {
            path: data for path, data in members.items() if path not in others and path in old.members
        }
        members = {**old.members, **described}
    seen = copy_value(seen)
    for *parents, name in (map(str, at) for at in back if at != _CHART_FILES):
        below = seen
        for key in parents:
            below[key] = below[key] if isinstance(below.get(key), dict) else {}
            below = below[key]
        below[name] = value_at(old.seen, *parents, name)
    for folder, versions in seen["Chart"].items():
        if new.seen["Chart"].get(folder) != versions and (path := f"{folder}Chart.yaml") in members:
            about = next((each.data for each in documents_of(File.of(members[path]))), None) or {}
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
    chart = {f"{home}{path}": File.of(data) for path, data in members.items() if path not in left_out}
    return {KPTFILE: _KPTFILE, _CONFIG: File.of(orjson.dumps(config)), **chart}
