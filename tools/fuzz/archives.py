"""Targets for what is fetched with charts and images: archives, indexes of repositories, files of charts."""

import gzip
import io
import tarfile
import time
from collections.abc import Callable, Mapping
from functools import wraps
from resource import RUSAGE_SELF, getrusage
from typing import Any, NoReturn

from reconciler.base.errors import ReconcilerError, UnavailableError
from reconciler.functions.archives import ArchiveReader
from reconciler.functions.chart_resources import to_resources
from reconciler.functions.charts import (
    ChartError,
    RenderedTemplate,
    chart_members,
    find_value,
    read_charts,
    values_of,
)
from reconciler.functions.protocol import check_path
from reconciler.krm.yaml import YamlError, load_documents
from reconciler.names.objects import File, file_path_error
from reconciler.policy import Limits, Policy
from reconciler.run import from_chart
from reconciler.sources.charts import find_chart_version
from tests.support.archives import Member, badly_named, tar
from tools.fuzz.shapes import SEPARATOR

Target = Callable[[bytes], None]
MOST_S, MOST_MIB = 2.0, 200
_LIMITS = Limits()
_MENDS, _PACKS, _DROPS = 1, 2, 4


def bounded(target: Target) -> Target:
    """Return a target that fails where one input takes more time of the processor, or more new memory."""

    @wraps(target)
    def run(data: bytes) -> None:
        start, before = time.process_time(), getrusage(RUSAGE_SELF).ru_maxrss
        target(data)
        taken, grown = time.process_time() - start, (getrusage(RUSAGE_SELF).ru_maxrss - before) >> 10
        assert taken < MOST_S, f"{taken:.1f} s"
        assert grown < MOST_MIB, f"{grown} MiB"

    return run


def archive(data: bytes) -> None:
    """What is read of an archive is what tarfile reads, by valid names, each once; all else is refused.

    The first byte says whether checksums of headers are mended, the rest is packed, and a base is dropped.
    """
    form, content = data[0] if data else 0, data[1:]
    if form & _MENDS:
        content = b"".join(_mended(content[at : at + 512]) for at in range(0, len(content), 512))
    packed = gzip.compress(content, 1, mtime=0) if form & _PACKS else content
    for is_wanted in (lambda _: True, lambda path: path.endswith(".yaml")):
        reader = ArchiveReader(_LIMITS)
        try:
            read = [
                *reader.read(io.BytesIO(packed), "x", is_wanted, drops_base=bool(form & _DROPS)),
            ]
        except ReconcilerError:
            continue
        paths = [path for path, _ in read]
        assert len({*paths}) == len(paths)
        assert not any(map(file_path_error, paths))
        assert sum(len(text) for _, text in read) <= _LIMITS.package_bytes
        with tarfile.open(fileobj=io.BytesIO(packed)) as plain:
            theirs = {
                member.name.removeprefix("./"): file.read()
                for member in plain
                if member.isreg() and (file := plain.extractfile(member)) is not None
            }
        if form & _DROPS:
            theirs = {path.partition("/")[2]: text for path, text in theirs.items()}
        assert dict(read) == {path: text for path, text in theirs.items() if path in paths}


def _mended(block: bytes) -> bytes:
    """Return a header with its checksum; anything else as it is."""
    if len(block) < 512 or not any(block) or block[148:156].strip(b" 01234567\0"):
        return block
    return block[:148] + b"%06o\0 " % (sum(block[:148]) + 256 + sum(block[156:])) + block[156:]


