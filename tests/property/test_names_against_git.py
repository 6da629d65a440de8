"""Names that producers of packages give, judged by Git: what is not refused by name is what Git takes."""

import random
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from reconciler.base.reasons import Reason
from reconciler.functions.charts import RenderedTemplate
from reconciler.functions.pipeline import run_pipeline
from reconciler.functions.protocol import FunctionCall, FunctionRun
from reconciler.git.pack import Pack
from reconciler.git.repository import Mirrors
from reconciler.names.objects import (
    File,
    Files,
    NamesError,
    Signature,
    case_fold_key,
    check_names,
    file_name_error,
    file_path_error,
)
from reconciler.render.update import UpdateRefused, update_package
from reconciler.run.from_chart import VendoredChart, package_with
from tests.support.charts import chart, package
from tests.support.git import Repo, kptfile, make_repository, run
from tests.support.merges import files_of

BOT = Signature("Bot", "bot@example.com", 1_767_225_600)
PARTS = (
    ".git", "git", "GIT", "~1", "~2", ".", " ", ":", "$I", "modules", "attributes", "gitmod", "gi7eba",
    "~1000000", "\u200c", "\u200e", "\ufeff", "\u206a",
    "K", "\u212a", "a", "\\", "\x7f", "\n", "é", "e\u0301", "x" * 250,
)  # fmt: skip
NAMES = (
    "x", "X", "x.yaml", "X.YAML", "y", "é", "e\u0301", "cm.yaml", "configmap_x.yaml", ".git", ".GIT", "git~1",
    "a:b", "a_b", "..", "a\nb", "Kptfile", "kptfile", "x-2", "configmap_x-2.yaml", "l" * 300,
)  # fmt: skip
DRAWS = 120


def test_git_refuses_no_name_that_we_accept(tmp_path: Path) -> None:
    """The judges are `git fsck`, which servers run, and the index, as it is on Windows and macOS."""
    draw = random.Random(3)
    names = {"".join(draw.choices(PARTS, k=draw.randint(1, 4))) for _ in range(4000)}
    names = {name for name in names if "/" not in name and len(name.encode()) < 4000}
    repo = make_repository(tmp_path / "r.git")
    paths: dict[str, str] = {}
    for name in sorted(names):
        blob, raw = repo.blob(name.encode()), name.encode()
        inner = repo.raw_tree((b"100644", b"x", blob))
        trees = (repo.raw_tree((mode, raw, blob)) for mode in (b"100644", b"120000"))
        paths |= dict.fromkeys(trees, name) | {
            inner: f"{name}/x",
            repo.raw_tree((b"40000", raw, inner)): f"{name}/x",
        }

    command = ["git", "fsck", "--strict", "--no-dangling"]
    judged = subprocess.run(command, cwd=repo.path, capture_output=True, text=True, check=False).stderr
    refused = {paths[oid] for oid in re.findall(r"error in tree ([0-9a-f]{40}):", judged)}

    assert len(refused) > 100
    assert {path for path in refused if not file_path_error(path)} == set()
    accepted = sorted(name for name in names if not file_name_error(name))
    assert len(accepted) > 100
    blob = repo.blob(b"x")
    tree = repo.raw_tree(*((b"100644", name.encode(), blob) for name in sorted(accepted, key=str.encode)))
    strict = ("-c", "core.protectNTFS=true", "-c", "core.protectHFS=true")
    run(*strict, "read-tree", tree, cwd=repo.path)
    assert len(run("ls-files", "-z", cwd=repo.path).split("\0")[:-1]) == len(accepted)


class Engine:
    """Runs functions of Python and charts that are rendered already."""

    def __init__(self, *, items: list[Any] | None = None, text: str = "") -> None:
        self.items, self.text = items or [], text

    def can_run(self, _: FunctionCall) -> str:
        return ""

    def run(self, call: FunctionCall) -> FunctionRun:
        charts = tuple((RenderedTemplate("web/templates/a.yaml", self.text),) for _ in call.charts)
        return FunctionRun([*call.items, *self.items], charts=charts)


def resource(name: str, path: str = "") -> dict[str, Any]:
    annotations = {"annotations": {"internal.config.kubernetes.io/path": path}} if path else {}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **annotations}}


def draw_paths(draw: random.Random, names: Sequence[str] = NAMES) -> list[str]:
    return ["/".join(draw.choices(names, k=draw.choice((1, 1, 2)))) for _ in range(draw.randint(1, 4))]


