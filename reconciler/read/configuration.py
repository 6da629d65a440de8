"""Parse `reconciler.yaml` and the environment into the policy of one instance."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import is_dataclass, replace
from functools import cache
from typing import Any, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict

from reconciler.api.meta import LabelSelector, SelectorError, compile_selector
from reconciler.api.validation import FieldError, disk_fields, field_text, parse_model
from reconciler.base.errors import ConfigurationError, Location
from reconciler.base.lazy import regex
from reconciler.base.reasons import Reason
from reconciler.base.suggestions import suggest
from reconciler.base.text import plural
from reconciler.krm.values import value_at
from reconciler.krm.yaml import Document, YamlError, load_documents
from reconciler.policy import SETTINGS, ApprovalRule, Policy, ReviewRule, RolloutPolicy
from reconciler.policy.rollouts import Wave
from reconciler.policy.settings import clean_directory

FILE = "reconciler.yaml"
PREFIX = "RECONCILER_"
KIND = "Reconciler"

_INIT_HINT = "Run `reconciler init` in the root of the control repository to write one."
_INSTANCE = regex(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


class ConfigMetadata(BaseModel):
    """Metadata of the configuration."""

    model_config = SETTINGS | ConfigDict(frozen=True)

    name: str = ""
    """Name of the instance, unless `spec.instance` gives it."""
    labels: dict[str, str] = {}
    """Not used."""
    annotations: dict[str, str] = {}
    """Not used."""


class Configuration(BaseModel):
    """One instance of the reconciler: `reconciler.yaml` of the control repository."""

    model_config = SETTINGS | ConfigDict(frozen=True)

    api_version: Literal["reconciler.dev/v1alpha1"]
    """API version of the configuration."""
    kind: Literal["Reconciler"]
    """Kind of the configuration."""
    metadata: ConfigMetadata = ConfigMetadata()
    """Name of the instance."""
    spec: Policy = Policy()
    """Settings."""


def parse_configuration(data: bytes | None, path: str, environment: Mapping[str, str]) -> Policy:
    """Return the policy that a configuration file and the environment make; the environment wins.

    Variables such as `RECONCILER_SUSPEND` override settings of the file; `data` is None without a file.

    Raises:
        ConfigurationError: The file is missing, is not what it should be, or has no instance name; or a
            variable allows deletions.
    """
    if data is None:
        raise ConfigurationError(f"There is no {path} in the control repository", hint=_INIT_HINT)
    document = _load(data, path)
    # Consent to deletions is given in Git, where others review it.
    for setting in _IN_GIT_ONLY:
        if (variable := variable_name(setting)) in environment:
            name = ".".join(setting)
            message = "No variable may allow deletions: that is decided in Git only"
            hint = f"Unset it; write spec.{name} in the configuration."
            raise ConfigurationError(message, location=Location(f"${variable}"), hint=hint)
    value = _overridden(document.value, environment)
    configuration = parse_model(Configuration, value)
    zone = _zone_faults(value)
    source = _Source(document, path, environment)
    if isinstance(configuration, tuple):
        raise source.error((*configuration, *zone))
    if zone:
        raise source.error(zone)
    instance, places = _instance(configuration, source), _manifest_locations(configuration.spec, source)
    policy = replace(configuration.spec, instance=instance, config_path=path, manifest_locations=places)
    return _with_selectors(_with_lines(policy, document), source)


class _Source(NamedTuple):
    """The file and the variables that a configuration is of."""

    document: Document
    path: str
    environment: Mapping[str, str]

    def at(self, *field: str | int) -> Location:
        return Location(self.path, *self.document.mark(field))

    def error(self, faults: tuple[FieldError, ...]) -> ConfigurationError:
        placed = sorted((self._place(fault), fault.message, fault.hint) for fault in faults)
        errors = [ConfigurationError(message, location=where, hint=hint) for where, message, hint in placed]
        return ConfigurationError.join(errors) if len(errors) > 1 else errors[0]

    def _place(self, fault: FieldError) -> Location:
        # A variable holds all items of a list.
        setting = [step for step in fault.path[1:] if isinstance(step, str)]
        if (variable := variable_name(setting)) in self.environment:
            return Location(f"${variable}")
        return (
            Location(self.path, *self.document.key_mark(fault.path)) if fault.of_key else self.at(*fault.path)
        )


def _manifest_locations(policy: Policy, source: _Source) -> dict[str, Location]:
    if (variable := variable_name(("manifests",))) in source.environment:
        return dict.fromkeys(policy.manifests, Location(f"${variable}"))
    places = source.document.value.get("spec", {}).get("manifests", ())
    return {clean_directory(place): source.at("spec", "manifests", n) for n, place in enumerate(places)}


def _zone_faults(configuration: Any) -> tuple[FieldError, ...]:
    """Return the error of a time zone that this system does not know, whatever else is wrong."""
    place = ("spec", "pullRequests", "timezone")
    name = value_at(configuration, *place)
    if name in ("UTC", "") or not isinstance(name, str):
        return ()
    # Few configurations have a schedule, and all commands start by reading one.
    from zoneinfo import ZoneInfo, available_timezones  # noqa: PLC0415

    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        hint = suggest(name, available_timezones(), otherwise=_ZONE_HINT, most=1)
        message = f"{field_text(place)}: this system knows no time zone {name}"
        return (FieldError(place, Reason.INVALID_MANIFEST, message, hint),)
    return ()


_ZONE_HINT = "Write a name of the IANA database, such as Europe/Berlin. The system needs its tzdata."


def _with_lines(policy: Policy, document: Document) -> Policy:
    """Return the policy with the line of each rule of `verify`, and of the last approval of each rollout."""
    rollouts = tuple(
        replace(rollout, waves=(*rollout.waves[:-1], replace(rollout.waves[-1], approval_line=line)))
        for number, rollout in enumerate(policy.rollouts)
        for place in [("spec", "rollouts", number, "waves", len(rollout.waves) - 1, "gates", "approval")]
        for line, _ in [document.mark(place)]
    )
    marks = (document.mark(("spec", "verify", number, "prefix")) for number in range(len(policy.verify)))
    return replace(
        policy,
        rollouts=rollouts,
        verify=tuple(replace(rule, line=line) for rule, (line, _) in zip(policy.verify, marks, strict=True)),
    )


def _load(data: bytes, path: str) -> Document:
    try:
        documents = load_documents(data)
    except YamlError as error:
        where = Location(path, error.line, error.column)
        raise ConfigurationError(error.message, location=where, hint=error.hint) from error
    if len(documents) != 1:
        message = f"One {KIND} is expected, but there are {plural(len(documents), 'document')}"
        where = Location(path, documents[1].line if documents else 0)
        raise ConfigurationError(message, location=where, hint="" if documents else _INIT_HINT)
    return documents[0]


Rule = TypeVar("Rule", ApprovalRule, ReviewRule, RolloutPolicy, Wave)


def _with_selectors(policy: Policy, source: _Source) -> Policy:
    """Return the policy with the selectors of its rules in canonical form.

    Raises:
        ConfigurationError: A selector that Kubernetes would refuse.
    """

    def checked(rules: Iterable[Rule], *place: str | int) -> tuple[Rule, ...]:
        return tuple(
            replace(rule, selector=_checked_selector(rule.selector, (*place, number), source))
            for number, rule in enumerate(rules)
        )

    requests = policy.pull_requests
    rollouts = (
        replace(rollout, waves=checked(rollout.waves, "rollouts", number, "waves"))
        for number, rollout in enumerate(policy.rollouts)
    )
    return replace(
        policy,
        rollouts=checked(rollouts, "rollouts"),
        approval=replace(policy.approval, auto=checked(policy.approval.auto, "approval", "auto")),
        pull_requests=replace(requests, reviews=checked(requests.reviews, "pullRequests", "reviews")),
    )


def _checked_selector(
    value: Mapping[str, Any], rule: tuple[str | int, ...], source: _Source
) -> dict[str, Any]:
    field = ("spec", *rule, "selector")
    selector = parse_model(LabelSelector, value)
    if isinstance(selector, tuple):
        raise source.error(tuple(_below(field, error) for error in selector))
    try:
        compile_selector(selector)
    except SelectorError as error:
        raise ConfigurationError(str(error), location=source.at(*field, *error.field)) from error
    return selector.model_dump(exclude_none=True)


def _below(field: tuple[str | int, ...], error: FieldError) -> FieldError:
    """Return the error of a nested model with its path from the top of the document."""
    nested, whole = field_text(error.path), field_text((*field, *error.path))
    head = error.message.removesuffix(f" field {nested}")
    is_last = head != error.message
    message = f"{head} field {whole}" if is_last else error.message.replace(nested, whole, 1)
    return error._replace(path=(*field, *error.path), message=message)


def _instance(configuration: Configuration, source: _Source) -> str:
    """Return the instance's name: required, given once, and not for the environment to change."""
    in_spec = configuration.spec.instance if "instance" in source.document.value.get("spec", {}) else ""
    named = {configuration.metadata.name, in_spec} - {""}
    if not named:
        hint = "Add metadata.name. Choose it once: packages are owned under this name."
        raise ConfigurationError("Missing the instance's name", location=source.at("metadata"), hint=hint)
    name = min(named)
    where = source.at("spec", "instance") if in_spec else source.at("metadata", "name")
    if len(named) > 1:
        message = f"metadata.name and spec.instance differ: {' and '.join(sorted(named))}"
        raise ConfigurationError(message, location=where, hint="Give the instance's name once.")
    if not _INSTANCE.fullmatch(name):
        hint = "Use at most 63 lower-case letters, digits and dashes; it becomes part of branch names."
        raise ConfigurationError(f"{name!r} cannot name an instance", location=where, hint=hint)
    if source.environment.get(f"{PREFIX}INSTANCE", name) != name:
        hint = "Unset it: packages are owned under the instance's name, which cannot be changed from outside."
        raise ConfigurationError(f"{PREFIX}INSTANCE is not {name}", location=where, hint=hint)
    return name


def _overridden(value: object, environment: Mapping[str, str]) -> object:
    """Return the document with the settings that the environment names laid over it."""
    if not isinstance(value, Mapping) or not isinstance(value.get("spec", {}), Mapping):
        return value
    if not any(name.startswith(PREFIX) for name in environment):
        return value
    spec = dict(value.get("spec", {}))
    for path, variable in _variables():
        text = environment.get(variable)
        if text is not None and path != ("instance",):
            _lay(spec, path, text)
    return {**value, "spec": spec}


def _lay(spec: dict[str, Any], path: tuple[str, ...], text: str) -> None:
    *above, last = path
    for step in above:
        below = spec.get(step, {})
        if not isinstance(below, Mapping):
            return
        spec[step] = dict(below)
        spec = spec[step]
    separator = {"manifests": ":", "labels": ",", "schedule": ";"}.get(last)
    spec[last] = text.split(separator) if separator and text else [] if separator else text


def variable_name(path: Iterable[str | int]) -> str:
    """Return the environment variable of a setting: `snapshot.path` is RECONCILER_SNAPSHOT_PATH."""
    return PREFIX + "_".join(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", str(step)).upper() for step in path)


_NOT_ONE_VARIABLE = (
    *("forges", "credentials", "addresses", "verify", "consents", "auto", "reviews", "rollouts"),
    *("images", "exec", "network", "engineArguments"),
    *("kinds", "registries", "mirrors"),
)
"""Settings that are lists or mappings: the file alone holds them."""
_IN_GIT_ONLY = (
    ("deletions", "share"),
    ("deletions", "minimum"),
    ("deletions", "count"),
    ("snapshot", "maxAge"),
)
"""Settings that keep packages from being deleted: no variable changes them."""


def variable_paths() -> tuple[tuple[str, ...], ...]:
    """Return the paths of the settings that a variable overrides."""
    return tuple(path for path in setting_paths(Policy) if path not in _IN_GIT_ONLY)


@cache
def _variables() -> tuple[tuple[tuple[str, ...], str], ...]:
    return tuple((path, variable_name(path)) for path in variable_paths())


@cache
def setting_paths(model: Any) -> tuple[tuple[str, ...], ...]:
    """Return the paths of every setting with one value, or a list of texts."""
    paths: list[tuple[str, ...]] = []
    for name, annotation in disk_fields(model):
        if isinstance(annotation, type) and is_dataclass(annotation):
            paths += [(name, *rest) for rest in setting_paths(annotation)]
        elif name not in _NOT_ONE_VARIABLE:
            paths.append((name,))
    return tuple(paths)
