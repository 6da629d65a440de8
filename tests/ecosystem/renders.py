"""kpt's recorded cases of `fn render`: the same exit and package come out, or a rule says why not."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.ecosystem.render_rules import Render, unexplained
from tests.ecosystem.session import Session, read_files
from tests.support.merges import is_yaml

EXPECTED = ".expected"
OUT = "out/"
SAVES = b'kpt.dev/save-on-render-failure: "true"'
"""What a render that fails had made is then kept, as kpt keeps it."""


def run_render(session: Session, case: Path) -> None:
    """Render a package as kpt did, and again: the second time changes nothing."""
    given, wanted = session.root / case.name, session.root / "wanted" / case.name
    for directory in (given, wanted):
        shutil.copytree(case, directory, ignore=shutil.ignore_patterns(EXPECTED), symlinks=True)
    patch, settings = case / EXPECTED / "diff.patch", case / EXPECTED / "config.yaml"
    if patch.is_file() and patch.read_text().strip():
        subprocess.run(["git", "apply", str(patch)], cwd=wanted, capture_output=True, check=True)
    config: dict[str, Any] = (yaml.safe_load(settings.read_text()) if settings.is_file() else None) or {}
    before, kpts = read_files(given), read_files(wanted)
    made = {
        path.removeprefix(OUT): data
        for path, data in kpts.items()
        if path.startswith(OUT) and path not in before
    }
    line = ["package", "render", given, "-o", "json"]
    ran = session.run(*line, *(("--out-dir", session.root / "out") if made else ()), allowed=(0, 3, 4))
    after = read_files(session.root / "out" if made else given)
    if made:  # kpt leaves out what is no resource
        after = {path: data for path, data in after.items() if path in made or is_yaml(path)}
    session.keep(case.name, after)
    code, words, output = (config.get(key, "") for key in ("exitCode", "stdErr", "stdOut"))
    render = Render(before, made or kpts, code or 0, words, output, after, ran["code"], ran["text"])
    for difference in unexplained(render):
        session.law(False, f"unlike kpt: {difference}")
    if ran["code"]:
        saves = SAVES in before.get("Kptfile", b"")
        session.law(saves or read_files(given) == before, "half written: a render that failed wrote")
    elif not made:
        session.run(*line)
        session.law(read_files(given) == after, "unsettled: a second render changes the package")
