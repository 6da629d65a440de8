"""The configuration of one instance: reconciler.yaml and the environment, parsed into a policy."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel

from reconciler.api.configuration import (
    KIND,
    AutoApprovalSettings,
    Configuration,
    DependencySettings,
    FunctionSettings,
    PullRequestSettings,
    Spec,
)
from reconciler.api.validation import FieldError, parse_model
from reconciler.errors import ConfigurationError, Location
from reconciler.expand.selectors import SelectorError, compile_selector
from reconciler.krm.yaml import Document, YamlError, load_documents
from reconciler.policy import (
    ApprovalRule,
    CommitPolicy,
    ContainerPolicy,
    CredentialRule,
    DeletionGuard,
    DeliveryPolicy,
    ForgeRule,
    FunctionPolicy,
    GroupBy,
    Limits,
    LockPolicy,
    Policy,
    ResolutionPolicy,
    WriteLimits,
)

FILE = "reconciler.yaml"
PREFIX = "RECONCILER_"

_INIT_HINT = "Run `reconciler init` in the root of the control repository to write one."
_INSTANCE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def parse_configuration(data: bytes | None, path: str, environment: Mapping[str, str]) -> Policy:
    """Return the policy that a configuration file and the environment make; the environment wins.

    Args:
        data: The file's content; None if it does not exist.
        path: Where it stands in the control repository.
        environment: Variables named `RECONCILER_` and a setting, `RECONCILER_DELETIONS_SHARE` say.

    Raises:
        ConfigurationError: The file is missing, is not what it should be, or has no instance name.
    """
    if data is None:
        raise ConfigurationError(f"There is no {path} in the control repository", hint=_INIT_HINT)
    document = _load(data, path)
    merged = _overridden(document.value, environment)
    found = parse_model(Configuration, merged)
    if isinstance(found, tuple):
        raise _error(found, document, path, environment)
    policy = _policy(found.spec, _instance(found, document, path, environment), path)
    _check_supported(policy, document, path)
    _check_selectors(found.spec, document, path)
    return policy


def configuration_schema() -> dict[str, Any]:
    """Return the JSON schema of reconciler.yaml."""
    return Configuration.model_json_schema(by_alias=True)


def _load(data: bytes, path: str) -> Document:
    try:
        documents = load_documents(data)
    except YamlError as error:
        where = Location(path, error.line, error.column)
        raise ConfigurationError(error.message, location=where, hint=error.hint) from error
    if len(documents) != 1:
        message = f"One {KIND} is expected, but there are {len(documents)} documents"
        where = Location(path, documents[1].line if documents else 0)
        raise ConfigurationError(message, location=where, hint="" if documents else _INIT_HINT)
    return documents[0]


def _check_supported(policy: Policy, document: Document, path: str) -> None:
    """Refuse a choice that this version knows and cannot honour yet, rather than ignore it.

    Raises:
        ConfigurationError: The first such choice.
    """
    choices = {
        ("pullRequests", "groupBy"): policy.group_by is GroupBy.WAVE and policy.group_by,
    }
    for field, choice in choices.items():
        if choice:
            where = Location(path, *document.mark(("spec", *field)))
            message = f"spec.{'.'.join(field)}: {choice} is not supported by this version"
            raise ConfigurationError(message, location=where, hint="Leave it out.")


def _check_selectors(spec: Spec, document: Document, path: str) -> None:
    """Refuse a selector that Kubernetes would refuse.

    Raises:
        ConfigurationError: The first such selector.
    """
    for index, rule in enumerate(spec.approval.auto):
        try:
            compile_selector(rule.selector)
        except SelectorError as error:
            field = ("spec", "approval", "auto", index, "selector", *error.field)
            raise ConfigurationError(str(error), location=Location(path, *document.mark(field))) from error


def _instance(
    configuration: Configuration, document: Document, path: str, environment: Mapping[str, str]
) -> str:
    """Return the instance's name: required, given once, and not for the environment to change."""
    named = {configuration.metadata.name, configuration.spec.instance} - {""}
    if not named:
        where = Location(path, *document.mark(("metadata",)))
        hint = "Add metadata.name. Choose it once: packages are owned under this name."
        raise ConfigurationError("Missing the instance's name", location=where, hint=hint)
    name = min(named)
    where = Location(
        path, *document.mark(("spec", "instance") if configuration.spec.instance else ("metadata", "name"))
    )
    if len(named) > 1:
        raise ConfigurationError(
            f"metadata.name and spec.instance differ: {' and '.join(sorted(named))}",
            location=where,
            hint="Give the instance's name once.",
        )
    if not _INSTANCE.fullmatch(name):
        hint = "Use at most 63 lower-case letters, digits and dashes; it becomes part of branch names."
        raise ConfigurationError(f"{name!r} cannot name an instance", location=where, hint=hint)
    if environment.get(f"{PREFIX}INSTANCE", name) != name:
        hint = "Packages are owned under the instance's name; it cannot be changed from outside."
        raise ConfigurationError(f"{PREFIX}INSTANCE is not {name}", location=where, hint=hint)
    return name


