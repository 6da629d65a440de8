"""The `index` commands: which packages there are, how the index is filled, what it lacks, and defaults."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import click

from reconciler.base.errors import ConfigurationError, Exit, ReconcilerError, UsageError, worst
from reconciler.base.reasons import Reason
from reconciler.base.suggestions import suggest
from reconciler.base.text import plural
from reconciler.cli.guesses import CommandGroup
from reconciler.cli.output import (
    Command,
    Printer,
    control_options,
    make_printer,
    output_options,
    working_copy_option,
    writing_control_options,
)
from reconciler.dependencies.catalog.index import (
    NO_DEFAULTS,
    IndexContents,
    MissingPackage,
    layer_path,
    list_packages,
    parse_id,
    read_index,
)
from reconciler.dependencies.dialects.reading import canonical_interface
from reconciler.dependencies.model.cluster import build_catalogue
from reconciler.dependencies.model.packages import Candidate, Ecosystem, PackageId
from reconciler.names.problems import Problem
from reconciler.policy import Limits
from reconciler.read.dependencies import INDEX_SUFFIXES, parse_version, read_index_directory
from reconciler.report.machine import listing
from reconciler.report.text import effect_line, problem_lines
from reconciler.run.index import SyncOptions, find_missing_packages, propose_versions, sync_index
from reconciler.run.options import RunOptions, open_mirrors
from reconciler.sources.index_import import (
    HEADER,
    find_tagged_versions,
    find_versions,
    header_bytes,
    version_folder,
)
from reconciler.sources.sync import SyncResult
from reconciler.workdir.control_files import add_version, remove_folders, write_layer

_SYNC = "`reconciler index sync`"


@click.command()
@writing_control_options
@click.option("--all", "every", is_flag=True, help="Take every version of packages that anything needs.")
@click.option("--check-tags", is_flag=True, help="Also ask whether tags of versions in the index moved.")
@click.option(
    "--pull-request", is_flag=True, help="Propose them, and newer charts: a pull request for each source."
)
@output_options()
def sync(
    settings: RunOptions, printer: Printer, *, every: bool, check_tags: bool, pull_request: bool
) -> Exit:
    r"""Bring the versions that something needs into the index.

    It is the only command that reads registries. It starts from what installs and the versions in the index
    need, and from PackageRepository manifests, committed or not, and follows the needs of what it finds. It
    takes the tags in the ranges that anything asks for, and pulls of each image only the layer or
    configuration that describes the package, verified by its digest. Versions that are there are not asked
    for again. Nothing is committed: review what changed, and commit it. With --pull-request the versions that
    the default branch lacks are proposed instead, in one pull request for each registry, package repository
    or Git repository; its text tells what each cluster would choose. Newer charts are proposed too: one pull
    request for each package that `package from-chart` made, in its own repository, within the range that was
    given there, with what it renders in the fleet. After its merge the revision gets its tag, and manifests
    that name the one before are proposed with it. Without --pull-request notes name these steps.

    Credentials are those of `docker login` and of spec.credentials; limits and mirrors are in
    spec.registries. Exits 3 if something is wrong, 5 if a registry does not answer; everything else is
    written all the same.

    \b
    Examples:
      reconciler index sync
      reconciler index sync --all
      reconciler index sync --pull-request         in a scheduled job
      reconciler index sync --check-tags           once a day: a tag list does not tell that a tag moved
    """
    chosen = SyncOptions(every, check_tags)
    if pull_request:
        proposed = propose_versions(settings, chosen)
        _show_result(printer, proposed.result, is_idle=proposed.is_idle)
        requests = plural(proposed.requests, "request")
        lines = [f"{change.package.path}: {change.message}" for change in proposed.changes if change.message]
        lines += (effect_line(effect, paint=printer.paint) for effect in proposed.outcome.effects)
        charts = f" and {plural(proposed.charts, 'chart')}" if proposed.charts else ""
        count = f"{plural(len(proposed.result.versions), 'version')}{charts}"
        printer.files([*lines, f"{count} to propose, with {requests} to registries"], written=())
        waits = {Exit.WAITING} if any(change.waits for change in proposed.changes) else set()
        return worst({_exit_of(proposed.result.problems), *proposed.outcome.exits, *waits})
    done = sync_index(settings, chosen)
    _show_result(printer, done.result, is_idle=done.result.is_idle)
    result = done.result
    names = {version.candidate.id for version in result.versions}
    lines = [f"added {version.candidate.id} {version.candidate.version}" for version in result.versions]
    count, packages = plural(len(result.versions), "version"), plural(len(names), "package")
    requests = plural(done.requests, "request")
    lines.append(f"{count} of {packages} added, with {requests} to registries")
    printer.files(lines, written=done.written)
    return _exit_of(result.problems)


def _show_result(printer: Printer, result: SyncResult, *, is_idle: bool) -> None:
    nothing = ["No manifest and no index entry needs a package of a registry"] if is_idle else []
    printer.lines(problem_lines(result.problems), err=True)
    printer.notes([*result.notes, *nothing])


def _exit_of(problems: Iterable[Problem]) -> Exit:
    reasons = {problem.reason for problem in problems}
    if Reason.DEFECT in reasons:
        return Exit.BUG
    if reasons - {Reason.REPOSITORY_UNAVAILABLE}:
        return Exit.INVALID_INPUT
    return Exit.UNAVAILABLE if reasons else Exit.DONE


@click.command()
@control_options
@output_options()
def missing(settings: RunOptions, printer: Printer) -> Exit:
    r"""Name all packages and versions that installs lack.

    Manifests and index are read as they are on disk. Exits 3 if something is missing.

    \b
    Example:
      reconciler index missing
    """
    lacking = find_missing_packages(settings)
    printer.lines(problem_lines(lacking.problems), err=True)
    lines = []
    for package in lacking.packages:
        lines.append(f"{package}{', other versions of it are known' if package.is_known else ''}")
        lines.append(f"  needed by {', '.join(package.needed_by)}")
    none = "No package is missing." if lacking.installs else "No manifest asks for a package."
    rows = (
        {"package": str(p.id), "range": p.range.text, "neededBy": list(p.needed_by), "known": p.is_known}
        for p in lacking.packages
    )
    printer.show(listing("MissingPackage", rows), [*lines, *_steps(lacking.packages)] or [none])
    return Exit.INVALID_INPUT if lacking.packages or lacking.problems else Exit.DONE


def _steps(packages: Iterable[MissingPackage]) -> Iterable[str]:
    """Yield the commands that bring packages, by where their ecosystem keeps them."""
    ecosystems = {package.id.ecosystem for package in packages}
    if ecosystems & {Ecosystem.XPKG, Ecosystem.BUNDLE}:
        yield f"{_SYNC} brings them from their registries, `reconciler index import PATH` from files."
    if Ecosystem.CARVEL in ecosystems:
        of_repositories = f"{_SYNC} what a PackageRepository among the manifests has"
        yield f"`reconciler index import PATH` brings packages of Carvel from files, {of_repositories}."
    if Ecosystem.KPT in ecosystems:
        yield "Packages of kpt are published by a tag in their repository, with a package.yaml."


def _layer(command: Command) -> Command:
    command = click.option("--environment", default="", help="Only for this environment.")(command)
    return click.option("--cluster", default="", metavar="NAME", help="Only for this cluster.")(command)


def _label(help_: str) -> Callable[[Command], Command]:
    return click.option("--label", "labels", multiple=True, metavar="LABEL", help=help_)


def _keyword(help_: str) -> Callable[[Command], Command]:
    return click.option("--keyword", "keywords", multiple=True, metavar="WORD", help=help_)


def _interface(help_: str) -> Callable[[Command], Command]:
    return click.option("--interface", default="", metavar="NAME", help=help_)


@click.group(cls=CommandGroup)
def index() -> None:
    r"""List and change the packages and defaults of the index, in the working copy.

    Nothing is committed: review what changed, and commit it. Packages of package repositories are
    known by their tags and need no folder here.

    \b
    Examples:
      reconciler index list --interface io.cnab.interface.mysql --environment production
      reconciler index add x.example.com/acme/aws v1.2.0 --manifest crossplane.yaml
      reconciler index add bundle:r.example.com/helm-mysql 1.0.0 --interface mysql
      reconciler index set-default io.cnab.interface.mysql bundle:r.example.com/azure-mysql
    """


@index.command(name="list")
@working_copy_option
@_layer
@click.option("--name", default="", help="Part of the name.")
@_label("A label that some version has; repeated ones must all match.")
@_keyword("A keyword that some version has; repeated ones must all match.")
@_interface("An interface that some version implements.")
@output_options()
def list_(
    root: Path, printer: Printer, *, labels: tuple[str, ...], keywords: tuple[str, ...], **words: str
) -> Exit:
    r"""List the packages that pass every filter.

    `*` marks the default of that layer.

    \b
    Example:
      reconciler index list --interface io.cnab.interface.mysql --environment production
    """
    index = _read(root)
    environment = words["environment"] or index.environment_of(words["cluster"])
    listed = list_packages(
        build_catalogue(index.candidates),
        index.defaults_of(words["cluster"], environment),
        name=words["name"],
        labels=_label_pairs(labels).items(),
        interface=words["interface"],
        keywords=keywords,
    )
    lines = []
    for entry in listed:
        mark = "*" if entry.is_default else " "
        implements = f"  implements {', '.join(entry.interfaces)}" if entry.interfaces else ""
        lines.append(f"{mark} {entry.package}  {', '.join(entry.versions)}{implements}")
    none = "No package in the index matches." if index.candidates else _EMPTY
    rows = (
        {
            "package": str(entry.package),
            "versions": list(entry.versions),
            "interfaces": list(entry.interfaces),
            "default": entry.is_default,
        }
        for entry in listed
    )
    printer.show(listing("IndexPackage", rows), lines or [none])
    return Exit.DONE


_EMPTY = "The index is empty. `reconciler index sync` fills it with what your manifests ask for."


@index.command()
@working_copy_option
@output_options()
@click.argument("package")
def show(root: Path, printer: Printer, package: str) -> Exit:
    r"""Show every version of a package: needs, APIs and file.

    \b
    Example:
      reconciler index show crossplane:x.example.com/acme/aws
    """
    candidates = _candidates(_read(root), package)
    lines = []
    for candidate in candidates:
        withdrawn = f" (withdrawn: {candidate.withdrawn})" if candidate.withdrawn else ""
        lines.append(f"{candidate.id} {candidate.version}{withdrawn}  {candidate.location}")
        lines += [f"  needs {need}{' (optional)' if need.optional else ''}" for need in candidate.requires]
        lines += [f"  provides {gvk}" for gvk in candidate.provides]
        lines += [
            f"  implements {interface.id} {interface.version or ''}".rstrip()
            for interface in candidate.interfaces
        ]
    printer.show(listing("IndexVersion", map(_version_value, candidates)), lines)
    return Exit.DONE


@index.command()
@working_copy_option
@_layer
@click.argument("source")
@click.argument("version")
@click.option(
    "--manifest",
    "manifests",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="A manifest of that version.",
)
@click.option("--digest", default="", help="Digest of the content.")
@click.option("--provides", multiple=True, metavar="GROUP/VERSION/KIND", help="An API that it brings.")
@_label("A label of that version; repeatable.")
@_keyword("A keyword of that version; repeatable.")
@_interface("The interface that it becomes the default of.")
@output_options()
def add(root: Path, environment: str, cluster: str, interface: str, printer: Printer, **options: Any) -> Exit:
    r"""Add a version: SOURCE is the package's name in its registry. MANIFESTs are copied beside it.

    Without a MANIFEST write SOURCE as ECOSYSTEM:NAME; with --interface it is a bundle that implements it.

    \b
    Examples:
      reconciler index add x.example.com/acme/aws v1.2.0 --manifest crossplane.yaml
      reconciler index add bundle:r.example.com/helm-mysql 1.0.0 --interface mysql
    """
    _one_layer(environment, cluster)
    id_ = parse_id(options["source"])
    options |= {"ecosystem": str(id_.ecosystem), "source": id_.name} if id_ else {"ecosystem": ""}
    options["interface"] = interface
    files = {path.name: path.read_bytes() for path in options["manifests"]}
    if HEADER in files:
        raise UsageError(
            f"{HEADER} is the name of the header that this command writes", hint="Rename the file."
        )
    id_, folder, written = _add(root, files, options)
    lines = [f"added {id_} {options['version']} as {folder}"]
    if interface:
        chosen = _choose(root, interface, id_, environment, cluster)
        lines, written = [*lines, chosen.line], [*written, chosen.path]
    printer.files(lines, written=written)
    return Exit.DONE


def _add(root: Path, files: dict[str, bytes], options: dict[str, Any]) -> tuple[PackageId, str, list[str]]:
    """Write a version with its header; return its package, its folder, and the files, none if it is there."""
    folder = version_folder(options["source"], options["version"])
    files = {**files, HEADER: _header(options)}
    reading = parse_version({f"{folder}/{name}": data for name, data in files.items()})
    if reading.problems:
        problem = reading.problems[0]
        raise ConfigurationError(problem.message, location=problem.location, hint=problem.hint)
    target = root / folder
    is_there = target.is_dir() and {p.name: p.read_bytes() for p in target.iterdir() if p.is_file()} == files
    if not is_there or options.get("manifests") is not None:
        add_version(root, folder, files)
        is_there = False
    return reading.candidates[0].id, folder, [] if is_there else [f"{folder}/{name}" for name in files]


@index.command(name="import")
@working_copy_option
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path, exists=True), metavar="[PATH]...")
@click.option("--source", default="", metavar="REGISTRY/NAME", help="The name in the registry.")
@click.option("--git", "repository", default="", metavar="REPOSITORY", help="Import all tags of it.")
@click.option("--path", default="", metavar="PATH", help="Its manifest, or directory of Carvel packages.")
@output_options()
def import_(
    root: Path, printer: Printer, *, paths: tuple[Path, ...], source: str, repository: str, path: str
) -> Exit:
    r"""Import the package versions of files or of tags.

    Read are Carvel Packages, a PackageRepository with the packages in it, crossplane.yaml, package.yaml of
    an unpacked package, upbound.yaml, porter.yaml and bundle.json. A crossplane.yaml has neither name nor
    version: --source is the name, with * for the one in the manifest, and a directory named by a version or
    the tag is the version. Of a repository of Carvel packages each tag has those below packages/.

    What is there already stays; another content for it is a problem.

    \b
    Examples:
      reconciler index import packages/
      reconciler index import --source 'x.example.com/acme/*' configurations/
      reconciler index import --git https://example.com/acme/aws.git --source x.example.com/acme/aws
    """
    if bool(paths) == bool(repository):
        raise UsageError(
            "Nothing to import is named", hint="Name files or directories, or a repository with --git."
        )
    if repository:
        mirror = open_mirrors(RunOptions(str(root))).open(repository)
        collected, looked = find_tagged_versions(mirror, path=path, source=source)
        what = plural(looked, "tag")
    else:
        files = sorted({file for path in paths for file in _files(path)})
        collected = find_versions(((str(file), file.read_bytes()) for file in files), source=source)
        looked = len(files)
        what = plural(looked, "file")
    problems, written, present = list(collected.problems), list[str](), 0
    for version in collected.versions:
        try:
            header = {"source": version.source, "version": version.version}
            _, _, is_new = _add(root, dict(version.files), header)
        except ReconcilerError as error:
            # Its place is in a file of the index, which is not written: the file that was read has it too.
            there = version.check() if isinstance(error, ConfigurationError) else ()
            problem = Problem(
                version.location, Reason.INVALID_MANIFEST, str(error), error.hint, cause=str(error)
            )
            problems += there or [problem]
            continue
        written += is_new
        present += not is_new
    printer.lines(problem_lines(sorted(problems)), err=True)
    names = {version.source for version in collected.versions}
    added = len({name.rpartition("/")[0] for name in written})
    packages = plural(len(names), "package")
    line = f"{what}: {plural(added, 'version')} added, {present} there already, of {packages}"
    printer.files([line], written=written)
    if not collected.versions and not problems:
        hint = "Name the manifest, or the directory of Carvel packages, with `--path`."
        if not repository:
            hint = "See `reconciler index import --help`."
        elif not looked:
            message = "The repository has no tag that is a version"
            raise UsageError(message, hint="Clone it and import a directory: `reconciler index import PATH`.")
        raise UsageError(f"{what} hold no version of a package", hint=hint)
    return Exit.INVALID_INPUT if problems else Exit.DONE


def _files(path: Path) -> Iterable[Path]:
    """Return a file, or every file below a directory that may hold a manifest."""
    if not path.is_dir():
        return [path]
    return (p for p in path.rglob("*") if p.suffix in INDEX_SUFFIXES and p.is_file())


@index.command()
@working_copy_option
@click.argument("package")
@click.argument("version", default="", metavar="[VERSION]")
@output_options()
def remove(root: Path, package: str, version: str, printer: Printer) -> Exit:
    r"""Remove a package, or one version of it, from the index.

    A package that goes is no default any more.

    \b
    Examples:
      reconciler index remove crossplane:x.example.com/acme/aws v1.2.0
      reconciler index remove crossplane:x.example.com/acme/aws
    """
    index = _read(root)
    versions = _candidates(index, package)
    gone = [candidate for candidate in versions if version in ("", candidate.version.text)]
    if not gone:
        there = sorted({candidate.version.text for candidate in versions})
        hint = suggest(version, there, otherwise=f"Name one that it has: {', '.join(there)}.")
        raise UsageError(f"{package} has no version {version}", hint=hint)
    folders = sorted({candidate.location.path.rpartition("/")[0] for candidate in gone})
    remove_folders(root, folders)
    lines, written = [f"removed {folder}" for folder in folders], []
    if len(gone) == len(versions):
        for path, layer in sorted(index.layers.items()):
            defaults = {interface: id_ for interface, id_ in layer.defaults.items() if id_ != gone[0].id}
            if defaults != layer.defaults:
                write_layer(root, path, layer._replace(defaults=defaults))
                lines.append(f"changed {path}")
                written.append(path)
    printer.files(lines, written=written, removed=folders)
    return Exit.DONE


@index.command(name="set-default")
@working_copy_option
@_layer
@click.argument("interface")
@click.argument("package", metavar="ECOSYSTEM:NAME")
@output_options()
def set_default(
    *, root: Path, environment: str, cluster: str, interface: str, package: str, printer: Printer
) -> Exit:
    r"""Choose the package that implements an interface.

    The choice is for the fleet, an environment or a cluster.

    \b
    Example:
      reconciler index set-default io.cnab.interface.mysql bundle:r.example.com/azure-mysql
    """
    id_ = parse_id(package)
    if id_ is None:
        raise UsageError(f"{package} is not ECOSYSTEM:NAME", hint="Write it like bundle:r.example.com/mysql.")
    chosen = _choose(root, interface, id_, environment, cluster)
    printer.files([chosen.line], written=[chosen.path])
    return Exit.DONE


class _Chosen(NamedTuple):
    """The file of a chosen default, and a line about it."""

    path: str
    line: str


def _choose(root: Path, interface: str, id_: PackageId, environment: str, cluster: str) -> _Chosen:
    _one_layer(environment, cluster)
    path = layer_path(environment=environment, cluster=cluster)
    contents, name = _read(root), canonical_interface(interface)
    layer = contents.layers.get(path, NO_DEFAULTS)
    write_layer(root, path, layer._replace(defaults={**layer.defaults, name: id_}))
    implementations = {c.id for c in contents.candidates if any(i.id == name for i in c.interfaces)}
    if id_ not in implementations:
        message = f"No version of {id_} in the index implements {name}, so nothing will use this default"
        make_printer().notes([message])
    return _Chosen(path, f"{name} is {id_} in {path}")


def _one_layer(environment: str, cluster: str) -> None:
    """Check that one layer is named, or none."""
    if environment and cluster:
        raise UsageError(
            "--environment and --cluster are two layers", hint="Name one, and run it again for the other."
        )


def _read(root: Path) -> IndexContents:
    """Return the index of a working copy; print problems of single files to standard error."""
    folders = read_index_directory(root, Limits())
    contents = read_index(folders.documents)
    make_printer().lines(problem_lines(sorted({*folders.problems, *contents.problems})), err=True)
    return contents


def _candidates(contents: IndexContents, package: str) -> list[Candidate]:
    """Return the versions of a package, lowest first, by its name or `ECOSYSTEM:NAME`."""
    catalogue = build_catalogue(contents.candidates)
    named = [id_ for id_ in catalogue.packages if package in (id_.name, str(id_))]
    if len(named) != 1:
        names = ", ".join(map(str, named))
        message = f"{package} may be {names}" if named else f"The index has no package {package}"
        spelled = {text for id_ in catalogue.packages for text in (id_.name, str(id_))}
        otherwise = "`reconciler index list` lists them."
        raise UsageError(message, hint=otherwise if named else suggest(package, spelled, otherwise=otherwise))
    return list(catalogue.candidates(named[0]))


def _header(options: dict[str, Any]) -> bytes:
    bare = options.get("interface") and not options["manifests"]
    return header_bytes(
        options["source"],
        options["version"],
        ecosystem=options.get("ecosystem") or ("bundle" if bare else ""),
        interfaces={canonical_interface(options["interface"]): ""} if bare else {},
        digest=options.get("digest"),
        provides=sorted(options.get("provides", ())),
        labels=dict(sorted(_label_pairs(options.get("labels", ())).items())),
        keywords=sorted(options.get("keywords", ())),
    )


def _version_value(candidate: Candidate) -> dict[str, Any]:
    return {
        "package": str(candidate.id),
        "version": str(candidate.version),
        "withdrawn": candidate.withdrawn,
        "path": candidate.location.path,
        "needs": [{"need": str(need), "optional": need.optional} for need in candidate.requires],
        "provides": [str(gvk) for gvk in candidate.provides],
        "interfaces": [{"interface": i.id, "version": str(i.version or "")} for i in candidate.interfaces],
    }


def _label_pairs(labels: Iterable[str]) -> dict[str, str]:
    """Return labels by their keys."""
    for label in labels:
        if "=" not in label:
            raise UsageError(f"{label} is not KEY=VALUE", hint="Write it like team=web.")
    return dict(label.partition("=")[::2] for label in labels)


index.add_command(sync)
index.add_command(missing)
