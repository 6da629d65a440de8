"""Check the functions that manifests ask for, as far as settings tell, without any package."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from reconciler.api.porch import Function, PackageVariant, PackageVariantSet
from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.expand.variants import set_key, variant_key
from reconciler.functions.catalog import parse_image
from reconciler.functions.field_checks import check_configuration
from reconciler.functions.pipeline import StepEngine, find_engine
from reconciler.functions.step import Stage, Step
from reconciler.inventory.inventory import FieldPath, Source, Sourced
from reconciler.names.problems import Problem
from reconciler.policy import FunctionPolicy

_HINT = "`reconciler functions list` shows what runs here; docs/functions.md tells how to allow more."


def check_functions(
    variants: Iterable[Sourced[PackageVariant]],
    sets: Iterable[Sourced[PackageVariantSet]],
    policy: FunctionPolicy,
) -> dict[Problem, Location]:
    """Return the functions that no machine with these settings runs, and configurations that one refuses.

    Each problem comes with the place of its function. Pure: whether this machine has an image, an executable
    or an optional library does not count.
    """
    problems: dict[Problem, Location] = {}
    for owner, source, path, step, config in _steps(variants, sets):
        location = source.at(*path, "exec" if step.exec else "image")
        named = f"{owner}: {step.function}"
        engine, image = find_engine(step, (), policy), parse_image(step.image, step.tag)
        if isinstance(engine, StepEngine) or engine.claimed:
            function, profile = (
                (engine.builtin, engine.profile) if isinstance(engine, StepEngine) else (engine.claimed, "")
            )
            for fault in check_configuration(function, {"kind": "ConfigMap", "data": config}, profile):
                where = source.at(*path, "configMap", *fault.path[1:])
                problem = Problem(where, Reason.PIPELINE_FAILED, f"{named}: {fault.message}", fault.hint)
                problems[problem] = location
        # With a container engine or a mapped executable some machine may run it.
        elif not policy.executable_of(step.exec or (image.full if image else "")) and not (
            image and policy.runtime
        ):
            why = "no executable is mapped to it" if step.exec else "it is no image name"
            why = "it is not built in, and containers are off" if image else why
            message = f"{named} cannot run: {why}"
            problems[Problem(location, Reason.PIPELINE_FAILED, message, engine.hint or _HINT)] = location
    return problems


def _steps(
    variants: Iterable[Sourced[PackageVariant]], sets: Iterable[Sourced[PackageVariantSet]]
) -> Iterator[tuple[str, Source, FieldPath, Step, Mapping[str, str]]]:
    """Yield each function of a manifest as a step: its owner, its place, its configuration."""
    lists: list[tuple[str, Source, FieldPath, Stage, Sequence[Function] | None]] = []
    for variant in variants:
        owner, spec = variant_key(variant.key).subject, variant.manifest.spec
        lists.append((owner, variant.source, ("spec", "mutators"), Stage.MUTATORS, spec.mutators))
        for stage in Stage if spec.pipeline else ():
            functions = getattr(spec.pipeline, stage.value)
            lists.append((owner, variant.source, ("spec", "pipeline", stage.value), stage, functions))
    for pvs in sets:
        owner = set_key(pvs.key).subject
        for number, target in enumerate(pvs.manifest.spec.targets or ()):
            pipeline = target.template.pipeline if target.template else None
            for stage in Stage if pipeline else ():
                functions = getattr(pipeline, stage.value)
                at = ("spec", "targets", number, "template", "pipeline", stage.value)
                lists.append((owner, pvs.source, at, stage, functions))
    for owner, source, path, stage, functions in lists:
        for index, function in enumerate(functions or ()):
            step = Step.of(function, stage, index)
            yield owner, source, (*path, index), step, function.config_map or {}
