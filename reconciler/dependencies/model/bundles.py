"""Names and labels of the installations of bundles."""

import hashlib
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, Protocol

import orjson

from reconciler.dependencies.model.cluster import SlotKind
from reconciler.dependencies.model.packages import Candidate, Install, Pairs, Share

_TEMPLATE = re.compile(r"\$\{\s*([^{}]*?)\s*\}|\{\{\s*([^{}]*?)\s*\}\}")


class UnknownVariableError(Exception):
    """A value is known only when the bundle runs: an output of a dependency, for example."""


def written_values(values: Mapping[str, Any]) -> Pairs:
    """Return parameter values as a sorted tuple of names and canonical JSON."""
    written = {
        name: orjson.dumps(value, option=orjson.OPT_SORT_KEYS, default=str).decode()
        for name, value in values.items()
    }
    return tuple(sorted(written.items()))


def template_variables(
    candidate: Candidate | None, install: Install | None, name: str = "", namespace: str = ""
) -> dict[str, Any]:
    """Return the variables of templates in what a bundle gives its dependencies, with their values.

    The parameters are those of a user's installation; without a value, they have their default.

    Args:
        candidate: The bundle.
        install: The user's installation of it, if one is there.
        name: The name of its installation.
        namespace: The namespace of its installation.
    """
    variables: dict[str, Any] = {"installation.name": name, "installation.namespace": namespace}
    if install is not None and candidate is not None:
        defaults = {parameter: orjson.loads(text) for parameter, text in candidate.defaults}
        values = defaults | own_parameters(install)
        variables |= {f"bundle.parameters.{parameter}": value for parameter, value in values.items()}
    return variables


def own_parameters(install: Install) -> dict[str, Any]:
    """Return the parameters of an installation itself, without those that it gives its dependencies."""
    return {name: value for name, value in _parameters(install).items() if "#" not in name}


def dependency_parameters(install: Install, alias: str) -> dict[str, Any]:
    """Return the parameters that an installation gives one of its dependencies, as `alias#name`."""
    split = ((word.partition("#"), value) for word, value in _parameters(install).items())
    return {name: value for (own, mark, name), value in split if mark and own == alias}


def render_parameter(text: str, variables: Mapping[str, Any]) -> Any:
    """Return the value of a parameter with its templates replaced.

    Raises:
        UnknownVariableError: A template has another variable.
    """
    return _rendered(orjson.loads(text), variables)


def render_text(text: str, variables: Mapping[str, Any]) -> Any:
    """Return a text with its templates replaced; a template alone has any value.

    Raises:
        UnknownVariableError: A template has another variable.
    """
    whole = _TEMPLATE.fullmatch(text)
    if whole:
        return _variable(whole, variables)
    return _TEMPLATE.sub(lambda template: str(_variable(template, variables)), text)


def _parameters(install: Install) -> dict[str, Any]:
    return dict(orjson.loads(dict(install.inherit).get("parameters", "{}")))


def _rendered(value: Any, variables: Mapping[str, Any]) -> Any:
    if isinstance(value, dict):
        return {name: _rendered(item, variables) for name, item in value.items()}
    if isinstance(value, list):
        return [_rendered(item, variables) for item in value]
    return render_text(value, variables) if isinstance(value, str) else value


def _variable(template: re.Match[str], variables: Mapping[str, Any]) -> Any:
    name = template[1] if template[1] is not None else template[2]
    if name not in variables:
        raise UnknownVariableError(name)
    return variables[name]


SHARING_GROUP: Final = "sh.porter.SharingGroup"
"""The label with the group that shares an installation."""

_SUFFIX = 6
_INPUTS = "inputs="


class BundleSlot(Protocol):
    """The slot of an installation, in a resolution or in a lock."""

    @property
    def kind(self) -> str:
        """The kind of slot: shared, or for one parent."""

    @property
    def path(self) -> tuple[str, ...]:
        """The group and labels of a shared installation, or the way of aliases to an exclusive one."""


def bundle_name(package: str, slot: BundleSlot) -> str:
    """Return the name of a bundle's installation: `<parent>-<alias>` for one parent's own.

    A shared installation is named after its group and its bundle, so that the name does not depend on the
    parents; a short digest distinguishes labels and inputs.
    """
    if slot.kind == SlotKind.FOR:
        return "-".join(slot.path)
    group, words = sharing_labels(slot)
    inputs = slot.path[-1:] if slot.path and slot.path[-1].startswith(_INPUTS) else ()
    parts = [group, package.rpartition("/")[2]]
    if words or inputs:
        text = orjson.dumps([sorted(words.items()), *inputs])
        parts.append(hashlib.sha256(text).hexdigest()[:_SUFFIX])
    return "-".join(part for part in parts if part)


def sharing_labels(slot: BundleSlot) -> tuple[str, dict[str, str]]:
    """Return the sharing group and the labels that a shared instance is found by."""
    if slot.kind != SlotKind.SHARED:
        return "", {}
    path = slot.path
    group = path[0] if path and "=" not in path[0] else ""
    words = [word.partition("=") for word in path[bool(group) :] if not word.startswith(_INPUTS)]
    return group, {name: value for name, _, value in sorted(words)}


def rendered_labels(share: Share, name: str, namespace: str) -> dict[str, str]:
    """Return the labels of a sharing rule for the installation of the bundle that has it."""
    variables = {"installation.name": name, "installation.namespace": namespace}
    labels = dict(share.labels)
    for label, text in share.labels:
        with suppress(UnknownVariableError):
            labels[label] = str(render_text(text, variables))
    return labels
