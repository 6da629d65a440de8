"""Causes of conflicts in charts are found by putting changes back and rendering again."""

import io
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from reconciler.functions.pipeline import RunPipelines
from reconciler.functions.runtimes.pipelines import open_pipelines
from reconciler.functions.step import PipelineResult
from reconciler.names.ids import Oid
from reconciler.names.objects import File, Files
from reconciler.plan.changes import ConflictNote
from reconciler.plan.chart_causes import ChartCauses
from reconciler.policy import FunctionPolicy
from reconciler.render.update import update_package
from reconciler.render.update.identifiers import with_identifiers, with_identities_of
from reconciler.resolve.resolution import ResolvedVariant
from tests.support.charts import KPTFILE, config, needs_helm
from tests.support.plan_values import a_pin, a_resolved, oid

pytestmark = needs_helm

MANIFEST = "configmap_web.yaml"
FIELD = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\ndata:\n  x: "


class Counted:
    """Runs pipelines, and counts the packages."""

    def __init__(self, run: RunPipelines) -> None:
        self.run = run
        self.packages = 0

    def __call__(self, packages: Sequence[Files]) -> Sequence[PipelineResult]:
        self.packages += len(packages)
        return self.run(packages)


@pytest.fixture(scope="module")
def pipelines() -> Iterator[RunPipelines]:
    with open_pipelines(FunctionPolicy(timeout_s=60)) as run:
        yield run


@pytest.fixture
def run(pipelines: RunPipelines) -> Counted:
    return Counted(pipelines)


class Version(NamedTuple):
    """A version of a chart with one field, `data.x`, and what it is rendered with."""

    x: str
    values: str = ""
    about: str = "version: 1.0.0\n"
    more: Mapping[str, str | bytes] = MappingProxyType({})
    options: Mapping[str, Any] = MappingProxyType({})

    def package(self) -> Files:
        texts = {
            "Kptfile": KPTFILE,
            "chart.yaml": config(**self.options),
            "charts/web/Chart.yaml": f"apiVersion: v2\nname: web\n{self.about}",
            "charts/web/values.yaml": self.values,
            "charts/web/templates/config.yaml": FIELD + self.x + "\n",
            **self.more,
        }
        return {p: File.of(t if isinstance(t, bytes) else t.encode()) for p, t in texts.items()}


