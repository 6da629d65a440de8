"""A package of a chart: the chart vendored and pinned, with the function that renders it."""

import io
import os
import posixpath
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import urlsplit

from reconciler.api.kptfile import KPTFILE, new_kptfile
from reconciler.base.errors import ConfigurationError, Location, RefusedError, UsageError
from reconciler.base.lazy import regex
from reconciler.base.text import plural
from reconciler.dependencies.versions import VersionError, parse_strict, precedence
from reconciler.functions.archives import ArchiveReader, NoArchiveError
from reconciler.functions.catalog import CLAIMS, REGISTRIES
from reconciler.functions.charts import (
    CHART_FILE,
    CHART_HOME,
    RENDER_HELM_CHART,
    ChartDependency,
    ChartError,
    files_of_chart,
    find_chart,
    flat_members,
    metadata_limits,
    missing_dependencies,
)
from reconciler.git.cache import default_cache, open_cache
from reconciler.git.repository import Mirror, Mirrors
from reconciler.git.trees import PackageRefusedError
from reconciler.git.urls import find_place, is_local_host, without_user
from reconciler.krm.merge.text import merge_text
from reconciler.krm.values import mapping_at, mappings_at, value_at
from reconciler.krm.yaml import (
    PACKAGE_LIMITS,
    DeleteKey,
    Edit,
    SetValue,
    YamlError,
    apply_edits,
    emit,
    load_documents,
)
from reconciler.names.objects import File, Files, check_names, file_name_error
from reconciler.policy import Limits, Policy
from reconciler.read.files import read_directory
from reconciler.read.forges import find_credentials
from reconciler.read.governance import open_allowed
from reconciler.sources.charts import (
    OCI,
    FoundChart,
    choose_version,
    fetch_chart,
    find_chart_in_git,
    find_chart_version,
)
from reconciler.sources.credentials import registry_credentials
from reconciler.sources.registry import RegistryClient
from reconciler.workdir.directory import write_directory

CONFIGURATION = "chart.yaml"
DIGEST = "reconciler.dev/chart-digest"
SOURCE = "reconciler.dev/chart-source"
VERSIONS = "reconciler.dev/chart-versions"
_VALUES = "values.yaml"
_MOST_COMMENTS = 1 << 20
DEPENDENCIES = "reconciler.dev/chart-dependencies"
_LOCKS = ("Chart.lock", "requirements.lock")
_GIT_FILES = (".gitignore", ".gitattributes")
"""Files that would change what Git commits of a chart."""
_FILE = "file://"
_SCHEMES = (_FILE, OCI, "https://", "http://", "git+")
_DEEPEST = 8
_PIN = regex(r"sha256:[0-9a-f]{64}|[0-9a-f]{40}")


class VendoredChart(NamedTuple):
    """A chart as it was read: its metadata, its files below its own directory, and where it is from.

    `digest` is that of its archive as a run packs it. `versions` is the range that it was chosen from, "" for
    a chart of this machine. `brought` are the sources of what it depends on and did not have. `beyond` is the
    newest version of all where the range leaves that out, else "".
    """

    metadata: Mapping[str, Any]
    files: Files
    source: str
    digest: str = ""
    versions: str = ""
    brought: tuple[str, ...] = ()
    beyond: str = ""

    @property
    def name(self) -> str:
        """The name of the chart."""
        return str(self.metadata.get("name") or "")

    @property
    def version(self) -> str:
        """The version of the chart, which is not that of the application."""
        return str(self.metadata.get("version") or "")


class PinnedChart(NamedTuple):
    """The chart that a package follows: its address, the range to follow, and the version on main."""

    name: str
    address: str
    versions: str
    version: str


class ChartReader(NamedTuple):
    """Readers of charts in registries and Git, with the settings that count."""

    policy: Policy
    client: RegistryClient
    mirrors: Mirrors
    control: Mirror | None = None
    """The control repository, None where a person names the chart."""
    is_own: bool = False
    """Whether the chart is on this machine: then what it depends on may be, too."""


def open_reader(policy: Policy, mirrors: Mirrors, control: Mirror) -> ChartReader:
    """Return what reads charts with the registries, credentials, addresses and limits of the settings."""
    return ChartReader(policy, _open_client(policy), mirrors, control)


