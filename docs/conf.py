"""The documentation site: Sphinx builds it from the pages of this directory (`make docs-site`).

Pages are written for the forge too, so three things are adapted here: links to files outside this directory
lead to the repository, Mermaid blocks become the pictures that `docs/pictures` has of them, and blocks of
text that hold `--help` keep their form.
"""

import hashlib
import os
import re
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

HERE = Path(__file__).resolve().parent
REPOSITORY = os.environ.get("RECONCILER_DOCS_REPOSITORY", "https://github.com/YOUR-ORG/reconciler")
_OUTSIDE = re.compile(r"\]\((?P<up>(?:\.\./)+)(?P<path>[^)#]+)(?P<part>#[^)]*)?\)")
_MERMAID = re.compile(r"^```mermaid\n(?P<source>.*?)^```$", re.MULTILINE | re.DOTALL)

project = "reconciler"
author = "the reconciler authors"
project_copyright = author
extensions = ["myst_parser", "sphinx_copybutton"]
exclude_patterns = ["_build"]
html_theme = "furo"
VERSION = os.environ.get("RECONCILER_DOCS_VERSION", "")
html_title = f"reconciler {VERSION}".strip()
if VERSION == "dev":
    html_theme_options = {
        "announcement": 'These pages are about the next release. <a href="../">Those of the newest one</a>'
    }
myst_heading_anchors = 4
copybutton_prompt_text = r"\$ |> "
copybutton_prompt_is_regexp = True
copybutton_only_copy_prompt_lines = True


def picture_of(source: str) -> str:
    """Return the name of the picture of a Mermaid block, which changes with the block."""
    return f"{hashlib.sha256(source.encode()).hexdigest()[:12]}.svg"


def adapt(_: Sphinx, page: str, text: list[str]) -> None:
    """Adapt a page that was written for the forge to the site.

    Raises:
        ExtensionError: A link leads to no file, or a Mermaid block has no picture.
    """
    folder = (HERE / page).parent

    def outside(link: re.Match[str]) -> str:
        target = (folder / link["up"] / link["path"]).resolve()
        if target.is_relative_to(HERE):
            return link[0]
        if not target.exists():
            message = f"{page}.md: there is no {link['up']}{link['path']}"
            raise ExtensionError(message)
        kind = "tree" if target.is_dir() else "blob"
        return f"]({REPOSITORY}/{kind}/main/{target.relative_to(HERE.parent)}{link['part'] or ''})"

    def picture(block: re.Match[str]) -> str:
        name = picture_of(block["source"])
        if not (HERE / "pictures" / name).exists():
            message = f"{page}.md: a Mermaid block has no picture {name}: run `make docs-pictures`"
            raise ExtensionError(message)
        up = "../" * page.count("/")
        address = f"{up}pictures/{name}"
        return f"[![{_described(block['source'])}]({address})]({address})"

    text[0] = _MERMAID.sub(picture, _OUTSIDE.sub(outside, text[0]))


def _described(source: str) -> str:
    """Return what a picture shows: the title of the block (`accTitle`), for those who cannot see it."""
    title = re.search(r"^\s*accTitle: (.*)$", source, re.MULTILINE)
    return title[1] if title else "Diagram"


def setup(app: Sphinx) -> None:
    """Register what this file adds to Sphinx."""
    app.connect("source-read", adapt)
