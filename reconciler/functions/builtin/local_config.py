"""remove-local-config-resources: leave out what is for tools alone."""

from collections.abc import Iterator

from reconciler.functions.builtin.call import Call, file_of, info
from reconciler.functions.resource import LOCAL_CONFIG
from reconciler.functions.runtime import FunctionResult


def remove_local_config_resources(call: Call) -> Iterator[FunctionResult]:
    """Take out every object whose local-config annotation says true. For an output stage.

    Source: krm-functions-catalog functions/go/remove-local-config-resources/main.go.
    """
    gone = [item for item in call.items if str(item.annotations.get(LOCAL_CONFIG, "")).lower() == "true"]
    call.items[:] = [item for item in call.items if item not in gone]
    if not gone:
        yield FunctionResult("found no local config resources to prune", "warning")
        return
    yield info(f"Number of resources pruned: {len(gone)}")
    for resource in gone:
        yield FunctionResult(f"Resource name: [{resource.name}]", "info", file=file_of(resource))
