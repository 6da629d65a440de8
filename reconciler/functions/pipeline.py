"""Warn of what a function makes or leaves that its author hardly meant: no function fails because of it."""

import posixpath
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from reconciler.api.kptfile import INJECTION_PREFIX, KPTFILE, LOCATION, OWNER
from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.base.suggestions import suggest
from reconciler.base.text import plural
from reconciler.functions import builtin
from reconciler.functions.builtin.call import file_of
from reconciler.functions.catalog import closest_function, find_claim, parse_image
from reconciler.functions.chart_resources import to_resources
from reconciler.functions.charts import RENDER_HELM_CHART, ChartCall, ChartError, find_value, read_charts
from reconciler.functions.field_checks import FieldFault, check_configuration, check_kptfiles
from reconciler.functions.protocol import (
    FunctionCall,
    FunctionResult,
    FunctionRuntime,
    ProtocolError,
    check_path,
    default_path,
    from_items,
    to_items,
)
from reconciler.functions.resources import (
    IGNORE_FILE,
    PackageResources,
    Resource,
    read_resources,
    write_resources,
)
from reconciler.functions.secrets import hide_secrets, secret_values
from reconciler.functions.step import (
    FunctionTimeoutError,
    InvalidPipelineError,
    PipelineResult,
    RunTimeoutError,
    Stage,
    Step,
    StepRun,
    Unrunnable,
    parse_steps,
    select,
)
from reconciler.krm.documents import DocumentKind
from reconciler.krm.values import copy_value, mapping_at, mappings_at, value_at
from reconciler.krm.yaml import Path, YamlError
from reconciler.names.objects import Files, NamesError, TakenNames, check_names, without_numbers
from reconciler.policy import FunctionPolicy, Limits

_DEPENDS_ON: Final = "config.kubernetes.io/depends-on"
_TEXTS: Final = (("metadata", "labels"), ("metadata", "annotations"), ("data",))
_CHART: Final = "Chart.yaml"


def check_output(
    function: str, resources: Iterable[Resource], package: PackageResources
) -> Iterator[FunctionResult]:
    """Yield warnings about the resources that a function returned.

    A text that became a number or a boolean, which the API server refuses; and a list of references of which
    `set-namespace` changes none, as that of the catalog.
    """
    for resource in resources:
        file = package.split.get(resource.source)
        written = file.documents[resource.part].value if file and resource.part is not None else {}
        for path in _TEXTS if resource.kind == "ConfigMap" else _TEXTS[:2]:
            values, before = mapping_at(resource.value, *path), mapping_at(written, *path)
            for name in _untyped(values, before):
                field = ".".join((*path, name))
                message = f"{field} of {resource.kind} {resource.name} was text before: quote the field"
                yield FunctionResult(message, "warning", file=file_of(resource))
        depends = str(resource.annotations.get(_DEPENDS_ON) or "")
        if function == "set-namespace" and "," in depends and "/namespaces/" in depends:
            message = f"{resource.kind} {resource.name}: set-namespace leaves a list in {_DEPENDS_ON} alone"
            yield FunctionResult(message, "warning", file=file_of(resource))


def _untyped(values: Mapping[str, Any], before: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of values that are numbers or booleans, and were texts."""
    for name, value in values.items():
        if type(value) in (int, float, bool) and type(before.get(name)) is str:
            yield name


def unseen_documents(package: PackageResources) -> Iterator[tuple[str, str]]:
    """Yield each file with objects without a name, or that is no YAML, and why no function sees them.

    Charts have such files, and other data is none of functions.
    """
    charts = tuple(path.removesuffix(_CHART) for path in package.files if path.rpartition("/")[2] == _CHART)
    for path, split in package.split.items():
        if charts and path.startswith(charts):
            continue
        why = f"it is no YAML: {split.problem}" if split.problem is not None else ""
        for document in split.documents:
            if document.kind is DocumentKind.DATA and isinstance(document.value, dict):
                has_kind = document.value.get("apiVersion") and document.value.get("kind")
                why = why or ("it has no metadata.name" if has_kind else "")
        if why:
            yield path, why


def vanished_resources(unseen: Mapping[str, str], before: Files) -> Iterator[str]:
    """Yield the files of `unseen` that functions saw whole in an earlier version, and that had resources."""
    earlier = read_resources({path: before[path] for path in unseen if path in before})
    broken = dict(unseen_documents(earlier))
    seen = {resource.path for resources in earlier.resources.values() for resource in resources}
    yield from sorted(seen - broken.keys())


def broken_files(files: Files, former: Iterable[Files]) -> dict[str, str]:
    """Return the files that are no YAML and why, where they were whole in an earlier version, with resources.

    Local configuration does not count: no agent misses it. Only what changed is parsed.
    """
    broken: dict[str, str] = {}
    for before in former:
        changed = {p for p, file in before.items() if p in files and files[p].oid != file.oid}
        if not changed:
            continue
        # A Kptfile, a `.krmignore` and a Chart.yaml decide which other files hold resources.
        context = {p for p in files if p.rpartition("/")[2] in (KPTFILE, IGNORE_FILE, _CHART)}
        package = read_resources({p: f for p, f in files.items() if p in changed | context})
        unseen = {
            path: why
            for path, why in unseen_documents(package)
            if path in changed and package.split[path].problem is not None
        }
        whole = {path: before[path] for path in vanished_resources(unseen, before)}
        lists = read_resources(whole).resources.values()
        lost = {resource.path for listed in lists for resource in listed if not resource.is_local_config}
        broken |= {path: unseen[path] for path in sorted(lost)}
    return broken


StepLimit = Callable[[], AbstractContextManager[object]]
"""Bounds the time of each step; the core has no clock."""
RunPipelines = Callable[[Sequence[Files]], Sequence[PipelineResult]]
"""Renders packages independently; the results have the order of the packages."""

PARENTS_FIRST: Final = "kpt.dev/bfs-rendering"
"""Annotation of a root Kptfile: a package is rendered before its sub-packages, and still sees them."""
SAVE_ON_FAILURE: Final = "kpt.dev/save-on-render-failure"
"""Annotation of a root Kptfile: what was made before a function failed is of use."""
_ABSENT: Final = object()


def run_pipeline(
    files: Files,
    runtimes: Sequence[FunctionRuntime] = (),
    policy: FunctionPolicy = FunctionPolicy(),  # noqa: B008 - a frozen value
    step_limit: StepLimit = nullcontext,
    *,
    limits: Limits = Limits(),  # noqa: B008 - a frozen value
) -> PipelineResult:
    """Render a package: run the pipelines of its sub-packages, then its own. Total and all or nothing.

    Every step is resolved before the first one runs, so all functions without a runtime are reported at
    once. Files that no function changed keep every byte.

    Source: kpt internal/util/render/executor.go, hydrate and runPipeline.
    Differs: a step with a result of severity error fails, whatever its exit code; a function that
        returns no resources at all, or removes the Kptfile, fails instead of emptying the package.
    """
    if faults := check_kptfiles(files):
        return PipelineResult(files, error="; ".join(map(str, faults)))
    if not may_have_pipeline(files):
        return PipelineResult(files)
    try:
        steps = declared_steps(files)
    except InvalidPipelineError as error:
        return PipelineResult(files, error=str(error))
    return (
        run_steps(files, steps, runtimes, policy, step_limit, limits=limits)
        if steps
        else PipelineResult(files)
    )


def may_have_pipeline(files: Files) -> bool:
    """Return whether a Kptfile has the word, or may escape it: most have none, and need not be parsed."""
    kptfiles = (file.data for path, file in files.items() if _is_kptfile(path))
    return any(b"pipeline" in data or b"\\" in data for data in kptfiles)


def waits_for_functions(conflicts: Collection[object], files: Files) -> bool:
    """Tell whether the functions of a package have not run: they do once its conflicts are answered."""
    return bool(conflicts) and may_have_pipeline(files)


def declared_steps(files: Files) -> tuple[Step, ...]:
    """Return the steps of a package and its sub-packages in the order of their runs. Parses only Kptfiles.

    Raises:
        InvalidPipelineError: A pipeline has a wrong structure.
    """
    names = (KPTFILE, IGNORE_FILE)
    package = read_resources({path: f for path, f in files.items() if path.rpartition("/")[2] in names})
    steps: list[Step] = []
    for directory in package.packages(parents_first=package.asks(PARENTS_FIRST)):
        path = f"{directory}/{KPTFILE}" if directory else KPTFILE
        documents = (resource for resource in package.resources[directory] if resource.path == path)
        kptfile = next((document for document in documents if document.kind == "Kptfile"), None)
        if kptfile is not None:
            try:
                steps += parse_steps(kptfile.value, directory)
            except InvalidPipelineError as error:
                location = Location(path, *kptfile.tree.mark(error.path))
                raise InvalidPipelineError(f"{location}: {error}", error.path) from error
    return tuple(steps)


def run_steps(
    files: Files,
    steps: Sequence[Step],
    runtimes: Sequence[FunctionRuntime],
    policy: FunctionPolicy,
    step_limit: StepLimit = nullcontext,
    *,
    limits: Limits = Limits(),  # noqa: B008 - a frozen value
) -> PipelineResult:
    """Run steps on the packages that they belong to. All or nothing.

    Nothing but Kptfiles is parsed where a step cannot run.
    """
    engines = [find_engine(step, runtimes, policy) for step in steps]
    missing = {engine.function: engine for engine in engines if isinstance(engine, Unrunnable)}
    if missing:
        listed = tuple(missing[name] for name in sorted(missing))
        message = "; ".join(f"{failure.function}: {failure.reason}" for failure in listed)
        return PipelineResult(files, error=message, unrunnable=listed)
    package = read_resources(files)
    run = _Run(package, policy, limits)
    saved = run.copy_resources() if package.asks(SAVE_ON_FAILURE) else None
    step, engine = steps[0], engines[0]

    def failed(error: str) -> PipelineResult:
        # Files that lost their resources stay, as kpt leaves them.
        partial = {**files, **write_resources(package, saved)} if saved is not None else None
        return PipelineResult(files, tuple(run.done), error, partial=partial, failed=step)

    try:
        for step, engine in zip(steps, engines, strict=True):
            if isinstance(engine, StepEngine):
                with step_limit():
                    run.step(step, engine)
                saved = run.copy_resources() if saved is not None else None
        rendered = write_resources(package, run.all_resources())
        _check_size(step, files, rendered, limits)
    except _StepError as error:
        repeats = isinstance(engine, StepEngine) and engine.runtime is None
        return replace(failed(str(error)), refusal=error.refusal, repeats=repeats)
    except FunctionTimeoutError as error:
        return replace(failed(f"{step}: {error}"), is_late=True)
    except RunTimeoutError as error:
        return replace(failed(str(error)), is_late=error.is_running, is_postponed=True)
    except YamlError as error:
        return failed(error.message)
    unseen = tuple(unseen_documents(package))
    return PipelineResult(rendered, tuple(run.done), unseen=unseen)


class StepEngine(Struct, frozen=True):
    """A builtin with its profile, or a runtime with its call, that runs a step."""

    name: str
    builtin: str = ""
    profile: str = ""
    runtime: FunctionRuntime | None = None
    call: FunctionCall = FunctionCall()


def find_engine(
    step: Step, runtimes: Sequence[FunctionRuntime], policy: FunctionPolicy
) -> StepEngine | Unrunnable:
    """Return the builtin that claims the image of a step, else the first runtime that can run it."""
    claimed = ""
    image = parse_image(step.image, step.tag) if step.image else None
    if step.image and image is None:
        return Unrunnable(step.function, "It is no image name")
    if image is not None:
        pinned = policy.images.get(image.tagged, "")
        claim = find_claim(image, floating=policy.claim_floating, pinned=pinned)
        name = image.name if image.name in builtin.BUILTINS else image.short
        if claim is not None and name in builtin.BUILTINS:
            version = ".".join(map(str, claim.newest))
            return StepEngine(f"builtin {name} {version}", name, claim.profile)
        claimed = name if claim is not None else ""
    call = FunctionCall(image=image.full if image else "", exec=step.exec, claimed=claimed)
    reasons = []
    for runtime in runtimes:
        reason = runtime.can_run(call)
        if not reason:
            name = type(runtime).__name__.removesuffix("Runtime").lower()
            return StepEngine(name, runtime=runtime, call=call)
        reasons.append(reason)
    hint = closest_function(image) if image else suggest(step.exec, policy.exec, otherwise="")
    reason = "; ".join(dict.fromkeys(reasons)) or "Nothing here can run it"
    return Unrunnable(step.function, reason, hint, claimed)


class _Config(NamedTuple):
    """The functionConfig of a step, and its file."""

    value: Mapping[str, Any] | None = None
    file: str = ""


class _StepError(Exception):
    """A step failed; `refusal` is set if it did what no function may."""

    def __init__(self, message: str, refusal: Reason | None = None) -> None:
        super().__init__(message)
        self.refusal = refusal


class _Run:
    """The resources of a package, changed by one step after the other."""

    def __init__(self, package: PackageResources, policy: FunctionPolicy, limits: Limits) -> None:
        self._policy = policy
        self._limits = limits
        self._package = package
        self._files = package.files
        self._resources = {path: list(resources) for path, resources in package.resources.items()}
        self.done: list[StepRun] = []
        self._secrets: frozenset[str] = frozenset()

    def all_resources(self) -> list[Resource]:
        """Return the current resources of all packages."""
        return [resource for resources in self._resources.values() for resource in resources]

    def copy_resources(self) -> list[Resource]:
        """Return copies of the current resources, which a step that fails does not change."""
        return [resource.copy() for resource in self.all_resources()]

    def step(self, step: Step, engine: StepEngine) -> None:
        """Run one step on the resources of its package and of the packages below it."""
        protected = _protected_fields(self._resources.get("", ()))
        below = f"{step.package}/" if step.package else ""
        inner = sorted(name for name in self._resources if name != step.package and name.startswith(below))
        visible = [resource for name in (step.package, *inner) for resource in self._resources[name]]
        before = {resource.path for resource in visible}  # functions change them in place
        selected = select(visible, step.selectors, step.exclude)
        config = self._config(step, visible)
        if step.stage is Stage.VALIDATORS:
            selected = [resource.copy() for resource in selected]
        function = engine.builtin or engine.call.claimed
        if config.value is not None and function:
            faults = list(check_configuration(function, config.value, engine.profile))
            if faults:
                raise _StepError(f"{step}: {_located(step, config, visible, faults)}")
        if engine.call.claimed == RENDER_HELM_CHART:
            engine = self._with_charts(step, engine, config, visible)
        # A function may turn a Secret into another object, whose values a later one prints.
        self._secrets |= secret_values(self.all_resources())
        others = self._other_paths(selected) if engine.call.charts else ()
        output, run = _execute(step, engine, selected, config, self._policy, others=others)
        run = self._with_warnings(run, function, output)
        if run.results or run.stderr:
            self._secrets |= secret_values(output)
            run = hide_secrets(run, self._secrets)
        self.done.append(run)
        errors = [result.message for result in run.results if result.severity == "error"]
        if run.exit_code or (errors and not self._policy.compatible):
            why = "; ".join(errors) or run.stderr.strip() or f"exit code {run.exit_code}"
            raise _StepError(f"{step}: {why}")
        if step.stage is Stage.VALIDATORS:
            return
        if selected and not output:
            raise _StepError(f"{step} returned no resources at all")
        self._replace(step, visible, selected, output, before)
        changed = _changed_fields(protected, _protected_fields(self._resources.get("", ())))
        if changed:
            message = f"{step} changes {', '.join(changed)} of the Kptfile, which no function may"
            raise _StepError(message, Reason.PROTECTED_FIELD)

    def _with_warnings(self, run: StepRun, function: str, output: Iterable[Resource]) -> StepRun:
        """Return a run with warnings about its output, but for those of earlier steps."""
        if self._policy.compatible or run.exit_code:
            return run
        earlier = {str(result) for done in self.done for result in done.results}
        warnings = check_output(function, output, self._package)
        new = [warning for warning in warnings if str(warning) not in earlier]
        return replace(run, results=(*run.results, *new)) if new else run

    def _other_paths(self, resources: Iterable[Resource]) -> Iterator[str]:
        """Yield the files of the package without those of these resources alone."""
        yield from self._package.lasting_paths
        left_out = set(map(id, resources))
        yield from (resource.path for resource in self.all_resources() if id(resource) not in left_out)

    def _config(self, step: Step, visible: Iterable[Resource]) -> _Config:
        if step.config_map:
            data = {str(key): builtin.call.as_text(value) for key, value in step.config_map.items()}
            named = {"name": "function-input"}
            return _Config({"apiVersion": "v1", "kind": "ConfigMap", "metadata": named, "data": data})
        if not step.config_path:
            return _Config()
        file = posixpath.normpath(step.config_path)
        matches = [r for r in visible if r.package == step.package and r.file == file]
        if len(matches) != 1:
            count = "no resource" if not matches else plural(len(matches), "resource")
            raise _StepError(f"{step}: its configPath {step.config_path} has {count}; exactly one is needed")
        return _Config(matches[0].value, file)

    def _with_charts(
        self, step: Step, engine: StepEngine, config: _Config, visible: Iterable[Resource]
    ) -> StepEngine:
        start = f"{step.package}/" if step.package else ""
        files = {path.removeprefix(start): f for path, f in self._files.items() if path.startswith(start)}
        try:
            charts = read_charts(config.value, files, self._limits)
        except ChartError as error:
            fault = FieldFault(error.path, str(error), error.hint)
            raise _StepError(f"{step}: {_located(step, config, visible, [fault])}") from error

        def locate(call: ChartCall, path: Path) -> str:
            written = find_value(call, config.value or {}, path, files)
            return written if isinstance(written, str) else _locate_field(step, config, visible, written)

        charts = tuple(replace(call, locate=partial(locate, call)) for call in charts)
        return replace(engine, call=replace(engine.call, charts=charts))

    def _replace(
        self,
        step: Step,
        visible: list[Resource],
        selected: list[Resource],
        output: list[Resource],
        before: set[str],
    ) -> None:
        """Replace the selected resources by the output of a step; the others keep their place."""
        removed = {id(resource) for resource in selected} - {id(resource) for resource in output}
        present = {id(resource) for resource in visible}
        resources = [resource for resource in visible if id(resource) not in removed]
        resources += [resource for resource in output if id(resource) not in present]
        _check_resources(step, resources, self._limits)
        if any(resource.path not in before for resource in resources):
            self._check_files(step, resources, before, [*self._other_paths(visible)])
        for resource in visible:
            if id(resource) in removed and resource.kind == "Kptfile" and _is_kptfile(resource.path):
                raise _StepError(f"{step} removes {resource.path}, without which there is no package")
        for package in {resource.package for resource in visible}:
            self._resources[package] = [resource for resource in resources if resource.package == package]

    def _check_files(
        self, step: Step, resources: list[Resource], before: set[str], others: list[str]
    ) -> None:
        """Give new resources their files; no file may be in the place of a directory.

        Two that only some file systems take for one are left to those who know what main has.
        """
        # Each new resource in its default file gets another one where it would clash, by a number.
        new = [
            made
            for made in resources
            if made.part is None and made.path not in before and made.path.endswith(default_path(made))
        ]
        ids = set(map(id, new))
        rest = [resource for resource in resources if id(resource) not in ids]
        homes = {resource.identity: resource.path for resource in rest}
        taken = TakenNames([*others, *(resource.path for resource in rest)])
        for resource in _by_default_file(new):
            home = homes.get(resource.identity, "")
            is_home = without_numbers(home) == without_numbers(resource.path)
            resource.path = home if is_home else taken.choose(resource.path, joins=True)
            taken.add(resource.path)
        paths = dict.fromkeys(resource.path for resource in resources)
        self.done[-1] = replace(self.done[-1], files=tuple(sorted(paths.keys() - before)))
        try:
            check_names(every := {*others, *paths}, every, maker=str(step))
        except NamesError as error:
            raise _StepError(str(error), Reason.INVALID_PACKAGE) from error


def _located(step: Step, config: _Config, visible: Iterable[Resource], faults: Iterable[FieldFault]) -> str:
    """Return the faults of a configuration, each with its file and line."""
    texts = []
    for fault in faults:
        where = _locate_field(step, config, visible, fault.path)
        hint = f". {fault.hint}" if fault.hint else ""
        texts.append(f"{where}{': ' if where else ''}{fault.message}{hint}")
    return "; ".join(texts)


def _locate_field(step: Step, config: _Config, visible: Iterable[Resource], path: Path) -> str:
    """Return the file and line of a field of a configuration, "" if it is not there."""
    file = config.file or KPTFILE
    holder = next((r for r in visible if r.package == step.package and r.file == file), None)
    path_in_file = path if config.file else ("pipeline", step.stage.value, step.index, "configMap", *path[1:])
    return f"{holder.path}:{holder.tree.mark(path_in_file)[0]}" if holder is not None else ""


def _execute(
    step: Step,
    engine: StepEngine,
    selected: list[Resource],
    config: _Config,
    policy: FunctionPolicy,
    *,
    others: Iterable[str],
) -> tuple[list[Resource], StepRun]:
    """Run a step; after a failure its output is the selected resources. `others` are the other files."""
    if engine.runtime is None:
        call = builtin.call.BuiltinCall(
            selected.copy(), *config, engine.profile, policy.compatible, step.package
        )
        run = _run_builtin(step, engine, call)
        return call.items, run
    answer = engine.runtime.run(replace(engine.call, config=config.value, items=to_items(selected)))
    run = StepRun(step, engine.name, answer.results, answer.exit_code, answer.stderr or answer.error)
    if answer.error or answer.exit_code:
        text = "\n".join(part for part in (answer.error, answer.stderr.strip()) if part)
        return selected, replace(run, exit_code=run.exit_code or 1, stderr=text)
    try:
        items = from_items(answer.items or (), selected, step.package)
        others = [*others]
        for chart, rendered in zip(engine.call.charts, answer.charts, strict=True):
            items = _joined(items, to_resources(chart, rendered, step.package), chart, others)
    except (ProtocolError, ChartError) as error:
        return selected, replace(run, exit_code=1, stderr=str(error))
    return items, run


def _joined(
    present: list[Resource], made: list[Resource], chart: ChartCall, others: Sequence[str]
) -> list[Resource]:
    """Return the resources with those of a chart. One in its file, with a number or not, is made anew.

    Source: krm-functions-catalog render-helm-chart, run: a resource that is elsewhere already is kept.
    """
    homes = {r.identity: r.path for r in present if r.file not in chart.chart_files}
    new: dict[object, Resource] = {}
    for resource in made:
        home = homes.get(resource.identity, resource.path)
        if without_numbers(home) == without_numbers(resource.path):
            new[resource.identity] = resource
    unchanged = [resource for resource in present if resource.identity not in new]
    taken = TakenNames([*others, *(resource.path for resource in unchanged)])
    for resource in new.values():
        if resource.identity in homes:
            resource.path = homes[resource.identity]
            taken.add(resource.path)
    for resource in _by_default_file(r for r in new.values() if r.identity not in homes):
        resource.path = taken.choose(resource.path, joins=chart.by_template)
        taken.add(resource.path)
    return [*unchanged, *new.values()]


def _by_default_file(resources: Iterable[Resource]) -> list[Resource]:
    """Sort resources with default files that may clash: the first one gets its own, the others numbers.

    Lower case comes first, as most names have it: a name that joins later is the odd one.
    """
    return sorted(resources, key=lambda resource: (resource.path.swapcase(), resource.identity))


def _run_builtin(step: Step, engine: StepEngine, call: "builtin.call.BuiltinCall") -> StepRun:
    code = 1
    try:
        results, code = tuple(builtin.BUILTINS[engine.builtin](call)), 0
    except builtin.call.FunctionFailedError as failed:
        results = failed.results
    except YamlError as error:
        results = (FunctionResult(error.message, "error"),)
    return StepRun(step, engine.name, results, code, splits=tuple(dict.fromkeys(call.splits)))


def _check_resources(step: Step, resources: Sequence[Resource], limits: Limits) -> None:
    """Check the resources after a step: each is an object, in the package, and alone at its index."""
    if len({resource.path for resource in resources}) > limits.package_files:
        what = plural(limits.package_files, "file")
        raise _StepError(f"{step} makes more than {what} (limits.packageFiles)")
    made = Counter(resource.path for resource in resources if resource.part is None)
    if max(made.values(), default=0) > limits.yaml_documents:
        what = plural(limits.yaml_documents, "document")
        raise _StepError(f"{step} makes more than {what} of one file (limits.yamlDocuments)")
    places: set[tuple[str, int]] = set()
    for resource in resources:
        if not resource.api_version or not resource.kind:
            raise _StepError(f"{step} left a resource without apiVersion or kind in {resource.path}")
        if not resource.name and resource.part is None:
            raise _StepError(f"{step} left a {resource.kind} without metadata.name in {resource.path}")
        reason = check_path(resource.file)
        if reason:
            raise _StepError(f"{step}: {reason}", Reason.INVALID_PACKAGE)
        resource.path = posixpath.normpath(resource.path)
        if resource.index is None:
            continue
        position = (resource.path, resource.index)
        if position in places:
            raise _StepError(
                f'{step}: resource at path "{position[0]}" and index "{position[1]}" already exists'
            )
        places.add(position)


def _check_size(step: Step, before: Files, after: Files, limits: Limits) -> None:
    """Refuse what functions made if no later run could read it."""
    sizes = {path: len(file.data) for path, file in after.items() if before.get(path) is not file}
    largest = max(sizes, key=sizes.__getitem__, default="")
    if sizes and sizes[largest] > limits.package_file_bytes:
        most = f"limits.packageFileBytes is {limits.package_file_bytes}"
        raise _StepError(f"{step}: {largest} has {plural(sizes[largest], 'byte')}, and {most}")
    if (size := sum(sizes.values())) > limits.package_bytes:
        most = f"limits.packageBytes is {limits.package_bytes}"
        raise _StepError(f"The functions up to {step} make {plural(size, 'byte')}, and {most}")


def _protected_fields(resources: Iterable[Resource]) -> dict[str, Any]:
    """Return the fields of the root Kptfile that no function may change, by their paths.

    They are the owner, location and upstream of the package, and the results of config injection. A second
    document in the file counts as a field: readers could take it for the Kptfile.
    """
    kptfiles = [resource for resource in resources if resource.path == KPTFILE]
    value = kptfiles[0].value if kptfiles else {}
    fields: dict[str, Any] = {"apiVersion": value.get("apiVersion"), "kind": value.get("kind")}
    for name in (OWNER, LOCATION):
        fields[f'metadata.annotations."{name}"'] = value_at(
            value, "metadata", "annotations", name, default=_ABSENT
        )
    for name in ("upstream", "upstreamLock"):
        fields[name] = value.get(name, _ABSENT)
    fields.update(_injected_entries(value, ("status", "conditions"), "type"))
    fields.update(_injected_entries(value, ("info", "readinessGates"), "conditionType"))
    fields["the number of documents"] = len(kptfiles)
    return {path: copy_value(field) for path, field in fields.items() if field is not _ABSENT}


def _changed_fields(before: dict[str, Any], after: dict[str, Any]) -> tuple[str, ...]:
    if before.get("kind") and after.get("kind") is None:
        return ("the place",)
    paths = sorted(before.keys() | after.keys())
    return tuple(path for path in paths if before.get(path, _ABSENT) != after.get(path, _ABSENT))


def _injected_entries(value: Any, path: tuple[str, ...], key: str) -> Iterator[tuple[str, Any]]:
    for entry in mappings_at(value, *path):
        name = entry.get(key)
        if isinstance(name, str) and name.startswith(INJECTION_PREFIX):
            yield f"{'.'.join(path)}[{key}={name}]", entry


def _is_kptfile(path: str) -> bool:
    return path.rpartition("/")[2] == KPTFILE
