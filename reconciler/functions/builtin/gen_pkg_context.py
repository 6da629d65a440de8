"""builtins/gen-pkg-context: the package's own name, as a ConfigMap beside its Kptfile."""

from collections.abc import Iterator

from reconciler.api.kptfile import KPTFILE, PACKAGE_CONTEXT_FILE, PACKAGE_CONTEXT_NAME
from reconciler.functions.builtin.call import Call, info
from reconciler.functions.resource import LOCAL_CONFIG, Resource
from reconciler.functions.runtime import FunctionResult


def gen_pkg_context(call: Call) -> Iterator[FunctionResult]:
    """Write package-context.yaml for the package; further data of an existing one is kept.

    Source: kpt internal/builtins/pkg_context.go.
    Differs: what people added to the ConfigMap stays.
    """
    prefix = f"{call.package}/" if call.package else ""
    kptfile = next((item for item in call.items if item.path == f"{prefix}{KPTFILE}"), None)
    if kptfile is None:
        return
    context = next((item for item in call.items if _is_context(item, prefix)), None)
    if context is None:
        context = Resource(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": PACKAGE_CONTEXT_NAME, "annotations": {LOCAL_CONFIG: "true"}},
                "data": {},
            },
            prefix + PACKAGE_CONTEXT_FILE,
            call.package,
        )
        call.items.append(context)
    data = context.value.get("data")
    context.value["data"] = (data if isinstance(data, dict) else {}) | {"name": kptfile.name}
    yield info("generated package context")


def _is_context(resource: Resource, prefix: str) -> bool:
    return (
        resource.kind == "ConfigMap"
        and resource.name == PACKAGE_CONTEXT_NAME
        and resource.path == prefix + PACKAGE_CONTEXT_FILE
    )