def _open_client(policy: Policy, *named: str) -> RegistryClient:
    find = registry_credentials(os.environ, find_credentials(policy, os.environ))
    return RegistryClient(policy.registries, find, addresses=policy.addresses, named=named)


def read_chart(chart: str, version: str, policy: Policy, cache_dir: Path | None = None) -> VendoredChart:
    """Return a chart with its files.

    `chart` is a directory, an archive, `oci://HOST/NAME`, `https://REPOSITORY/NAME` or `REPOSITORY.git/PATH`;
    `version` is a version or a range, of Git also a tag, a branch or a commit.

    Raises:
        UsageError: There is no chart, or not at such an address.
        ConfigurationError: The chart is invalid.
        RefusedError: A chart that it depends on is not in it, or it is not what was asked for.
        UnavailableError: Its place does not answer, or has no such version.
    """
    path = Path(chart)
    if "://" not in chart and path.exists():
        if version:
            raise UsageError(
                "--version is for charts elsewhere",
                hint="A directory or archive has one version: leave it out.",
            )
        if path.is_dir():
            return _of_directory(path, policy, cache_dir)
        if not path.is_file():
            raise UsageError(
                f"{chart} is neither a directory nor a file", hint="Name a chart, or its archive."
            )
        try:
            with path.open("rb") as file:
                return _unpacked(file, path.name, _reader(policy, cache_dir, is_own=True))
        except NoArchiveError as error:
            raise UsageError(str(error), hint="Name a .tgz that `helm package` made.") from error
    if "://" in chart and urlsplit(chart).username is not None:
        hint = "Write it without, and name the variable of the credential in spec.credentials."
        raise UsageError(f"{without_user(chart)} has a credential", hint=hint)
    if _in_git(chart) is not None:
        is_own = "://" not in chart or chart.startswith(_FILE)
        return _from_git(chart, version, _reader(policy, cache_dir, is_own=is_own))
    if not chart.startswith((OCI, "https://", "http://")):
        hint = (
            "Name oci://HOST/NAME, https://REPOSITORY/NAME, REPOSITORY.git/PATH, a directory or an archive."
        )
        if "://" not in chart:
            raise UsageError(f"{chart} does not exist", hint=hint)
        raise UsageError(f"{chart} is no address that charts are read from", hint=hint)
    reader = _reader(policy, cache_dir, chart)
    return _fetched(
        find_chart_version(chart.rstrip("/"), version, reader.client, policy.limits), version, reader
    )


def _reader(policy: Policy, cache_dir: Path | None, *named: str, is_own: bool = False) -> ChartReader:
    mirrors = Mirrors(open_cache(cache_dir or default_cache()), find_credentials(policy, os.environ))
    mirrors.limit_reads(policy.limits.read_seconds, policy.limits.repositories_at_once)
    client = _open_client(policy, *(address.replace(OCI, "https://") for address in named))
    return ChartReader(policy, client, mirrors, is_own=is_own)


def _of_directory(path: Path, policy: Policy, cache_dir: Path | None, depth: int = 0) -> VendoredChart:
    files = _own_files(read_directory(path, policy.limits), path.name)
    remote = (
        dependency.repository
        for dependency in _missing(files, path.name, policy.limits)
        if "://" in dependency.repository
    )
    named = [address for address in remote if not address.startswith(_FILE)]
    reader = _reader(policy, cache_dir, *named, is_own=True)

    def beside(place: str) -> VendoredChart:
        return _of_directory(path / place, policy, cache_dir, depth + 1)

    return _vendored(files, path.name, reader, beside, depth)


def _own_files(files: Files, source: str) -> Files:
    try:
        return files_of_chart(files, source)
    except ChartError as error:
        raise ConfigurationError(str(error), hint=error.hint) from error


def _missing(files: Files, source: str, limits: Limits) -> list[ChartDependency]:
    try:
        members = flat_members({path: file.data for path, file in files.items()}, source, limits)
    except ChartError as error:
        raise ConfigurationError(f"{source}: {error}", hint=error.hint) from error
    return missing_dependencies(members)


class NewerChart(NamedTuple):
    """The newest chart in the range that a package follows, None if it has that one, or a newer one.

    `beyond` is the newest version of all where the range leaves that out, else "".
    """

    chart: VendoredChart | None
    beyond: str


