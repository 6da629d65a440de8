"""Readiness: the gates that a Kptfile sets, and which of them its conditions do not meet."""

from typing import Any

from reconciler.krm.yaml import PACKAGE_LIMITS, YamlError, load_documents


def unmet_gates(kptfile: bytes) -> tuple[str, ...]:
    """Return the readiness gates without a condition that is True, each with why, by condition type.

    Total: what is no Kptfile has no gates.

    Source: porch pkg/cli/commands/rpkg, readiness check of propose and approve.
    """
    try:
        documents = load_documents(kptfile, PACKAGE_LIMITS)
    except YamlError:
        return ()
    value = documents[0].value if documents else None
    conditions = {str(c.get("type", "")): c for c in _entries(value, "status", "conditions")}
    gates = {str(gate.get("conditionType", "")) for gate in _entries(value, "info", "readinessGates")}
    return tuple(
        f"{name}: {_why(conditions.get(name))}"
        for name in sorted(gates - {""})
        if str((conditions.get(name) or {}).get("status")) != "True"
    )


def _why(condition: dict[str, Any] | None) -> str:
    if condition is None:
        return "the package has no such condition"
    return str(condition.get("message") or condition.get("reason") or "it is not True")


def _entries(value: Any, *path: str) -> list[dict[str, Any]]:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []
