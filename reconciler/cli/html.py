"""`--html`: the report of a command as one page, beside what it prints."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.base.progress import open_task
from reconciler.base.redact import Redactor

if TYPE_CHECKING:
    from reconciler.report.html.model import HtmlReport

html_option = click.option(
    "--html",
    "html_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Also write the report as one HTML page to this file.",
)


def write_page(path: Path, report: "HtmlReport") -> None:
    """Write the page of a report; the environment gives secrets to mask."""
    from reconciler.report.html import html_page

    with open_task("writing the page"):
        text = html_page(report, Redactor.of_environment(os.environ))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
