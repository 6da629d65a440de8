"""A pipeline as a Kptfile declares it: steps, their configuration, and whom they see."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from reconciler.functions.resource import Resource


class Stage(StrEnum):
    """What a function may do: mutators change resources, validators only look."""

    MUTATORS = "mutators"
    VALIDATORS = "validators"


class InvalidPipelineError(Exception):
    """A pipeline that cannot be understood; the text says why."""


@dataclass(frozen=True, slots=True)
class Step:
    """One function of a pipeline, as it is written."""

    package: str
    stage: Stage
    index: int
    name: str = ""
    image: str = ""
    tag: str = ""
    exec: str = ""
    config_path: str = ""
    config_map: Mapping[str, Any] | None = None
    selectors: tuple[Mapping[str, Any], ...] = ()
    exclude: tuple[Mapping[str, Any], ...] = ()

    @property
    def function(self) -> str:
        """What runs: the image, or the executable."""
        return self.exec or (f"{self.image} ({self.tag})" if self.tag else self.image)

    def __str__(self) -> str:
        where = f' of package "{self.package}"' if self.package else ""
        return f"{self.stage}[{self.index}]{where}: {self.function}"


def parse_steps(kptfile: Mapping[str, Any], package: str) -> tuple[Step, ...]:
    """Return the steps of one package: its mutators, then its validators.

    Raises:
        InvalidPipelineError: The pipeline is not what a Kptfile may have.
    """
    pipeline = kptfile.get("pipeline")
    if pipeline is None:
        return ()
    if not isinstance(pipeline, Mapping):
        raise InvalidPipelineError("The pipeline of the Kptfile is no mapping")
    return tuple(step for stage in Stage for step in _steps(pipeline.get(stage.value), stage, package))


def _steps(given: Any, stage: Stage, package: str) -> Iterator[Step]:
    if given is None:
        return
    if not isinstance(given, list):
        raise InvalidPipelineError(f"pipeline.{stage} is no list")
    for index, item in enumerate(given):
        where = f"pipeline.{stage}[{index}]"
        if not isinstance(item, Mapping):
            raise InvalidPipelineError(f"{where} is no mapping")
        yield _step(item, Step(package, stage, index), where)


def _step(item: Mapping[str, Any], bare: Step, where: str) -> Step:
    image, executable = _text(item, "image", where), _text(item, "exec", where)
    if bool(image) == bool(executable):
        raise InvalidPipelineError(f"{where} must have exactly one of image and exec")
    path, values = _text(item, "configPath", where), item.get("configMap")
    if values is not None and not isinstance(values, Mapping):
        raise InvalidPipelineError(f"{where}.configMap is no mapping")
    if path and values:
        raise InvalidPipelineError(f"{where} has both configPath and configMap")
    if path.startswith("/") or ".." in path.split("/"):
        raise InvalidPipelineError(f"{where}.configPath {path!r} leads out of the package")
    return Step(
        bare.package,
        bare.stage,
        bare.index,
        _text(item, "name", where),
        image,
        _text(item, "tag", where),
        executable,
        path,
        values,
        _selectors(item.get("selectors"), f"{where}.selectors"),
        _selectors(item.get("exclude"), f"{where}.exclude"),
    )


def _text(item: Mapping[str, Any], field: str, where: str) -> str:
    value = item.get(field)
    if value is not None and not isinstance(value, str):
        raise InvalidPipelineError(f"{where}.{field} is no string")
    return value or ""


def _selectors(given: Any, where: str) -> tuple[Mapping[str, Any], ...]:
    if given is None:
        return ()
    if not isinstance(given, list) or not all(isinstance(each, Mapping) for each in given):
        raise InvalidPipelineError(f"{where} is no list of selectors")
    return tuple(given)


_FIELDS = ("apiVersion", "kind", "name", "namespace")


def select(
    resources: Sequence[Resource],
    selectors: Sequence[Mapping[str, Any]],
    exclude: Sequence[Mapping[str, Any]],
) -> list[Resource]:
    """Return the resources that a step sees: those of any selector, without those of any exclusion.

    Equality only. An empty exclusion excludes nothing.

    Source: kpt internal/fnruntime/runner.go, SelectInput and ShouldExclude.
    Differs: a resource of two selectors is passed once.
    """
    return [
        resource
        for resource in resources
        if (not selectors or any(_matches(selector, resource) for selector in selectors))
        and not any(_is_said(each) and _matches(each, resource) for each in exclude)
    ]


def _is_said(selector: Mapping[str, Any]) -> bool:
    return any(selector.get(field) for field in (*_FIELDS, "labels", "annotations"))


def _matches(selector: Mapping[str, Any], resource: Resource) -> bool:
    have = (resource.api_version, resource.kind, resource.name, resource.namespace)
    if any(selector.get(field) not in (None, "", value) for field, value in zip(_FIELDS, have, strict=True)):
        return False
    labels = resource.metadata.get("labels")
    return _contains(labels, selector.get("labels")) and _contains(
        resource.annotations, selector.get("annotations")
    )


def _contains(have: Any, wanted: Any) -> bool:
    if not isinstance(wanted, Mapping) or not wanted:
        return True
    return isinstance(have, Mapping) and all(have.get(key) == value for key, value in wanted.items())
