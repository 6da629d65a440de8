"""The functions that run in this process, by their names in the catalog."""

from collections.abc import Mapping
from typing import Final

from reconciler.functions.builtin.apply_replacements import apply_replacements
from reconciler.functions.builtin.call import Builtin
from reconciler.functions.builtin.ensure_name_substring import ensure_name_substring
from reconciler.functions.builtin.gcp import enable_gcp_services, generate_folders
from reconciler.functions.builtin.metadata import delete_annotations, set_annotations, set_labels
from reconciler.functions.builtin.resources import (
    gen_pkg_context,
    remove_local_config_resources,
    upsert_resource,
)
from reconciler.functions.builtin.search_replace import search_replace
from reconciler.functions.builtin.set_image import set_image
from reconciler.functions.builtin.set_namespace import set_namespace
from reconciler.functions.builtin.setters import apply_setters, create_setters, list_setters, set_project_id

BUILTINS: Final[Mapping[str, Builtin]] = {
    "apply-replacements": apply_replacements,
    "apply-setters": apply_setters,
    "builtins/gen-pkg-context": gen_pkg_context,
    "create-setters": create_setters,
    "delete-annotations": delete_annotations,
    "enable-gcp-services": enable_gcp_services,
    "ensure-name-substring": ensure_name_substring,
    "generate-folders": generate_folders,
    "list-setters": list_setters,
    "remove-local-config-resources": remove_local_config_resources,
    "search-replace": search_replace,
    "set-annotations": set_annotations,
    "set-image": set_image,
    "set-labels": set_labels,
    "set-namespace": set_namespace,
    "set-project-id": set_project_id,
    "upsert-resource": upsert_resource,
}
