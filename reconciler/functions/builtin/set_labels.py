"""set-labels: labels on every object, on the pods that it makes, and in what selects them."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from reconciler.functions.builtin.call import Call, FunctionFailedError, info
from reconciler.functions.builtin.slots import find_slots
from reconciler.functions.resource import Resource
from reconciler.functions.runtime import FunctionResult

_CONSTRAINTS: Final = "spec.topologySpreadConstraints[].labelSelector.matchLabels"


class _Rule(NamedTuple):
    """Fields of a kind: those that are made where they are absent, and those that are only overwritten.

    An object whose group is the core group fits every group, as the Go SDK compares them.
    """

    kinds: frozenset[str]
    group: str = ""
    create: tuple[str, ...] = ()
    present: tuple[str, ...] = ()


def _pod(prefix: str) -> str:
    return f"{prefix}.{_CONSTRAINTS}"


_TEMPLATE: Final = "spec.template.metadata.labels"
_SELECTOR: Final = "spec.selector.matchLabels"
_RULES: Final = (
    _Rule(frozenset({"Service", "ReplicationController"}), "", ("spec.selector",)),
    _Rule(frozenset({"ReplicationController"}), "", (_TEMPLATE,), (_pod("spec.template"),)),
    _Rule(
        frozenset({"Deployment", "ReplicaSet", "DaemonSet"}),
        "",
        (_SELECTOR, _TEMPLATE),
        (_pod("spec.template"),),
    ),
    _Rule(
        frozenset({"StatefulSet"}),
        "apps",
        (_SELECTOR, _TEMPLATE, "spec.volumeClaimTemplates[].metadata.labels"),
        (_pod("spec.template"),),
    ),
    _Rule(frozenset({"Job"}), "batch", (_TEMPLATE,), (_SELECTOR, _pod("spec.template"))),
    _Rule(frozenset({"PodDisruptionBudget"}), "policy", (), (_SELECTOR,)),
    _Rule(
        frozenset({"CronJob"}),
        "batch",
        ("spec.jobTemplate.metadata.labels", "spec.jobTemplate.spec.template.metadata.labels"),
        ("spec.jobTemplate.spec.selector.matchLabels", _pod("spec.jobTemplate.spec.template")),
    ),
    _Rule(
        frozenset({"NetworkPolicy"}),
        "networking.k8s.io",
        (),
        (
            "spec.podSelector.matchLabels",
            "spec.ingress[].from[].podSelector.matchLabels",
            "spec.egress[].to[].podSelector.matchLabels",
        ),
    ),
)


def set_labels(call: Call) -> Iterator[FunctionResult]:
    """Set labels and the selectors that depend on them. Selectors are immutable on live Deployments.

    Source: krm-functions-catalog functions/go/set-labels/setlabels/set_labels.go.
    """
    seen = [resource for resource in call.items if not resource.is_local_config]
    if not seen:
        yield info("no input resources")
        return
    labels = _labels(call)
    if not labels:
        yield FunctionResult("no `labels` arguments are given in FunctionConfig", "warning")
        return
    total = sum(_set(resource, labels) for resource in seen)
    yield info(f"set {total} labels in total")


def _labels(call: Call) -> dict[str, str]:
    """Return the labels to set.

    Raises:
        FunctionFailedError: There is no configuration, or it is of another kind.
    """
    kind, version = call.config_kind, call.config_api_version
    if call.config is None or (
        kind == "ConfigMap" and call.config_name == "function-input" and not call.data
    ):
        raise FunctionFailedError("`FunctionConfig` is not given", severity="info")
    group = version.partition("/")[0] if "/" in version else ""
    if kind == "ConfigMap" and version == "v1":
        return _texts((call.config or {}).get("data"), "data")
    if kind == "SetLabels" and group == "fn.kpt.dev":
        return _texts((call.config or {}).get("labels"), "labels")
    raise FunctionFailedError(
        f"unknown FunctionConfig `{kind}.{group}`, expect `SetLabels.fn.kpt.dev` or `ConfigMap.v1`"
    )


def _texts(given: Any, field: str) -> dict[str, str]:
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise FunctionFailedError(_wrong_type(given, field, "map[string]string"))
    for value in given.values():
        if not isinstance(value, str):
            raise FunctionFailedError(_wrong_type(value, field, "string"))
    return dict(sorted(given.items()))


def _wrong_type(value: Any, field: str, wanted: str) -> str:
    """Say it as Go does, so that whoever searches for the message finds it."""
    names = {list: "array", dict: "object", bool: "bool", str: "string"}
    have = names.get(type(value), "number")
    return (
        "unable to convert object to *setlabels.SetLabels with error: json: "
        f"cannot unmarshal {have} into Go struct field SetLabels.{field} of type {wanted}"
    )


def _set(resource: Resource, labels: dict[str, str]) -> int:
    count = _put(resource.value, "metadata.labels", labels, create=True)
    for rule in _RULES:
        if resource.kind not in rule.kinds or not _fits(rule.group, resource.group):
            continue
        count += sum(_put(resource.value, path, labels, create=True) for path in rule.create)
        count += sum(_put(resource.value, path, labels, create=False) for path in rule.present)
    return count


def _fits(wanted: str, have: str) -> bool:
    return not wanted or not have or wanted == have


def _put(value: dict[str, Any], path: str, labels: dict[str, str], *, create: bool) -> int:
    """Write the labels where a path leads, and return how many fields that were."""
    count = 0
    for slot in find_slots(value, path.split("."), create=create):
        found = slot.holder.get(slot.key)
        if found is None and create:
            found = slot.holder[slot.key] = {}
        if not isinstance(found, dict):
            continue
        due = labels if create else {key: text for key, text in labels.items() if key in found}
        found.update(due)
        count += len(due)
    return count
