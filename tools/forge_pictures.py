"""What people see of a fleet on a forge, as pages of HTML: `make report-pictures` takes pictures of them.

Runs on a simulated GitHub write the texts: a pull request with an update and a conflict, the comment of a
check, the issue that lists what waits. They are rendered as a forge renders Markdown, in a style of our own.
"""

import html
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from markdown_it import MarkdownIt

from tests.support.forges.server import Pull, Simulator
from tests.support.guides import Machine, prepared

PAGE = """\
<!-- forge: github acme/fleet acme/blueprints acme/east -->
<!-- given: web-on-forge -->
<!-- given: app-key -->
<!-- given: fleet-on-github -->
"""
"""What has happened before: the guide to GitHub up to its end, `web` in the east."""
STORY = """\
git clone -q https://github.com/acme/blueprints.git
cd blueprints
sed -i 's/nginx:1.27/nginx:1.29/; s/replicas: 1/replicas: 3/' web/deployment.yaml
git commit -q -am "Use nginx 1.29, serve with three" && git tag web/v2 && git push -q origin main web/v2
cd ..
git clone -q https://github.com/acme/east.git
cd east
sed -i 's/replicas: 1/replicas: 5/' web/deployment.yaml
git commit -q -am "The east serves more people" && git push -q origin main
cd ../fleet
git checkout -q -b more && sed -i 's/revision: 1/revison: 1/' manifests/package-variant-sets.yaml
git commit -q -am "Serve the west, too" && git push -q origin more
elsewhere open acme/fleet more "Serve the west, too"
elsewhere workflow .github/workflows/reconciler-check.yml check pull_request more >&2 || true
git checkout -q main && sed -i 's/revision: 1/revision: 2/' manifests/package-variant-sets.yaml
printf '  pullRequests:\n    dashboard: true\n' >> reconciler.yaml
git commit -q -am "Update web, and list what waits" && git push -q origin main
elsewhere workflow .github/workflows/reconciler-apply.yml apply || true
"""
STYLE = Path(__file__).with_name("forge.css").read_text(encoding="utf-8")


def write_pages(directory: Path) -> None:
    """Write a page for the pull request, the comment and the dashboard into a directory."""
    with tempfile.TemporaryDirectory() as folder:
        guide = Path(folder) / "guide.md"
        guide.write_text(PAGE, encoding="utf-8")
        with prepared(guide, Path(folder).resolve() / "machine", os.environ["PATH"]) as machine:
            _tell(STORY, machine)
            (simulator,) = machine.simulators
            pages = _pages(simulator)
    for name, page in pages.items():
        (directory / f"{name}.html").write_text(
            page.replace(simulator.address, "https://github.com"), "utf-8"
        )


def _tell(story: str, machine: Machine) -> None:
    for shown, served in machine.addresses.items():
        story = story.replace(shown, served)
    environment = {
        "HOME": str(machine.home),
        "PATH": machine.path,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": str(machine.home / ".gitconfig-more"),
        **{f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in _ADA.items()},
        **machine.variables,
    }
    subprocess.run(
        ["bash", "-euo", "pipefail"],
        input=story,
        cwd=machine.home,
        env=environment,
        stdout=subprocess.DEVNULL,
        text=True,
        check=True,
    )


_ADA = {"NAME": "Ada", "EMAIL": "ada@example.com"}


def _pages(simulator: Simulator) -> dict[str, str]:
    update = _newest(simulator, "acme/east")
    change = _newest(simulator, "acme/fleet", "more")
    dashboard = _newest(simulator, "acme/fleet", "")
    ((_, comment),) = change.comments.values()
    return {
        "pull-request": _page(update, ("fleet-bot", "fleet-bot opened this"), update.body),
        "check-comment": _page(change, ("ada", "github-actions commented"), comment),
        "dashboard": _page(dashboard, ("fleet-bot", "fleet-bot opened this"), dashboard.body),
    }


def _newest(simulator: Simulator, repository: str, head: str | None = None) -> Pull:
    """Return the newest pull request of a repository, or that of a branch; without a branch, the issue."""
    pulls = simulator.repositories[repository].pulls.values()
    return max((p for p in pulls if head is None or p.head == head), key=lambda pull: pull.number)


def _page(pull: Pull, names: tuple[str, str], text: str) -> str:
    """Return a page with the title of a pull request or issue, and one text below it.

    `names` are who opened it, and who says the text.
    """
    kind, state = ("Draft", "draft") if pull.draft else ("Open", "open")
    branches = f"wants to merge <code>{pull.head}</code> into <code>{pull.base}</code>"
    shown = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    body = MarkdownIt("gfm-like", {"linkify": False}).render(shown).replace("<li>[ ] ", "<li>\N{BALLOT BOX} ")
    body = re.sub(r"(?m)^([+-])(.*)$", _line_of_diff, body)
    return f"""\
<!doctype html>
<meta charset="utf-8">
<title>{html.escape(pull.title)}</title>
<style>{STYLE}</style>
<h1>{html.escape(pull.title)} <span>#{pull.number}</span></h1>
<p class="state"><b class="{state}">{kind}</b> {names[0]} {branches if pull.head else "opened this issue"}</p>
<article><header>{names[1]}</header><section>
{body}</section></article>
"""


def _line_of_diff(line: re.Match[str]) -> str:
    return f'<span class="{"added" if line[1] == "+" else "removed"}">{line[0]}</span>'


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
