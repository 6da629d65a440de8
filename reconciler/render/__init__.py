"""The steps that make one package: update, context, pipeline, injection."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reconciler.render.package import render_packages
    from reconciler.render.rendered import Blocked, Package, Rendered, RenderedVariant

__all__ = ["Blocked", "Package", "Rendered", "RenderedVariant", "render_packages"]


def __getattr__(name: str) -> Any:
    """Import a name on first use: `package update` needs `render.update` alone, and starts faster."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "package" if name == "render_packages" else "rendered"
    return getattr(import_module(f"{__name__}.{module}"), name)