def archive(name: str, **files: str) -> bytes:
    """Return a chart as `helm dependency update` vendors it."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as opened:
        for path, text in files.items():
            member = tarfile.TarInfo(f"{name}/{path.replace('__', '/')}.yaml")
            member.size = len(text)
            opened.addfile(member, io.BytesIO(text.encode()))
    return packed.getvalue()


def database(version: str, size: int) -> dict[str, str | bytes]:
    """Return a dependency as an archive, with the field of a template of its own."""
    packed = archive(
        "db",
        Chart=f"apiVersion: v2\nname: db\nversion: 1.0.0\nappVersion: {version}\n",
        values=f"size: {size}\n",
        templates__config=FIELD + "{{ .Values.size }}-{{ .Chart.AppVersion }}\n",
    )
    return {"charts/web/charts/db-1.0.0.tgz": packed, "charts/web/templates/config.yaml": "# nothing\n"}


STRICT = {"charts/web/values.schema.json": '{"additionalProperties": false, "properties": {"used": {}}}'}
STRICT_WITH_MORE = {
    "charts/web/values.schema.json": '{"additionalProperties": false, "properties": {"used": {}, "more":'
    ' {"required": ["new"], "additionalProperties": false, "properties": {"new": {}}}}}'
}
ALIAS = "version: 1.0.0\ndependencies:\n- {name: db, version: 1.0.0, alias: store}\n"
NAMESPACED = FIELD.replace("{name: web}", "\n  name: web\n  namespace: default") + "'{{ .Values.used }}'\n"
OR = "{{ or .Values.a .Values.b }}"
CASES = {
    "value that has the same numbers as another one": (Version("'{{ .Values.used }}'", "used: 1\nother: 1\n"),
        Version("'{{ .Values.used }}'", "used: 2\nother: 2\n"), ".Values.used: 1 -> 2"),
    "value that the text of the field does not have": (Version("'{{ mul .Values.used 60 }}'",
        "used: 1\nother: 60\n"), Version("'{{ mul .Values.used 60 }}'", "used: 2\nother: 120\n"),
        ".Values.used: 1 -> 2"),
    "two values": (Version('"{{ .Values.image.name }}:{{ .Chart.AppVersion }}"', "image: {name: a}\n",
        "version: 1.0.0\nappVersion: 1.27\n"), Version('"{{ .Values.image.name }}:{{ .Chart.AppVersion }}"',
        "image: {name: b}\n", "version: 1.1.0\nappVersion: 1.28\n"),
        ".Chart.AppVersion: 1.27 -> 1.28 and .Values.image.name: a -> b"),
    "new value": (Version("'{{ .Values.new | default 3 }}'"),
        Version("'{{ .Values.new | default 3 }}'", "new: 4\n"), ".Values.new: none -> 4"),
    "value that is gone": (Version("'{{ .Values.old | default 3 }}'", "old: 4\n"),
        Version("'{{ .Values.old | default 3 }}'"), ".Values.old: 4 -> none"),
    "either of two values": (Version(OR, "a: false\nb: false\n"), Version(OR, "a: true\nb: true\nc: 1\n"),
        "some of .Values.a: false -> true, .Values.b: false -> true, .Values.c: none -> 1"),
    "the template": (Version("'30'", "ready: 30\n"), Version("'60'", "ready: 60\n"), "the template itself"),
    "version of Kubernetes": (Version("{{ .Capabilities.KubeVersion.Minor | quote }}",
        options={"kubeVersion": "v1.30.0"}), Version("{{ .Capabilities.KubeVersion.Minor | quote }}",
        options={"kubeVersion": "v1.31.0"}), ".Capabilities.KubeVersion: v1.30.0 -> v1.31.0"),
    "default of a dependency under an alias": (Version("", about=ALIAS, more=database("9", 1)),
        Version("", about=ALIAS, more=database("9", 2)), ".Values.store.size: 1 -> 2"),
    "version of a dependency": (Version("", about=ALIAS, more=database("9", 1)),
        Version("", about=ALIAS, more=database("10", 1)), ".Chart.AppVersion of db: 9 -> 10"),
    "a resource that gets a namespace, and with it another file": (Version("'{{ .Values.used }}'",
        "used: 1\n"), Version("", "used: 2\n", more={"charts/web/templates/config.yaml": NAMESPACED}),
        ".Values.used: 1 -> 2 and the template itself"),
    "value beside one that the old schema does not have": (Version("'{{ .Values.used }}'", "used: 1\n",
        more=STRICT), Version("'{{ .Values.used }}'", "used: 2\nmore: {new: 1}\n", more=STRICT_WITH_MORE),
        ".Values.used: 1 -> 2"),
    "value beside one that the template needs": (Version("'{{ .Values.used }}'", "used: 1\n"),
        Version("'{{ .Values.used }}{{ required \"new\" .Values.more | trunc 0 }}'", "used: 2\nmore: a\n"),
        ".Values.used: 1 -> 2"),
    "nothing that can be put back": (Version("{{ .Chart.Description }}", "unused: 1\n",
        "version: 1.0.0\ndescription: a\n"), Version("{{ .Chart.Description }}", "unused: 2\n",
        "version: 1.0.0\ndescription: b\n"), "an undecided change"),
}  # fmt: skip


class Conflicting(NamedTuple):
    """A package whose field people changed, between two versions of its chart."""

    resolved: ResolvedVariant
    contents: dict[Oid, Files]
    files: Files
    notes: tuple[ConflictNote, ...]


def conflicting(run: RunPipelines, old: Version, new: Version) -> Conflicting:
    """Return the conflict of an edit of `data.x` with the next chart."""
    before, after = (
        {p: f for p, f in result.files.items() if p.endswith((MANIFEST, "chart.yaml"))}
        for result in run([version.package() for version in (old, new)])
    )
    lines = before[MANIFEST].data.decode().splitlines()
    edited = [f"{line[: line.index('x:')]}x: edited" if "  x:" in line else line for line in lines]
    main = {**before, MANIFEST: File.of("\n".join(edited).encode() + b"\n")}
    after = with_identities_of(after, main, "default")
    updated = update_package(*with_identifiers(before, after, main))
    notes = tuple(
        ConflictNote(c.path, c.field, c.upstream, c.local, c.resource, c.name) for c in updated.conflicts
    )
    assert [note.field for note in notes] == ["data.x"]
    resolved = a_resolved(pin=a_pin(2, tree=oid("c2")), base=a_pin(1, tree=oid("c1")), local=oid("b1"))
    contents = {oid("c1"): old.package(), oid("c2"): new.package(), oid("b1"): main}
    return Conflicting(resolved, contents, {**after, **{p: updated.files[p] for p in after}}, notes)


@pytest.mark.parametrize("case", CASES)
def test_change_that_a_field_depends_on_is_named(run: Counted, case: str) -> None:
    old, new, expected = CASES[case]
    given = conflicting(run, old, new)

    (note,) = ChartCauses(run).trace_conflicts(given.notes, given.resolved, given.contents, given.files)

    assert note.values == expected
    assert note.template.startswith("web/")


def test_what_one_package_showed_is_tried_first_in_the_next(run: Counted) -> None:
    values = ["".join(f"v{n}: {n + side}\n" for n in range(30)) for side in (0, 1)]
    given = conflicting(run, *(Version("'{{ .Values.v17 }}'", each) for each in values))
    causes = ChartCauses(run)
    counts = []

    for package in (given, given, other_values(given)):
        run.packages = 0
        (note,) = causes.trace_conflicts(package.notes, package.resolved, package.contents, package.files)
        assert note.values == ".Values.v17: 17 -> 18"
        counts.append(run.packages)

    assert counts[0] <= 12
    assert counts[1] <= 2
    assert counts[2] <= 3


def other_values(given: Conflicting) -> Conflicting:
    """Return the conflict in a package that has one more value of its own."""
    chart = File.of(config(values={"valuesInline": {"own": 1}}).encode())
    main = {**given.contents[oid("b1")], "chart.yaml": chart}
    return given._replace(
        contents={**given.contents, oid("b1"): main}, files={**given.files, "chart.yaml": chart}
    )