def read_newer_chart(pinned: PinnedChart, reader: ChartReader) -> NewerChart:
    """Return the newest chart that a package may get by its range.

    Raises:
        ReconcilerError: It cannot be read.
    """
    if _in_git(pinned.address) is not None:
        chart = _from_git(pinned.address, pinned.versions.replace("*", ""), reader)
        is_newer = _height(chart.version) >= _height(pinned.version)
        return NewerChart(chart if is_newer else None, chart.beyond)
    listing = find_chart_version(pinned.address, pinned.versions, reader.client, reader.policy.limits)
    is_newer = _height(listing.version) > _height(pinned.version)
    return NewerChart(_fetched(listing, pinned.versions, reader) if is_newer else None, listing.beyond)


def _height(version: str) -> tuple[Any, ...]:
    try:
        return (1, precedence(parse_strict(version.removeprefix("v"))))
    except VersionError:
        return (0, version)


def _fetched(listing: FoundChart, version: str, reader: ChartReader, depth: int = 0) -> VendoredChart:
    fetched = fetch_chart(listing, reader.client)
    read = _unpacked(io.BytesIO(fetched.archive), fetched.address, reader, depth)
    expected = (listing.address.rpartition("/")[2], listing.version.lstrip("v"))
    if (read.name, read.version.lstrip("v")) != expected:
        hint = "Nothing of it was used. Ask who runs the repository."
        message = f"{fetched.address} is {read.name} {read.version}, not {' '.join(expected)}"
        raise RefusedError(message, hint=hint)
    return read._replace(versions=version or "*")


def _in_git(address: str) -> tuple[str, str] | None:
    """Return the repository and the path of `REPOSITORY.git/PATH`, None of any other address."""
    remote, _, path = f"{address.rstrip('/')}/".rpartition(".git/")
    return (f"{remote}.git", path.strip("/")) if remote else None


def _from_git(chart: str, version: str, reader: ChartReader, depth: int = 0) -> VendoredChart:
    remote, path = _in_git(chart) or (chart, "")
    mirror = open_allowed(remote, reader.policy, reader.mirrors, reader.control)
    mirror.fetch()
    address = f"{remote}/{path}" if path else remote
    try:
        in_repository = find_chart_in_git(mirror, address, path, version, reader.policy.limits)
    except PackageRefusedError as error:
        hint = "`helm package` follows links: pack the chart in a clone, and name the archive."
        raise RefusedError(f"{address}: {error}", hint=hint if "link" in error.reason else "") from error
    files, commit = _own_files(in_repository.files, address), in_repository.address.rpartition("@")[2]

    def beside(place: str) -> VendoredChart:
        below = posixpath.normpath(posixpath.join(path, place))
        if below.startswith(("../", "/")) or below == "..":
            raise RefusedError(f"{address} depends on {_FILE}{place}, which is not in its repository")
        return _from_git(f"{remote}/{below}" if below != "." else remote, commit, reader, depth + 1)

    chart_in_git = _vendored(files, in_repository.address, reader, beside, depth)
    return chart_in_git._replace(versions=version or "*", beyond=in_repository.beyond)


def _unpacked(archive: BinaryIO, source: str, reader: ChartReader, depth: int = 0) -> VendoredChart:
    members = ArchiveReader(reader.policy.limits).read(archive, source, drops_base=True)
    return _vendored({path: File.of(data) for path, data in members}, source, reader, depth=depth)


def _nothing_beside(place: str) -> VendoredChart:
    raise RefusedError(f"An archive depends on {_FILE}{place}", hint="Name the directory of its chart.")