class _Server:
    """A repository of charts that sends one index."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def file(self, _: str) -> bytes:
        return self.data


class _Nowhere:
    """What a chart depends on, where nothing answers."""

    def __getattr__(self, _: str) -> NoReturn:
        raise UnavailableError("nothing answers")


_NOWHERE: Any = _Nowhere()
_READER = from_chart.ChartReader(Policy(), _NOWHERE, _NOWHERE)


def chart_index(data: bytes) -> None:
    """An index leads to a version in the range, always the same, or is refused."""
    wanted, _, index = data.partition(b"\n")
    answers: list[object] = []
    for _ in range(2):
        try:
            client: Any = _Server(index)
            found = find_chart_version("https://h/c/web", wanted.decode("utf-8", "replace"), client, _LIMITS)
            assert found.url
            answers.append(found)
        except ReconcilerError as error:
            answers.append(str(error))
    assert answers[0] == answers[1]


def rendered_chart(data: bytes) -> None:
    """A configuration names charts or is refused; what templates give are resources in files of a package."""
    texts = (data.split(SEPARATOR) + [b""] * 5)[:5]
    named = ("chart.yaml", "charts/web/Chart.yaml", "charts/web/values.yaml", "charts/web/templates/a.yaml")
    files = {path: File.of(text) for path, text in zip(named, texts, strict=False)}
    try:
        documents = load_documents(texts[0])
        value = documents[0].value if documents else None
        config = value if isinstance(value, dict) else {}
        calls = read_charts(config, files, _LIMITS)
    except (ChartError, YamlError):
        return
    for call in calls:
        seen = values_of(call, chart_members(call.chart))
        assert isinstance(seen["Values"], Mapping)
        find_value(call, config, ("image", "tag"), files)
        template = RenderedTemplate("web/templates/a.yaml", texts[4].decode("utf-8", "replace"))
        try:
            resources = to_resources(call, [template], "pkg")
        except (ChartError, YamlError):
            continue
        for each in resources:
            assert not check_path(each.path), each.path
            assert each.kind
            assert each.name


def vendored_chart(data: bytes) -> None:
    """A package of a chart is made once: the same chart changes nothing, another one only what is its own."""
    texts = (data.split(SEPARATOR) + [b""] * 5)[:5]
    named = ("Chart.yaml", "values.yaml", "requirements.yaml", "charts/db/Chart.yaml")
    files = {path: File.of(text) for path, text in zip(named, texts, strict=False) if text}
    from_chart.pinned_chart(texts[4])
    try:
        chart = from_chart._vendored(files, "https://h/web@sha256:" + "0" * 64, _READER)._replace(
            versions="^1"
        )
        made = from_chart.package_with(chart, {}, "pkg")
        assert from_chart.package_with(chart, made, "pkg") == made
        pinned = from_chart.pinned_chart(made[from_chart.CONFIGURATION].data)
        assert pinned is not None
        assert (pinned.name, pinned.version) == (chart.name, chart.version)
        edited = {**made, "values.yaml": File.of(texts[4]), from_chart.CONFIGURATION: File.of(texts[4])}
        from_chart.package_with(chart, edited, "pkg")
    except ReconcilerError:
        return


_GOOD = Member("web/Chart.yaml", b"apiVersion: v2\nname: web\nversion: 1.0.0\n")
_CHART = b"apiVersion: v2\nname: web\nversion: 1.2.0\nkubeVersion: '>=1.25'\ndependencies: [{name: db}]\n"
_VALUES = b"# about\nimage:\n  tag: v1 # which\nreplicas: 1\n"
_CONFIG = b"""\
apiVersion: fn.kpt.dev/v1alpha1
kind: RenderHelmChart
metadata:
  name: web
  annotations: {reconciler.dev/chart-source: 'https://h/web@sha256:0', reconciler.dev/chart-versions: ^1}
helmCharts:
- chartArgs: {name: web, version: 1.2.0}
  templateOptions:
    releaseName: web
    includeCRDs: true
    apiVersions: [v1]
    values: {valuesInline: {image: {tag: v2}}, valuesFiles: [charts/web/values.yaml], valuesMerge: override}
"""
_OUTPUT = b"""\
---
# Source: a
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Pod, metadata: {name: a, annotations: {helm.sh/hook: 'test,post-install'}}}
---# glued
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: A/b}
"""
_INDEX = b"""\
apiVersion: v1
entries:
  web:
  - {version: 1.2.0, urls: [web-1.2.0.tgz], digest: 'sha256:00'}
  - {version: v1.10.0+b.1, urls: ['https://x/y.tgz']}
  - {version: 2.0.0-rc.1, urls: ["//["]}
"""

TARGETS: dict[str, Target] = {
    "archive": archive,
    "chart-index": chart_index,
    "rendered-chart": rendered_chart,
    "vendored-chart": vendored_chart,
}
_FORMS = (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT)
_LONG = Member(f"web/{'d' * 120}/{'f' * 90}.yaml", b"a: 1\n")
_HOLES = {"GNU.sparse.map": "0,1", "GNU.sparse.size": "9", "path": "web/b.yaml", "size": "7"}
_KINDS = (*(bytes([kind]) for kind in b"123456789SxgXLKV\0"), tarfile.DIRTYPE)
SEEDS: dict[str, list[bytes]] = {
    "archive": [
        *(bytes([form | _MENDS]) + tar(_GOOD, _LONG, form=_FORMS[form % 3]) for form in range(8)),
        *(bytes([_DROPS | _MENDS]) + tar(_GOOD, Member("web/a.yaml", b"x", kind), _GOOD) for kind in _KINDS),
        bytes([_MENDS]) + tar(_GOOD, Member("web/a.yaml", b"1\n0\n0\n", extended=_HOLES)),
        *(bytes([_DROPS | _PACKS]) + case.data for case in badly_named("web", _GOOD).values()),
    ],
    "chart-index": [
        b"^1\n" + _INDEX,
        b'\n{"entries": {"web": [{"version": "1", "urls": ["a"]}]}}',
        b">1 <3 || 5\n" + _INDEX,
    ],
    "rendered-chart": [
        SEPARATOR.join([_CONFIG, _CHART, _VALUES, b"{{ .Values.image.tag }}\n{{ now }}\n", _OUTPUT])
    ],
    "vendored-chart": [SEPARATOR.join([_CHART, _VALUES, b"dependencies: [{name: db}]\n", _CHART, _CONFIG])],
}
