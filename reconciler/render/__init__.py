"""The steps that make one package: update, context, pipeline, injection."""

from reconciler.render.package import render_packages
from reconciler.render.rendered import Blocked, Package, Rendered, RenderedVariant

__all__ = ["Blocked", "Package", "Rendered", "RenderedVariant", "render_packages"]
