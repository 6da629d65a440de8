"""Charts of Helm as a package holds them, and what `RenderHelmChart` asks to render of them."""

import gzip
import io
import posixpath
import tarfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace as changed
from functools import lru_cache
from hashlib import sha256
from itertools import accumulate
from typing import Any, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from reconciler.base.errors import Location, RefusedError
from reconciler.base.lazy import regex
from reconciler.base.suggestions import boolean_hint, parse_boolean, suggest
from reconciler.base.text import Text
from reconciler.dependencies.versions import Grammar, VersionError, parse_constraint, parse_strict
from reconciler.functions.archives import ArchiveReader
from reconciler.functions.patterns import Pattern, PatternError, compile_pattern, quote
from reconciler.krm.values import mapping_at, mappings_at, value_at
from reconciler.krm.yaml import PACKAGE_LIMITS, Path, Tree, YamlError, YamlLimits, load_documents
from reconciler.names.objects import File, Files, Mode
from reconciler.policy import Limits

IGNORE_FILE: Final = ".helmignore"
_ALWAYS: Final = "templates/.?*"
"""Helm's own rule, behind those of the file."""
_MOST_BYTES: Final = 64 << 10
_MOST_LINES: Final = 1000
"""To compile a pattern takes a third of a millisecond, and RE2 has memory for some thousands."""


class IgnoreError(Exception):
    """Helm refuses a `.helmignore`, or it is too long; the message follows its path."""


class _Rule(NamedTuple):
    """A rule: it ignores what it matches, or with `!` what it does not match, a directory with all in it."""

    pattern: Pattern
    negates: bool
    wants_directory: bool
    of_name: bool

    def ignores(self, path: str, *, is_directory: bool) -> bool:
        if self.wants_directory and not is_directory:
            return self.negates
        matches = self.pattern.fullmatch(path.rpartition("/")[2] if self.of_name else path) is not None
        return matches is not self.negates


def kept_files(paths: Iterable[str], ignore: bytes) -> list[str]:
    """Return the files that are part of a chart, by their paths in it; `ignore` is its `.helmignore`.

    Raises:
        IgnoreError: Helm would not load the chart.
    """
    rules = tuple(_rules(ignore))

    def is_ignored(path: str) -> bool:
        steps = accumulate(path.split("/"), "{}/{}".format)
        return any(rule.ignores(step, is_directory=step != path) for step in steps for rule in rules)

    return [path for path in paths if not is_ignored(path)]