def _vendored(
    files: Files,
    source: str,
    reader: ChartReader,
    beside: Callable[[str], VendoredChart] = _nothing_beside,
    depth: int = 0,
) -> VendoredChart:
    """Return a chart with what it depends on; `beside` reads a chart by its place from this one.

    A chart at a `depth` is a dependency.
    """
    limits = reader.policy.limits
    if CHART_FILE not in files:
        raise UsageError(f"{source} has no Chart.yaml", hint="Name the directory or the archive of a chart.")
    files = {path: file for path, file in files.items() if path.rpartition("/")[2] not in _GIT_FILES}
    metadata = _mapping(files, CHART_FILE, source, limits)
    chart = VendoredChart(metadata, files, source)
    if not chart.name or not chart.version:
        raise ConfigurationError(f"{source}/Chart.yaml has no name or no version")
    if why := file_name_error(chart.name):
        raise ConfigurationError(f"{source}/Chart.yaml names the chart {chart.name}, and {why}")
    if metadata.get("type") == "library" and not depth:
        hint = "Name a chart that depends on it."
        raise RefusedError(f"{chart.name} is a library chart, which renders nothing itself", hint=hint)
    missing = _missing(files, source, limits)
    if unknown := ", ".join(
        dependency.title for dependency in missing if not dependency.repository.startswith(_SCHEMES)
    ):
        raise RefusedError(
            f"{chart.name} depends on charts that its charts/ does not have: {unknown}",
            hint="Write the address of their repository (https://, oci:// or file://) into Chart.yaml, or put"
            " them there with `helm dependency build`: no run fetches a chart.",
        )
    for dependency in missing:
        if dependency not in _missing(files, source, limits):
            continue  # another range of the same chart brought it
        new = _bring(dependency, chart, reader, beside, depth)
        _check_brought(new, dependency, chart)
        brought = tuple(dict.fromkeys((*chart.brought, new.source, *new.brought)))
        home = f"charts/{dependency.name}"
        home = f"{home}-{new.version}" if f"{home}/{CHART_FILE}" in files else home
        files = {**files, **_below(f"{home}/", new.files)}
        chart = chart._replace(files=files, brought=brought)
    if depth:
        return chart
    home = f"{CHART_HOME}/{chart.name}/"
    try:
        packed = find_chart(chart.name, "", CHART_HOME, _below(home, files), limits=limits)
    except ChartError as error:
        raise ConfigurationError(f"{source}: {error}", hint=error.hint) from error
    return chart._replace(digest=f"sha256:{packed.digest}")


def _bring(
    needed: ChartDependency,
    chart: VendoredChart,
    reader: ChartReader,
    beside: Callable[[str], VendoredChart],
    depth: int,
) -> VendoredChart:
    """Return a chart that another one depends on, in the version that its lock names, else the newest."""
    address = f"{needed.repository.removeprefix('git+').rstrip('/')}/{needed.name}"
    what, version = f"{chart.name} depends on {needed.name}", _locked(needed, chart, reader)
    if depth >= _DEEPEST:
        raise RefusedError(f"{what}, below {plural(_DEEPEST, 'other chart')}: is it one of these itself?")
    if needed.repository.startswith(_FILE):
        return beside(needed.repository.removeprefix(_FILE))
    if (in_git := _in_git(address)) is not None:
        if not (reader.is_own or reader.control or reader.policy.addresses or _is_elsewhere(in_git[0])):
            hint = "Clone the chart, and name its directory: that of this machine may depend on others of it."
            raise RefusedError(f"{what} of {without_user(in_git[0])}, an address of this machine", hint=hint)
        return _from_git(address, version, reader, depth + 1)
    listing = find_chart_version(address, version, reader.client, reader.policy.limits)
    return _fetched(listing, version, reader, depth + 1)


def _check_brought(new: VendoredChart, needed: ChartDependency, chart: VendoredChart) -> None:
    if new.name != needed.name or not needed.allows(new.version):
        what = f"{chart.name} depends on {needed.name} {needed.version}".rstrip()
        hint = f"Correct its dependencies in {CHART_FILE}: `helm dependency build` refuses it, too."
        raise RefusedError(f"{what}, and {new.source} is {new.name} {new.version}", hint=hint)


def _is_elsewhere(remote: str) -> bool:
    place = find_place(remote)
    return place.scheme in ("https", "ssh") and not is_local_host(place.host)


