"""Kptfile pipelines: sub-packages first, mutators in order, then validators; all or nothing.

Pure: what is not built in is run by the runtimes that are given.
"""

import posixpath
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from reconciler.api.kptfile import KPTFILE
from reconciler.functions.builtin import BUILTINS
from reconciler.functions.builtin.call import BuiltinCall, FunctionFailedError, as_text
from reconciler.functions.catalog import find_claim, parse_image
from reconciler.functions.package_files import Contents, Hidden, read_contents, write_contents
from reconciler.functions.protected import changed_fields, protected_fields
from reconciler.functions.resource import Resource
from reconciler.functions.result import PipelineResult, StepRun, Unrunnable
from reconciler.functions.runtime import FunctionCall, FunctionResult, FunctionRun, FunctionRuntime
from reconciler.functions.secrets import hide_secrets, secret_values
from reconciler.functions.step import InvalidPipelineError, Stage, Step, parse_steps, select
from reconciler.functions.wire import ProtocolError, check_path, items_in, items_out
from reconciler.krm.yaml import YamlError
from reconciler.objects import Files
from reconciler.policy import FunctionPolicy

RunPipelines = Callable[[Sequence[Files]], Sequence[PipelineResult]]
"""Renders several packages, each by itself; the results come in the order of the packages."""

_NOTHING_HIDDEN: Final[Hidden] = lambda _: frozenset()  # noqa: E731 - a value with a type


def run_pipeline(
    files: Files,
    runtimes: Sequence[FunctionRuntime] = (),
    policy: FunctionPolicy = FunctionPolicy(),  # noqa: B008 - a frozen value
    *,
    hidden: Hidden = _NOTHING_HIDDEN,
) -> PipelineResult:
    """Render a package: run the pipelines of its sub-packages, then its own. Total and all or nothing.

    Every step is resolved before the first one runs, so all functions that nobody can run are named at
    once. Files that no function changed keep every byte.

    Source: kpt internal/util/render/executor.go, hydrate and runPipeline.
    Differs: a step with a result of severity error fails, whatever its exit code; a function that
        gives back nothing at all, or takes the Kptfile away, fails instead of emptying the package.
    """
    if not any(b"pipeline" in file.data for path, file in files.items() if _is_kptfile(path)):
        return PipelineResult(files)
    contents = read_contents(files, hidden)
    try:
        steps = [step for package in contents.packages for step in _declared(contents, package)]
    except InvalidPipelineError as error:
        return PipelineResult(files, error=str(error), declared=True)
    return run_steps(contents, steps, runtimes, policy)


def declared_steps(files: Files, hidden: Hidden = _NOTHING_HIDDEN) -> tuple[Step, ...]:
    """Return every step of a package and its sub-packages, in the order in which they run.

    Raises:
        InvalidPipelineError: A pipeline is not what a Kptfile may have.
    """
    contents = read_contents(files, hidden)
    return tuple(step for package in contents.packages for step in _declared(contents, package))


def run_function(
    files: Files,
    step: Step,
    runtimes: Sequence[FunctionRuntime] = (),
    policy: FunctionPolicy = FunctionPolicy(),  # noqa: B008 - a frozen value
    *,
    hidden: Hidden = _NOTHING_HIDDEN,
) -> PipelineResult:
    """Run one function on all resources of a package, whatever its Kptfile says."""
    return run_steps(read_contents(files, hidden), [step], runtimes, policy)


def run_steps(
    contents: Contents,
    steps: Sequence[Step],
    runtimes: Sequence[FunctionRuntime] = (),
    policy: FunctionPolicy = FunctionPolicy(),  # noqa: B008 - a frozen value
) -> PipelineResult:
    """Run steps over the packages that they belong to, those of deeper packages first."""
    if not steps:
        return PipelineResult(contents.files)
    engines = [find_engine(step, runtimes, policy) for step in steps]
    missing = {engine.function: engine for engine in engines if isinstance(engine, Unrunnable)}
    if missing:
        listed = tuple(missing[name] for name in sorted(missing))
        message = "; ".join(f"{each.function}: {each.reason}" for each in listed)
        return PipelineResult(contents.files, error=message, unrunnable=listed, declared=True)
    run = _Run(contents, policy)
    try:
        for step, engine in zip(steps, engines, strict=True):
            if isinstance(engine, Engine):
                run.step(step, engine)
        files = write_contents(contents, run.all_resources())
    except _StepError as failed:
        trespass = isinstance(failed, _TrespassError)
        return PipelineResult(contents.files, tuple(run.done), str(failed), declared=True, trespass=trespass)
    except YamlError as error:
        return PipelineResult(contents.files, tuple(run.done), error.message, declared=True)
    return PipelineResult(files, tuple(run.done), declared=True)


@dataclass(frozen=True, slots=True)
class Engine:
    """Who runs a step: a builtin with its profile, or a runtime."""

    name: str
    builtin: str = ""
    profile: str = ""
    runtime: FunctionRuntime | None = None
    call: FunctionCall = FunctionCall()  # noqa: RUF009 - a frozen value


def find_engine(
    step: Step, runtimes: Sequence[FunctionRuntime], policy: FunctionPolicy
) -> Engine | Unrunnable:
    """Return who runs a step: a builtin that claims it, else the first runtime that can."""
    claimed = ""
    image = parse_image(step.image, step.tag) if step.image else None
    if step.image and image is None:
        return Unrunnable(step.function, "It is no image name")
    if image is not None:
        pinned = policy.images.get(image.tagged, "")
        claim = find_claim(image, floating=policy.claim_floating, known=pinned)
        name = image.name if image.name in BUILTINS else image.short
        if claim is not None and name in BUILTINS:
            version = ".".join(map(str, claim.newest))
            return Engine(f"builtin {name} {version}", name, claim.profile)
        claimed = name if claim is not None else ""
    call = FunctionCall(image=image.full if image else "", exec=step.exec, claimed=claimed)
    reasons = []
    for runtime in runtimes:
        reason = runtime.can_run(call)
        if not reason:
            name = type(runtime).__name__.removesuffix("Runtime").lower()
            return Engine(name, runtime=runtime, call=call)
        reasons.append(reason)
    return Unrunnable(step.function, "; ".join(dict.fromkeys(reasons)) or "Nothing here can run it")


class _Config(NamedTuple):
    """The functionConfig of a step, and the file it stands in."""

    value: Mapping[str, Any] | None = None
    file: str = ""


class _StepError(Exception):
    """A step failed; the text says which one, and why."""


class _TrespassError(_StepError):
    """A step changed what no function may change."""


class _Run:
    """The resources of a package on their way through its steps."""

    def __init__(self, contents: Contents, policy: FunctionPolicy) -> None:
        self._policy = policy
        self._resources = {package: list(found) for package, found in contents.resources.items()}
        self.done: list[StepRun] = []

    def all_resources(self) -> list[Resource]:
        """Return every resource as it is now."""
        return [resource for found in self._resources.values() for resource in found]

    def step(self, step: Step, engine: Engine) -> None:
        """Run one step on what its package and the packages below it have."""
        protected = protected_fields(self._resources.get("", ()))
        seen = self._visible(step.package)
        selected = select(seen, step.selectors, step.exclude)
        config = self._config(step, seen)
        if step.stage is Stage.VALIDATORS:
            selected = [resource.copy() for resource in selected]
        secrets = secret_values(self.all_resources())
        left, run = _execute(step, engine, selected, config, self._policy)
        run = hide_secrets(run, secrets | secret_values(left))
        self.done.append(run)
        self._check_run(step, run)
        if step.stage is Stage.VALIDATORS:
            return
        if selected and not left:
            raise _StepError(f"{step} gave back no resources at all")
        self._replace(step, seen, selected, left)
        self._check_protected(step, protected)

    def _check_protected(self, step: Step, before: dict[str, Any]) -> None:
        changed = changed_fields(before, protected_fields(self._resources.get("", ())))
        if changed:
            raise _TrespassError(f"{step} changes {', '.join(changed)} of the Kptfile, which no function may")

    def _visible(self, package: str) -> list[Resource]:
        below = f"{package}/" if package else ""
        inner = sorted(name for name in self._resources if name != package and name.startswith(below))
        return [resource for name in (package, *inner) for resource in self._resources[name]]

    def _config(self, step: Step, seen: Iterable[Resource]) -> _Config:
        """Return the functionConfig of a step, as the steps before it left it, and its file."""
        if step.config_map:
            data = {str(key): as_text(value) for key, value in step.config_map.items()}
            named = {"name": "function-input"}
            return _Config({"apiVersion": "v1", "kind": "ConfigMap", "metadata": named, "data": data})
        if not step.config_path:
            return _Config()
        file = posixpath.normpath(step.config_path)
        found = [each for each in seen if each.package == step.package and each.file == file]
        if len(found) != 1:
            count = "no resource" if not found else f"{len(found)} resources"
            raise _StepError(f"{step}: its configPath {step.config_path} has {count}; exactly one is needed")
        return _Config(found[0].value, file)

    def _check_run(self, step: Step, run: StepRun) -> None:
        wrong = [result.message for result in run.results if result.severity == "error"]
        if run.exit_code or (wrong and not self._policy.compatible):
            why = "; ".join(wrong) or run.stderr.strip() or f"exit code {run.exit_code}"
            raise _StepError(f"{step}: {why}")

    def _replace(self, step: Step, seen: list[Resource], sent: list[Resource], left: list[Resource]) -> None:
        gone = {id(resource) for resource in sent} - {id(resource) for resource in left}
        known = {id(resource) for resource in seen}
        kept = [resource for resource in seen if id(resource) not in gone]
        kept += [resource for resource in left if id(resource) not in known]
        _check_resources(step, kept)
        lost = [
            each for each in seen if id(each) in gone and each.kind == "Kptfile" and _is_kptfile(each.path)
        ]
        if lost:
            raise _StepError(f"{step} takes away {lost[0].path}, without which there is no package")
        for package in {resource.package for resource in seen}:
            self._resources[package] = [each for each in kept if each.package == package]


def _execute(
    step: Step, engine: Engine, selected: list[Resource], config: _Config, policy: FunctionPolicy
) -> tuple[list[Resource], StepRun]:
    if engine.runtime is None:
        call = BuiltinCall(selected.copy(), *config, engine.profile, policy.compatible, step.package)
        run = _run_builtin(step, engine, call)
        return call.items, run
    answer = engine.runtime.run(replace(engine.call, config=config.value, items=items_out(selected)))
    run = StepRun(step, engine.name, answer.results, answer.exit_code, answer.stderr or answer.error)
    if answer.error or answer.exit_code:
        return selected, replace(run, exit_code=run.exit_code or 1, stderr=_told(answer))
    try:
        return items_in(answer.items or (), selected, step.package), run
    except ProtocolError as error:
        return selected, replace(run, exit_code=1, stderr=str(error))


def _told(answer: FunctionRun) -> str:
    return "\n".join(part for part in (answer.error, answer.stderr.strip()) if part)


def _run_builtin(step: Step, engine: Engine, call: BuiltinCall) -> StepRun:
    try:
        results = tuple(BUILTINS[engine.builtin](call))
    except FunctionFailedError as failed:
        return StepRun(step, engine.name, failed.results, exit_code=1)
    except YamlError as error:
        return StepRun(step, engine.name, (FunctionResult(error.message, "error"),), exit_code=1)
    return StepRun(step, engine.name, results)


def _check_resources(step: Step, resources: Iterable[Resource]) -> None:
    """Refuse what no function may leave behind: no objects, files outside, two objects in one place."""
    places: set[tuple[str, int]] = set()
    for resource in resources:
        if not resource.api_version or not resource.kind:
            raise _StepError(f"{step} left a resource without apiVersion or kind in {resource.path}")
        if not resource.name and resource.part is None:
            raise _StepError(f"{step} left a {resource.kind} without metadata.name in {resource.path}")
        reason = check_path(resource.file)
        if reason:
            raise _StepError(f"{step}: {reason}")
        resource.path = posixpath.normpath(resource.path)
        if resource.index is None:
            continue
        place = (resource.path, resource.index)
        if place in places:
            raise _StepError(f'{step}: resource at path "{place[0]}" and index "{place[1]}" already exists')
        places.add(place)


def _declared(contents: Contents, package: str) -> tuple[Step, ...]:
    path = f"{package}/{KPTFILE}" if package else KPTFILE
    for resource in contents.resources[package]:
        if resource.path == path and resource.kind == "Kptfile":
            return parse_steps(resource.value, package)
    return ()


def _is_kptfile(path: str) -> bool:
    return path.rpartition("/")[2] == KPTFILE