def _rules(ignore: bytes) -> Iterator[_Rule]:
    if len(ignore) > _MOST_BYTES or ignore.count(b"\n") > _MOST_LINES:
        raise IgnoreError(" has too many patterns, or too long ones")
    for number, line in enumerate([*ignore.decode("utf-8-sig", "replace").split("\n"), _ALWAYS], 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        if "**" in text:
            raise IgnoreError(f":{number}: Helm knows no `**`")
        path = text.removeprefix("!")
        name = path.removesuffix("/")
        try:
            pattern = compile_pattern(_expression(name.removeprefix("/")))
        except (PatternError, ValueError) as error:
            raise IgnoreError(f":{number}: {text} is no pattern") from error
        yield _Rule(pattern, text.startswith("!"), path.endswith("/"), "/" not in name)


def _expression(glob: str) -> str:
    """Return a pattern of Go's filepath.Match as an expression."""
    result, rest = "", glob
    while rest:
        letter, rest = rest[0], rest[1:]
        if letter == "[":
            part, rest = _class(rest)
            result += part
        elif letter == "\\":
            literal, rest = _literal(f"\\{rest}")
            result += quote(literal)
        else:
            result += {"*": "[^/]*", "?": "[^/]"}.get(letter) or quote(letter)
    return f"(?s){result}"


def _class(rest: str) -> tuple[str, str]:
    negated, rest = ("^", rest[1:]) if rest.startswith("^") else ("", rest)
    ranges = ""
    while not ranges or not rest.startswith("]"):
        low, rest = _literal(rest)
        high = low
        if rest.startswith("-"):
            high, rest = _literal(rest[1:])
        ranges += f"{quote(low)}-{quote(high)}" if low <= high else ""
        ranges = ranges or "\0"  # a range without letters matches none
    return f"[{negated}{ranges}]", rest[1:]


def _literal(rest: str) -> tuple[str, str]:
    """Return the next letter of a pattern, which may be escaped, and what follows it."""
    escaped = rest.startswith("\\")
    letter = rest[1:2] if escaped else rest[:1]
    if not letter or (not escaped and letter in "-]"):
        raise ValueError
    return letter, rest[1 + escaped :]


RENDER_HELM_CHART: Final = "render-helm-chart"
CHART_HOME: Final = "charts"
"""The directory of charts in a package, unless `helmGlobals.chartHome` names another one."""
FILES: Final = "reconciler.dev/chart-files"
"""The annotation of a RenderHelmChart that decides how files are named: `resources` or `templates`."""
CHART_FILE: Final = "Chart.yaml"
_OLD_DEPENDENCIES: Final = "requirements.yaml"
"""The file of a chart of apiVersion v1 that names its dependencies."""
_MERGES: Final = ("override", "merge", "replace")
_NAMED: Final = ("resources", "templates")
_TEMPLATE: Final = (".tpl", ".yaml", ".yml", ".txt", ".json")
_ASKED: Final = regex(rb"Capabilities\s*\.\s*APIVersions\s*\.\s*Has\s+\"([^\"]+)\"")
_RANDOM: Final = regex(
    r"\b(?:rand(?:AlphaNum|Alpha|Numeric|Ascii|Bytes|Int)|gen(?:CA|SelfSigned|Signed|PrivateKey)\w*|uuidv4|now"
    r"|htpasswd|bcrypt)\b"
)
"""A function of templates that gives something else each time."""
_SCHEMA: Final = "values.schema.json"
_REFERENCE: Final = regex(
    rb"\"\$(?:ref|schema)\"\s*:\s*\"(?!#|https?://json-schema\.org/(?:draft|schema))([^\"]+)\""
)
SEPARATOR: Final = regex(r"(?m)^---(?!-)")
"""The beginning of a document in what a template gives, also with text right behind it."""
_TEST: Final = regex(r"helm\.sh/hook[\"']?:\s*[\"']?test")
VALUES: Final = regex(r"\.Values\.([A-Za-z0-9_.]*[A-Za-z0-9_])")
"""A value that a template reads."""


class ChartError(Exception):
    """A chart cannot be rendered; `path` is the field of the configuration that asks for it."""

    def __init__(self, message: str, path: Path = (), hint: Text = "") -> None:
        super().__init__(message)
        self.path = path
        self.hint = hint


class Chart(Struct, frozen=True):
    """A chart as an archive with its digest."""

    name: str
    archive: bytes
    digest: str
    limits: Limits
    """Bounds of what it unpacks and renders to."""
    asks_version: bool = False
    asks: tuple[str, ...] = ()
    """API versions that its templates ask the cluster for by name."""
    requires: str = ""
    """Range of the versions of Kubernetes that it is for."""
    is_library: bool = False
    elsewhere: str = ""
    """The reference of a schema that leads out of the chart."""


class ChartCall(Struct, frozen=True):
    """One rendering of a chart."""

    chart: Chart
    values: Mapping[str, Any]
    release: str
    namespace: str
    path: Path = ()
    kube_version: str = ""
    """Version of Kubernetes; empty where nothing tells it."""
    api_versions: tuple[str, ...] | None = None
    """APIs of the cluster; None where nothing tells them."""
    include_crds: bool = False
    skip_tests: bool = False
    by_template: bool = False
    chart_files: frozenset[str] = frozenset()
    """Files of charts and values, which may be resources before a template is rendered."""
    locate: Callable[[Path], str] = lambda _: ""
    """Returns where a value is written, with its line."""


class RenderedTemplate(Struct, frozen=True):
    """The output of one template, or a file of `crds/`, by its path in the chart."""

    path: str
    text: str


def read_charts(
    config: Mapping[str, Any] | None,
    files: Files,
    limits: Limits = Limits(),  # noqa: B008 - a frozen value
) -> tuple[ChartCall, ...]:
    """Return the charts that a functionConfig asks for, with their values. Charts come from the package.

    Args:
        config: A `RenderHelmChart`, or a `ConfigMap` with one chart.
        files: The files of the package, by their paths in it.
        limits: Bound what archives unpack to, and what the charts render to.

    Raises:
        ChartError: The configuration is invalid, or a chart or values file is missing or invalid.

    Source: krm-functions-catalog functions/go/render-helm-chart/helmfn, and its HelmChartInflationGenerator.
    Differs: nothing is fetched; of several values files the last one wins; a release without a name has
        that of the chart, not a generated one.
    """
    kind = str(value_at(config, "kind") or "")
    if config is None or kind not in ("ConfigMap", "RenderHelmChart"):
        raise ChartError("Its functionConfig must be a RenderHelmChart or a ConfigMap")
    spec: Mapping[str, Any] = _of_config_map(mapping_at(config, "data")) if kind == "ConfigMap" else config
    charts = mappings_at(spec, "helmCharts")
    if not charts:
        raise ChartError("helmCharts names no chart", ("helmCharts",) if "helmCharts" in spec else ("kind",))
    home = str(value_at(spec, "helmGlobals", "chartHome") or "").strip("/") or CHART_HOME
    named = str(value_at(config, "metadata", "annotations", FILES) or _NAMED[0])
    if named not in _NAMED:
        path = ("metadata", "annotations", FILES)
        raise ChartError(f"{FILES} is {named!r}", path, f"Write {' or '.join(_NAMED)}.")
    chart_files = chart_paths(config, files)
    calls = (_call(chart, ("helmCharts", index), home, files, limits) for index, chart in enumerate(charts))
    return tuple(replace(call, by_template=named == _NAMED[1], chart_files=chart_files) for call in calls)


def _of_config_map(data: Mapping[str, Any]) -> dict[str, Any]:
    chart = {name: data[name] for name in ("name", "version", "repo") if name in data}
    fields = ("releaseName", "namespace", "nameTemplate", "includeCRDs", "skipTests")
    options: dict[str, Any] = {name: data[name] for name in fields if name in data}
    if "valuesFile" in data:
        options["values"] = {"valuesFiles": [data["valuesFile"]]}
    home = {name: data[name] for name in ("chartHome", "configHome") if name in data}
    return {"helmGlobals": home, "helmCharts": [{"chartArgs": chart, "templateOptions": options}]}


def _call(spec: Mapping[str, Any], at: Path, home: str, files: Files, limits: Limits) -> ChartCall:
    args, options = mapping_at(spec, "chartArgs"), mapping_at(spec, "templateOptions")
    name = str(args.get("name") or "")
    if not name:
        raise ChartError("chartArgs.name is missing", at, "Write the name of the chart.")
    chart = find_chart(
        name, str(args.get("version") or ""), home, files, limits=limits, at=(*at, "chartArgs")
    )
    release = str(options.get("releaseName") or options.get("nameTemplate") or name)
    if "{{" in release:
        hint = "Write releaseName, so that every run gives the same manifests."
        raise ChartError("nameTemplate has a template", (*at, "templateOptions", "nameTemplate"), hint)
    versions, kube_version = options.get("apiVersions"), str(options.get("kubeVersion") or "")
    if chart.is_library:
        hint = "Name a chart that depends on it."
        raise ChartError(f"{name} is a library chart, which renders nothing itself", (*at, "chartArgs"), hint)
    if kube_version and not _is_accepted(kube_version, chart.requires):
        hint = "Use a version of the chart for that cluster."
        message = f"The chart {name} is for Kubernetes {chart.requires}, and the cluster has {kube_version}"
        raise ChartError(message, (*at, "templateOptions", "kubeVersion"), hint)
    at = (*at, "templateOptions")
    return ChartCall(
        chart,
        _values(mapping_at(options, "values"), (*at, "values"), files),
        release,
        str(options.get("namespace") or "default"),
        at,
        kube_version,
        tuple(map(str, versions)) if isinstance(versions, list) else None,
        _is_true(options, "includeCRDs", at),
        _is_true(options, "skipTests", at),
    )


def _is_accepted(kube_version: str, requires: str) -> bool:
    try:
        version = parse_strict(kube_version.removeprefix("v"))
        return not requires or parse_constraint(requires, Grammar.MASTERMINDS).allows(version)
    except VersionError:
        return True  # Helm reads more than we do


def _is_true(options: Mapping[str, Any], name: str, at: Path) -> bool:
    value = options.get(name)
    flag = False if value in (None, "") else parse_boolean(value)
    if flag is None:
        raise ChartError(f"{name} is {value!r}", (*at, name), boolean_hint(value))
    return flag


def _values(spec: Mapping[str, Any], at: Path, files: Files) -> dict[str, Any]:
    """Return the values of files and those in the configuration, merged by `valuesMerge`."""
    merge = str(spec.get("valuesMerge") or _MERGES[0])
    if merge not in _MERGES:
        raise ChartError(
            f"valuesMerge is {merge!r}", (*at, "valuesMerge"), f"Write one of {', '.join(_MERGES)}."
        )
    inline = mapping_at(spec, "valuesInline")
    if merge == "replace":
        return inline
    read: dict[str, Any] = {}
    for index, values_path in enumerate(spec.get("valuesFiles") or ()):
        read = merge_values(read, _values_file(str(values_path), (*at, "valuesFiles", index), files))
    return merge_values(read, inline) if merge == _MERGES[0] else merge_values(inline, read)


def _values_file(values_path: str, at: Path, files: Files) -> dict[str, Any]:
    path = posixpath.normpath(values_path)
    if "://" in values_path:
        raise ChartError(
            f"The values file {values_path} is on a server", at, "Put it into the package: no run fetches it."
        )
    if path.startswith(("/", "../")) or path not in files or files[path].mode == Mode.SYMLINK:
        suggestion = suggest(path, [name for name in files if name.endswith((".yaml", ".yml"))])
        raise ChartError(f"The package has no values file {values_path}", at, suggestion)
    try:
        documents = load_documents(files[path].data, PACKAGE_LIMITS)
    except YamlError as error:
        raise ChartError(f"{path}:{error.line}: {error.message}", at, error.hint) from error
    value = documents[0].value if documents else None
    if value is not None and not isinstance(value, dict):
        raise ChartError(f"{path} has no mapping of values", at)
    return value or {}


def merge_values(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return both mappings as Helm merges values: mappings are joined, everything else comes from `above`."""
    result = dict(below)
    for key, value in above.items():
        old = result.get(key)
        result[key] = merge_values(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return result


# Charts in a package


def find_chart(
    name: str,
    version: str,
    home: str,
    files: Files,
    *,
    limits: Limits = Limits(),  # noqa: B008 - a frozen value
    at: Path = (),
) -> Chart:
    """Return a chart of a package: a directory or an archive below `home`.

    Raises:
        ChartError: There is none, it is of another version, or it has an archive that is refused.
    """
    root = f"{home}/{name}"
    inside = tuple(sorted((path, file) for path, file in files.items() if path.startswith(f"{root}/")))
    is_directory = inside and f"{root}/Chart.yaml" in files
    if is_directory:
        chart, actual = _directory(name, root, inside, limits)
    else:
        exact = [f"{root}-{version}.tgz", f"{root}.tgz"] if version else [f"{root}.tgz"]
        others = sorted(
            path
            for path, file in files.items()
            if path.startswith(f"{root}-")
            and path.endswith(".tgz")
            and _archived_name(path, file, limits) in ("", name)
        )
        archive = next((path for path in exact if path in files), others[0] if len(others) == 1 else "")
        if not archive:
            charts = {path.removesuffix("/Chart.yaml") for path in files if path.endswith("/Chart.yaml")}
            inside_home = {path.removeprefix(f"{home}/") for path in charts if path.startswith(f"{home}/")}
            elsewhere = next((path for path in sorted(charts) if path.rpartition("/")[2] == name), "")
            hint = f"Move {elsewhere}/ to {root}/." if elsewhere else suggest(name, inside_home, otherwise="")
            hint = hint or "Vendor it with `reconciler package from-chart`: no run fetches a chart."
            raise ChartError(f"The package has no chart {name} in {home}/", (*at, "name"), hint)
        chart, actual = _archive(name, archive, files[archive], limits)
    if version and actual.lstrip("v") != version.lstrip("v"):
        raise ChartError(
            f"The chart {name} of the package is version {actual}, not {version}",
            (*at, "version"),
            f"Write {actual}, or vendor the chart of version {version}.",
        )
    return chart


def values_of(call: ChartCall, members: Mapping[str, bytes]) -> dict[str, Any]:
    """Return what templates see: `Values` with defaults of all charts, `Chart`, `Release`, `Capabilities`.

    `members` are those of the chart. Total: a file that cannot be read gives no defaults.
    """
    about = {folder: _mapping(members[f"{folder}Chart.yaml"]) for folder in chart_folders(members)}
    seen: dict[str, Any] = {}
    for folder in sorted(about, key=lambda path: path.count("/"), reverse=True):
        values = [_mapping(members.get(f"{folder}values.yaml", b""))]
        for parent, name in _parents(folder):
            metadata = about.get(f"{parent}charts/{name}/", {})
            title, version = str(metadata.get("name") or name), str(metadata.get("version") or "")
            listed = [n for n in mappings_at(about.get(parent), "dependencies") if n.get("name") == title]
            # Of two versions of a chart each has its own alias.
            fitting = [n for n in listed if ChartDependency(title, str(n.get("version")), "").allows(version)]
            aliases = [str(needed.get("alias") or title) for needed in fitting or listed] or [title]
            values = [{alias: value} for alias in aliases for value in values]
        for value in values:
            seen = merge_values(seen, value)
    return {
        "Values": merge_values(seen, call.values),
        "Chart": {
            folder: {name: chart[name] for name in ("version", "appVersion") if name in chart}
            for folder, chart in about.items()
        },
        "Release": {"Name": call.release, "Namespace": call.namespace},
        "Capabilities": {"KubeVersion": call.kube_version, "APIVersions": call.api_versions},
    }


def find_value(call: ChartCall, config: Mapping[str, Any], path: Path, files: Files) -> str | Path:
    """Return where a value of a chart is written: file and line, or its path in the configuration.

    The nearest mapping around it where it is written nowhere. `files` are those of the package.
    """
    spec = _of_config_map(mapping_at(config, "data")) if config.get("kind") == "ConfigMap" else config
    values = mapping_at(_below(spec, call.path), "values")
    values_files = [posixpath.normpath(str(path)) for path in values.get("valuesFiles") or ()]
    defaults = [path for path in files if path.endswith(f"/{call.chart.name}/values.yaml")]
    for length in range(len(path), 0, -1):
        if _below(values.get("valuesInline"), path[:length]) is not None:
            return (*call.path, "values", "valuesInline", *path[:length])
        for name in (*reversed(values_files), *defaults):
            try:
                tree = Tree.parse(files[name].data.decode()) if name in files else None
                if tree is not None and tree.find(path[:length]) is not None:
                    return f"{name}:{tree.mark(path[:length])[0]}"
            except (YamlError, UnicodeDecodeError):
                continue
    return (*call.path, "values")


def _below(value: Any, path: Path) -> Any:
    for step in path:
        try:
            value = value[step]
        except (LookupError, TypeError):
            return None
    return value


def chart_folders(members: Iterable[str]) -> list[str]:
    """Return the folders of a chart and the charts in it: "", `charts/db/`."""
    folders = [path.removesuffix("Chart.yaml") for path in members if path.endswith("Chart.yaml")]
    return [folder for folder in folders if all(name == "charts" for name in folder.split("/")[:-1:2])]


def _parents(folder: str) -> Iterator[tuple[str, str]]:
    """Yield a chart's folder and name in it, from the innermost: `charts/db/` is `db` of ""."""
    while folder:
        parent, _, name = folder.removesuffix("/").rpartition("charts/")
        yield parent, name
        folder = parent


def _mapping(data: bytes, limits: YamlLimits = PACKAGE_LIMITS) -> dict[str, Any]:
    try:
        value = next((document.value for document in load_documents(data, limits)), None)
    except YamlError:
        value = None
    return value if isinstance(value, dict) else {}


@lru_cache(maxsize=8)
def chart_members(chart: Chart) -> Mapping[str, bytes]:
    """Return the files of a chart by their paths in it, those of archives in `charts/` as well.

    Raises:
        ChartError: The chart cannot be read.
    """
    # It was within the limits when the chart was found, where a directory had no headers.
    return _flattened(chart.archive, chart.name, changed(chart.limits, package_bytes=1 << 62))


def _flattened(chart: bytes | Mapping[str, bytes], origin: str, limits: Limits) -> dict[str, bytes]:
    """Return the files of a chart; an archive in its `charts/` is a directory of the name of that chart."""
    reader, result = ArchiveReader(limits), dict[str, bytes]()
    pending = [("", "", origin, chart)]
    for folder, file_name, origin_of_it, content in pending:
        try:
            files = (
                dict(reader.read(io.BytesIO(content), origin_of_it, drops_base=True))
                if isinstance(content, bytes)
                else content
            )
        except RefusedError as error:
            raise ChartError(str(error), hint=error.hint) from error
        start = folder
        if file_name:
            metadata = _mapping(files.get("Chart.yaml", b""), metadata_limits(limits))
            name = str(metadata.get("name") or file_name)
            start = f"{folder}{name}/"
            if "/" in name or f"{start}Chart.yaml" in result:
                start = f"{folder}{file_name}/"  # of two versions of a chart the second one
        if start.count("/") > limits.path_depth:
            raise ChartError(f"{origin_of_it} is below more charts than limits.pathDepth allows")
        for path, data in files.items():
            above, _, name = path.rpartition("/")
            if name.endswith(".tgz") and path.count("/") % 2 and {*path.split("/")[::2]} == {"charts"}:
                pending.append((f"{start}{above}/", name[:-4], f"{path} of {origin_of_it}", data))
            else:
                result[f"{start}{path}"] = data
    return result


def metadata_limits(limits: Limits) -> YamlLimits:
    """Return the limits of a Chart.yaml: those of a manifest, with anchors."""
    return replace(PACKAGE_LIMITS, max_bytes=limits.manifest_bytes, max_nodes=limits.yaml_nodes)


def chart_paths(config: Mapping[str, Any], files: Files) -> frozenset[str]:
    """Return the paths of the charts and values files that a configuration reads. Total."""
    spec = _of_config_map(mapping_at(config, "data")) if config.get("kind") == "ConfigMap" else config
    home = str(value_at(spec, "helmGlobals", "chartHome") or "").strip("/") or CHART_HOME
    directories: list[str] = []
    archives: list[str] = []
    exact: set[str] = set()
    for chart in mappings_at(spec, "helmCharts"):
        root = f"{home}/{value_at(chart, 'chartArgs', 'name')}"
        directories.append(f"{root}/")
        archives.append(f"{root}-")
        paths = value_at(chart, "templateOptions", "values", "valuesFiles")
        exact |= {
            f"{root}.tgz",
            *(map(posixpath.normpath, map(str, paths)) if isinstance(paths, list) else ()),
        }
    return frozenset(
        path
        for path in files
        if path in exact
        or path.startswith(tuple(directories))
        or (path.startswith(tuple(archives)) and path.endswith(".tgz"))
    )


@lru_cache(maxsize=64)
def _directory(
    name: str, root: str, inside: tuple[tuple[str, File], ...], limits: Limits
) -> tuple[Chart, str]:
    """Return a chart of a directory as an archive with always the same bytes, and its version."""
    files = files_of_chart({path.removeprefix(f"{root}/"): file for path, file in inside}, root)
    linked = next((path for path, file in files.items() if file.mode == Mode.SYMLINK), None)
    if linked is not None:
        raise ChartError(f"{root}/{linked} is a symbolic link", (), "Put the file itself into the chart.")
    data = _packed({f"{name}/{path}": file.data for path, file in files.items()})
    texts = _flattened({path: file.data for path, file in files.items()}, root, limits)
    return _chart(name, data, texts, f"{root}/Chart.yaml", limits)


def files_of_chart(files: Files, origin: str) -> Files:
    """Return the files of a chart's directory that `helm package` packs.

    Raises:
        ChartError: Helm refuses its `.helmignore`, or that leaves out the chart itself.
    """
    ignore = files.get(IGNORE_FILE)
    try:
        packed = kept_files(files, ignore.data if ignore else b"")
    except IgnoreError as error:
        raise ChartError(f"{origin}/{IGNORE_FILE}{error}", hint="Helm refuses it too: correct it.") from error
    if CHART_FILE in files and CHART_FILE not in packed:
        hint = "In Helm, a pattern with `!` leaves out all that it does not match."
        raise ChartError(f"{origin}/{IGNORE_FILE} leaves out {CHART_FILE}", hint=hint)
    return {path: files[path] for path in packed}


def _packed(files: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, data in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return gzip.compress(packed.getvalue(), 1, mtime=0)


def without_schemas(chart: Chart) -> bytes:
    """Return the archive of a chart without its schemas and those of its dependencies.

    Raises:
        ChartError: It cannot be read.
    """
    members = chart_members(chart).items()
    return _packed({f"{chart.name}/{path}": data for path, data in members if not path.endswith(_SCHEMA)})


@lru_cache(maxsize=64)
def _archived_name(path: str, file: File, limits: Limits) -> str:
    """Return the name of the chart in an archive, "" if it cannot be read."""
    try:
        texts = _flattened(file.data, path, limits)
    except ChartError:
        return ""
    return str(_mapping(texts.get(CHART_FILE, b""), metadata_limits(limits)).get("name") or "")


@lru_cache(maxsize=64)
def _archive(name: str, path: str, file: File, limits: Limits) -> tuple[Chart, str]:
    texts = _flattened(file.data, path, limits)
    return _chart(name, file.data, texts, f"{path}/Chart.yaml", limits)


def _chart(
    name: str, archive: bytes, texts: Mapping[str, bytes], where: str, limits: Limits
) -> tuple[Chart, str]:
    """Return a chart and its version; `texts` are its files, and `where` is the path of its Chart.yaml."""
    try:
        documents = load_documents(texts.get("Chart.yaml", b""), metadata_limits(limits))
    except YamlError as error:
        raise ChartError(f"{Location(where, error.line)}: {error.message}") from error
    metadata = documents[0].value if documents else None
    if missing := ", ".join(needed.title for needed in missing_dependencies(texts)):
        raise ChartError(
            f"The chart {name} depends on {missing}, which {posixpath.dirname(where)}/charts/ does not have",
            hint="`package from-chart` brings what a chart depends on. If it did, a .gitignore may have left"
            " it out of the commit: `git add -f` adds it.",
        )
    sources = [data for path, data in texts.items() if "templates/" in path and path.endswith(_TEMPLATE)]
    asks_versions = any(b"APIVersions" in source for source in sources)
    names = {match.decode(errors="replace") for source in sources for match in _ASKED.findall(source)}
    schemas = (data for path, data in texts.items() if path.endswith(_SCHEMA))
    elsewhere = (match.decode(errors="replace") for data in schemas for match in _REFERENCE.findall(data))
    chart = Chart(
        name,
        archive,
        sha256(archive).hexdigest(),
        limits,
        any(b"Capabilities" in source for source in sources),
        tuple(sorted(names)) if asks_versions else (),
        str(value_at(metadata, "kubeVersion") or ""),
        value_at(metadata, "type") == "library",
        next(elsewhere, ""),
    )
    return chart, str(value_at(metadata, "version") or "")


class ChartDependency(NamedTuple):
    """A chart that a chart depends on: its name, a version or range, and the repository that has it."""

    name: str
    version: str
    repository: str
    is_of_several: bool = False
    """Whether the chart is listed in other versions, too."""

    @property
    def title(self) -> str:
        """The name, with the version where that tells dependencies apart."""
        return f"{self.name} {self.version}".rstrip() if self.is_of_several else self.name

    def allows(self, version: str) -> bool:
        """Tell whether a version is in the range; every version is in one that cannot be read."""
        try:
            constraint = parse_constraint(self.version, Grammar.MASTERMINDS)
            return constraint.allows(parse_strict(version.removeprefix("v")))
        except VersionError:
            return True


def flat_members(members: Mapping[str, bytes], origin: str, limits: Limits) -> dict[str, bytes]:
    """Return the files of a chart, an archive in its `charts/` as a directory.

    Raises:
        ChartError: An archive cannot be read.
    """
    return _flattened(members, origin, limits)


def missing_dependencies(members: Mapping[str, bytes]) -> list[ChartDependency]:
    """Return what a chart depends on and does not have in its `charts/`, disabled or not, as Helm asks.

    `members` has the files of archives, too. Helm passes over a directory like `charts/_db/`. Of a chart that
    is listed in two versions both are needed, where Helm would leave one out.
    """
    versions: dict[str, list[str]] = {}
    for folder in chart_folders(members):
        if folder.removeprefix("charts/").count("/") == 1 and folder[len("charts/")] not in "._":
            metadata = _mapping(members[f"{folder}{CHART_FILE}"])
            name = str(metadata.get("name") or folder.split("/")[1])
            versions.setdefault(name, []).append(str(metadata.get("version") or ""))
    return [
        needed
        for needed in dependencies_of(members)
        if needed.name not in versions
        or (needed.is_of_several and not any(map(needed.allows, versions[needed.name])))
    ]


def dependencies_of(members: Mapping[str, bytes]) -> tuple[ChartDependency, ...]:
    """Return what a chart depends on, by its metadata and its file of apiVersion v1. Total.

    The same chart by two aliases is there once, in two versions twice.
    """
    declared = [_mapping(members.get(name, b"")) for name in (CHART_FILE, _OLD_DEPENDENCIES)]
    listed = {
        (str(needed["name"]), str(needed.get("version") or "")): str(needed.get("repository") or "")
        for metadata in declared
        for needed in mappings_at(metadata, "dependencies")
        if needed.get("name")
    }
    versions = Counter(name for name, _ in listed)
    return tuple(
        ChartDependency(name, version, repository, versions[name] > 1)
        for (name, version), repository in listed.items()
    )


def random_values(sources: Iterable[bytes]) -> Iterator[str]:
    """Yield the values that actions of templates read together with something random or current."""
    for source in sources:
        *parts, _ = source.decode(errors="replace").split("}}")
        for part in parts:
            _, braces, action = part.rpartition("}")[2].partition("{{")
            if braces and _RANDOM.search(action):
                yield from VALUES.findall(action)


def is_test(text: str) -> bool:
    """Tell whether all that a template gives are tests of its chart, which `skipTests` leaves out."""
    documents = [part for part in SEPARATOR.split(text) if part.strip()]
    return bool(documents) and all(map(_TEST.search, documents))