def _locked(needed: ChartDependency, chart: VendoredChart, reader: ChartReader) -> str:
    """Return the version that the lock of a chart names for a dependency, else its range."""
    name = next((entry for entry in _LOCKS if entry in chart.files), "")
    lock = _mapping(chart.files, name, chart.source, reader.policy.limits)
    entries = (entry for entry in mappings_at(lock, "dependencies") if entry.get("name") == needed.name)
    versions = [version for entry in entries if (version := str(entry.get("version") or ""))]
    fitting = [version for version in versions if choose_version([version], needed.version)]
    if versions and not fitting:
        what = f"{name} of {chart.name} names {needed.name} {versions[0]}"
        hint = "Run `helm dependency update` on it, or ask who made it."
        raise RefusedError(f"{what}, and {CHART_FILE} wants {needed.version}", hint=hint)
    return fitting[0] if fitting else needed.version


def _below(directory: str, files: Files) -> dict[str, File]:
    return {f"{directory}{path}": file for path, file in files.items()}


def _mapping(files: Files, name: str, source: str, limits: Limits) -> Mapping[str, Any]:
    """Return what a YAML file of a chart has, nothing where it is absent."""
    try:
        documents = load_documents(files[name].data if name in files else b"", metadata_limits(limits))
    except YamlError as error:
        place = Location(f"{source}/{name}", error.line)
        raise ConfigurationError(error.message, location=place, hint=error.hint) from error
    return documents[0].value if documents and isinstance(documents[0].value, dict) else {}


def write_package(chart: VendoredChart, directory: Path) -> tuple[str, ...]:
    """Write a package with a chart, or put another version of it into one; return the files that changed.

    Raises:
        RefusedError: The directory has files and is no package of this chart.
        ConfigurationError: Its configuration cannot be edited.
    """
    before = read_directory(directory) if directory.is_dir() else {}
    if before and not (KPTFILE in before and CONFIGURATION in before):
        hint = "Name a directory that does not exist yet, or a package that this command made."
        raise RefusedError(f"{directory} is not empty, and no package of a chart", hint=hint)
    files = package_with(chart, before, directory.resolve().name)
    write_directory(files, directory, replaces=directory if before else None)
    return tuple(sorted(path for path in {**before, **files} if before.get(path) != files.get(path)))


def pinned_chart(configuration: bytes) -> PinnedChart | None:
    """Return the chart that a package follows by its configuration; None if it follows none."""
    value = _value(configuration)
    annotations = mapping_at(mapping_at(value, "metadata"), "annotations")
    address, _, pin = str(annotations.get(SOURCE) or "").rpartition("@")
    versions, charts = str(annotations.get(VERSIONS) or ""), mappings_at(value, "helmCharts")
    if not _PIN.fullmatch(pin) or not versions or not charts or "://" not in address:
        return None
    untagged, _, tag = address.rpartition(":")
    arguments = mapping_at(charts[0], "chartArgs")
    return PinnedChart(
        str(arguments.get("name") or ""),
        address if "/" in tag else untagged,
        versions,
        str(arguments.get("version") or ""),
    )


def has_source(configuration: bytes) -> bool:
    """Tell whether a configuration names the address that its chart is from."""
    return "://" in str(value_at(_value(configuration), "metadata", "annotations", SOURCE))


def _value(configuration: bytes) -> Any:
    try:
        documents = load_documents(configuration, PACKAGE_LIMITS)
    except YamlError:
        return None  # whoever renders the package says so
    return documents[0].value if documents else None


def package_with(chart: VendoredChart, before: Files, name: str) -> Files:
    """Return a package with another version of its chart; a new one if there is none.

    What people own stays: the Kptfile, the README, the values, and all of the configuration but the chart's
    version and digest. Comments of the values follow the chart's defaults where people left them.

    Raises:
        RefusedError: It is of another chart, or the chart has names that no package may have.
        ConfigurationError: The chart is invalid, or the configuration cannot be edited.
    """
    home = f"{CHART_HOME}/{chart.name}/"
    others = {path: file for path, file in before.items() if not path.startswith(home)}
    if before:
        others[CONFIGURATION] = _updated(before[CONFIGURATION], chart)
    if _VALUES in before:
        old = {path.removeprefix(home): file for path, file in before.items() if path.startswith(home)}
        texts = _values_text(chart.name, old), _values_text(chart.name, chart.files)
        merged = merge_text(*texts, before[_VALUES].data.decode(errors="surrogateescape"))
        if merged is not None:
            others[_VALUES] = File.of(merged.text.encode(errors="surrogateescape"), before[_VALUES].mode)
    files = {**_new_files(chart, name), **others, **_below(home, chart.files)}
    hint = "Nothing of it was used. Ask who made the chart for one without such a file."
    check_names(files, before, maker=f"The chart {chart.source}", hint=hint)
    return files


