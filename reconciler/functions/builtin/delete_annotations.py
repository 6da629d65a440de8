"""delete-annotations: take annotations away by their keys."""

from collections.abc import Iterator

from reconciler.functions.builtin.call import Call, FunctionFailedError, file_of, info
from reconciler.functions.resource import Resource
from reconciler.functions.runtime import FunctionResult


def delete_annotations(call: Call) -> Iterator[FunctionResult]:
    """Delete the annotations whose keys `data.annotationKeys` lists, separated by commas.

    Source: krm-functions-catalog contrib/functions/ts/delete-annotations.
    """
    keys = [key.strip() for key in call.data.get("annotationKeys", "").split(",") if key.strip()]
    if not keys:
        raise FunctionFailedError("failed to configure function: `annotationKeys` is required")
    found = [result for resource in call.items for result in _delete(resource, keys)]
    yield info(f"Number of annotations removed: {len(found)}")
    yield from found


def _delete(resource: Resource, keys: list[str]) -> Iterator[FunctionResult]:
    annotations = resource.annotations
    for key in keys:
        if key in annotations:
            del annotations[key]
            message = f"Annotation: [{key}] removed from resource: [{resource.name}]"
            yield FunctionResult(message, "info", file=file_of(resource))
    if not annotations and "annotations" in resource.metadata:
        del resource.metadata["annotations"]