def _overridden(value: object, environment: Mapping[str, str]) -> object:
    """Return the document with the settings that the environment names laid over it."""
    if not isinstance(value, Mapping) or not isinstance(value.get("spec", {}), Mapping):
        return value
    spec = dict(value.get("spec", {}))
    for path in _settings(Spec):
        text = environment.get(variable_name(path))
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
    separator = {"manifests": ":", "labels": ","}.get(last)
    spec[last] = text.split(separator) if separator else text


def variable_name(path: Iterable[str | int]) -> str:
    """Return the environment variable of a setting: `deletions.share` is RECONCILER_DELETIONS_SHARE."""
    return PREFIX + "_".join(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", str(step)).upper() for step in path)


_NOT_ONE_VARIABLE = (
    *("forges", "credentials", "addresses", "consents", "auto"),
    *("images", "exec", "network", "engine_arguments"),
)
"""Settings that are lists or mappings: the file alone holds them."""


def _settings(model: type[BaseModel]) -> tuple[tuple[str, ...], ...]:
    """Return the paths of every setting that one variable can hold."""
    found: list[tuple[str, ...]] = []
    for name, info in model.model_fields.items():
        alias = info.alias or name
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            found += [(alias, *rest) for rest in _settings(info.annotation)]
        elif name not in _NOT_ONE_VARIABLE:
            found.append((alias,))
    return tuple(found)


def _error(
    faults: tuple[FieldError, ...], document: Document, path: str, environment: Mapping[str, str]
) -> ConfigurationError:
    def place(fault: FieldError) -> Location:
        if environment.get(variable := variable_name(fault.path[1:])):
            return Location(f"${variable}")
        mark = document.key_mark(fault.path) if fault.of_key else document.mark(fault.path)
        return Location(path, *mark)

    first, *others = faults
    message = "\n".join([first.message, *(f"{place(fault)}: {fault.message}" for fault in others)])
    hints = list(dict.fromkeys(fault.hint for fault in faults if fault.hint))
    return ConfigurationError(message, location=place(first), hint=" ".join(hints))


def _write_limits(settings: PullRequestSettings) -> WriteLimits:
    return WriteLimits(settings.writes_per_minute, settings.writes_per_hour, float(settings.max_wait))


def _policy(spec: Spec, instance: str, path: str) -> Policy:
    return Policy(
        instance=instance,
        default_namespace=spec.default_namespace,
        manifest_paths=tuple(sorted(set(spec.manifests))),
        snapshot_path=spec.snapshot.path,
        open_on=spec.pull_requests.open_on,
        publish_tags=spec.publish.tags,
        suspend=spec.suspend,
        snapshot_max_age_s=spec.snapshot.max_age,
        deletions=DeletionGuard(**spec.deletions.model_dump()),
        commits=CommitPolicy(**spec.commits.model_dump()),
        limits=Limits(**spec.limits.model_dump()),
        unavailable=spec.unavailable,
        consents=spec.consents,
        config_path=path,
        group_by=spec.pull_requests.group_by,
        forges=tuple(ForgeRule(rule.prefix, rule.type, rule.api) for rule in spec.forges),
        credentials=tuple(CredentialRule(**rule.model_dump()) for rule in spec.credentials),
        addresses=spec.addresses,
        writes=_write_limits(spec.pull_requests),
        labels=tuple(sorted(set(spec.pull_requests.labels))),
        dashboard=spec.pull_requests.dashboard,
        approvals=tuple(map(_approval_rule, spec.approval.auto)),
        functions=_function_policy(spec.functions),
        delivery=DeliveryPolicy(spec.dependencies.path, spec.dependencies.shared_namespace),
        resolution=_resolution(spec.dependencies),
        lock=LockPolicy(spec.lock.mode, spec.lock.reviewed.strict),
        on_conflict=spec.on_conflict,
    )


def _resolution(settings: DependencySettings) -> ResolutionPolicy:
    return ResolutionPolicy(
        discovery=settings.discovery,
        allow_downgrade=settings.allow_downgrade,
        reconsider=settings.reconsider,
        steps=settings.steps,
        **settings.select.model_dump(),
    )


def _approval_rule(settings: AutoApprovalSettings) -> ApprovalRule:
    selector = settings.selector.model_dump(by_alias=True, exclude_none=True)
    return ApprovalRule(selector, tuple(sorted(set(settings.checks))), settings.edited)


def _function_policy(settings: FunctionSettings) -> FunctionPolicy:
    container = ContainerPolicy(
        engine=settings.runtime,
        arguments=settings.engine_arguments,
        network=tuple(sorted(set(settings.network))),
        parallel=settings.parallel,
    )
    return FunctionPolicy(
        claim_floating=settings.claim_floating,
        compatible=settings.compatible,
        exec=settings.exec,
        images=settings.images,
        container=container,
        timeout_s=settings.timeout,
        memory_bytes=settings.memory_bytes,
        output_bytes=settings.output_bytes,
        starlark_steps=settings.starlark_steps,
    )