def _values_text(name: str, chart: Files) -> str:
    """Return the values file of a new package: the chart's defaults as comments, unless they are long."""
    defaults = chart[_VALUES].data if _VALUES in chart else b""
    if len(defaults) > _MOST_COMMENTS:
        return f"# Values for every cluster; the defaults are in {CHART_HOME}/{name}/{_VALUES}.\n"
    lines = defaults.decode(errors="replace").splitlines()
    commented = "".join(f"# {line}".rstrip() + "\n" for line in lines)
    return f"# Values for every cluster; the comments are the defaults of {name}.\n{commented}"


def _updated(file: File, chart: VendoredChart) -> File:
    annotations = ("metadata", "annotations")
    edits: list[Edit] = [
        SetValue(("helmCharts", 0, "chartArgs", "version"), chart.version),
        SetValue((*annotations, DIGEST), chart.digest),
        SetValue((*annotations, SOURCE), chart.source),
    ]
    if chart.versions:
        edits.append(SetValue((*annotations, VERSIONS), chart.versions))
    if chart.brought:
        edits.append(SetValue((*annotations, DEPENDENCIES), " ".join(chart.brought)))
    try:
        value = load_documents(file.data, PACKAGE_LIMITS)[0].value
        if not chart.brought and DEPENDENCIES in mapping_at(value, *annotations):
            edits.append(DeleteKey((*annotations, DEPENDENCIES)))
        if value_at(value["helmCharts"][0], "chartArgs", "name") != chart.name:
            raise RefusedError(f"{CONFIGURATION} is of another chart than {chart.name}")
        return File.of(apply_edits(file.data.decode(), edits).text.encode(), file.mode)
    except (YamlError, LookupError, TypeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{CONFIGURATION} cannot be edited: {error}") from error


def _new_files(chart: VendoredChart, name: str) -> dict[str, File]:
    description = str(chart.metadata.get("description") or f"The chart {chart.name}")
    newest = ".".join(map(str, CLAIMS[RENDER_HELM_CHART][-1].newest))
    step = {"image": f"{REGISTRIES[0]}/{RENDER_HELM_CHART}:v{newest}", "configPath": CONFIGURATION}
    kptfile = new_kptfile(name, {"description": description})
    pipeline = emit({"pipeline": {"mutators": [step]}})
    options = {"releaseName": chart.name, "namespace": "default", "includeCRDs": True, "skipTests": True}
    values = {"valuesFiles": [_VALUES], "valuesInline": {}}
    configuration = {
        "apiVersion": "fn.kpt.dev/v1alpha1",
        "kind": "RenderHelmChart",
        "metadata": {
            "name": chart.name,
            "annotations": {
                "config.kubernetes.io/local-config": "true",
                SOURCE: chart.source,
                **({VERSIONS: chart.versions} if chart.versions else {}),
                DIGEST: chart.digest,
                **({DEPENDENCIES: " ".join(chart.brought)} if chart.brought else {}),
            },
        },
        "helmCharts": [
            {
                "chartArgs": {"name": chart.name, "version": chart.version},
                "templateOptions": {**options, "values": values},
            }
        ],
    }
    texts = {
        KPTFILE: kptfile.decode() + pipeline + "\n",
        CONFIGURATION: emit(configuration) + "\n",
        _VALUES: _values_text(chart.name, chart.files),
        "README.md": _README.format(chart=chart.name, home=CHART_HOME),
        ".krmignore": f"/{CHART_HOME}/\n",
    }
    return {path: File.of(text.encode()) for path, text in texts.items()}


_README = """\
# {chart}

The chart {chart}, vendored in `{home}/{chart}`. A fleet gets the manifests that it renders, not the chart.

- `values.yaml` has the values for every cluster.
- `chart.yaml` says how the chart is rendered. Values that differ between clusters go to its `valuesInline`,
  each with a setter behind it: `replicas: 1 # kpt-set: ${{replicas}}`.
- `reconciler package from-chart CHART` on this directory brings another version of the chart.
"""