class Made(NamedTuple):
    """The files that a producer made, and those that were there before."""

    files: Files
    before: Files = MappingProxyType({})


def _pipeline(files: Files, engine: Engine) -> Made:
    result = run_pipeline(files, [engine])
    if result.error:
        assert result.refusal in (Reason.INVALID_PACKAGE, Reason.PROTECTED_FIELD), result.error
        raise NamesError(result.error)
    return Made(result.files)


def by_function(draw: random.Random) -> Made:
    """Return a package with resources at paths that a function names."""
    own = {"Kptfile": kptfile("p") + "pipeline:\n  mutators:\n  - exec: f\n", "cm.yaml": _text("cm")}
    items = [resource(f"n{number}", path) for number, path in enumerate(draw_paths(draw))]
    return _pipeline(files_of(own), Engine(items=items))


def by_function_without_paths(draw: random.Random) -> Made:
    """Return a package with resources that a function gives without a path."""
    own = {"Kptfile": kptfile("p") + "pipeline:\n  mutators:\n  - exec: f\n", "configmap_x.yaml": _text("x")}
    return _pipeline(files_of(own), Engine(items=[resource(name) for name in draw.sample(NAMES, 4)]))


def by_chart(draw: random.Random) -> Made:
    """Return a package with resources that a chart gives."""
    text = "---\n".join(map(_text, draw.sample(NAMES, 4)))
    return _pipeline(package({**chart(a=""), "configmap_X.yaml": _text("there")}), Engine(text=text))


def by_merge(draw: random.Random) -> Made:
    """Return the merge of two sides that both added files."""
    base = files_of({"Kptfile": kptfile("p"), "x": "1"})
    sound = [name for name in NAMES if not file_name_error(name)]
    upstream, local = ({**base, **_files(draw_paths(draw, sound))} for _ in range(2))
    check_names(upstream)
    check_names(local)
    return Made(update_package(base, upstream, local).files, local)


def by_archive(draw: random.Random) -> Made:
    """Return a package with a chart of these files."""
    metadata = {"apiVersion": "v2", "name": "web", "version": "1.0.0"}
    files = {
        **files_of({"Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.0.0\n"}),
        **_files(draw_paths(draw)),
    }
    return Made(package_with(VendoredChart(metadata, files, "web.tgz"), {}, "web"))


def by_author(draw: random.Random) -> Made:
    """Return what somebody pushed to an upstream."""
    return Made(_files(draw_paths(draw)))


def _text(name: str) -> str:
    return f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name!a}\n"


def _files(paths: list[str]) -> dict[str, File]:
    return {path: File.of(path.encode()) for path in paths}


@pytest.mark.parametrize(
    "produce",
    [by_function, by_function_without_paths, by_chart, by_merge, by_archive, by_author],
    ids=lambda produce: produce.__name__,
)
def test_package_is_refused_by_name_or_git_takes_it(
    tmp_path: Path, produce: Callable[[random.Random], Made]
) -> None:
    draw = random.Random(11)
    server = make_repository(tmp_path / "r.git", {"README.md": "r\n"})
    run("config", "receive.fsckObjects", "true", cwd=server.path)
    mirror = Mirrors(tmp_path / "cache").open(str(server.path))
    pack = Pack(mirror)
    taken: dict[str, Files] = {}
    for number, made in enumerate(_sound(produce, draw)):
        tree = pack.patch_tree(server.tree("main"), "p", made.files)
        assert pack.files(made.files, made.before)
        taken[pack.commit(tree, [server.oid("main")], BOT, BOT, f"{number}\n")] = made.files
    pack.save()

    assert 5 < len(taken) < DRAWS - 5
    specs = [f"{commit}:refs/heads/p/{number}" for number, commit in enumerate(taken)]
    run("push", "-q", str(server.path), *specs, cwd=mirror.location.directory)
    Repo(server.path).fsck()
    for commit, files in taken.items():
        listed = run("ls-tree", "-rtz", "--name-only", f"{commit}:p", cwd=server.path).split("\0")[:-1]
        assert files.keys() <= {*listed}
        assert len({*map(case_fold_key, listed)}) == len(listed)


def _sound(produce: Callable[[random.Random], Made], draw: random.Random) -> Iterator[Made]:
    """Yield the packages that pass the check which render makes of all of them."""
    for _ in range(DRAWS):
        try:
            made = produce(draw)
            check_names(made.files, made.before)
        except (NamesError, UpdateRefused):
            continue
        yield made
