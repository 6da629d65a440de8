"""Objects that we write, judged by Git itself: their ids, types, sizes, order and names."""

import random
from pathlib import Path

from reconciler.git.pack import Pack
from reconciler.git.repository import Mirrors
from reconciler.names.objects import File, Mode, Signature
from tests.support.git import make_repository, run
from tests.support.oracles import check_objects

NAMES = ("a", "a-b", "a.b", "a0", "B", "a b", "é", "日本", "Kptfile", "x" * 200, "-", "a:b", "..a", "ab")
PACKAGES = 60
BOT = Signature("Bot ünï", "bot@example.com", 1_767_225_600)


def draw_files(draw: random.Random) -> dict[str, File]:
    """Return files at paths of which none is a directory of another."""
    files: dict[str, File] = {}
    for _ in range(draw.randint(1, 12)):
        path = "/".join(draw.choices(NAMES, k=draw.randint(1, 4)))
        if not any(
            f"{other}/".startswith(f"{path}/") or f"{path}/".startswith(f"{other}/") for other in files
        ):
            data = draw.randbytes(draw.choice((0, 1, 20, 300)))
            files[path] = File.of(data, draw.choice((Mode.REGULAR, Mode.EXECUTABLE)))
    return files


def test_git_reads_what_was_written(tmp_path: Path) -> None:
    draw = random.Random(7)
    repository = make_repository(tmp_path / "r.git", {"README.md": "r\n"})
    mirror = Mirrors(tmp_path / "cache").open(str(repository.path))
    pack = Pack(mirror)
    written = [draw_files(draw) for _ in range(PACKAGES)]
    commits = []
    for number, files in enumerate(written):
        tree = pack.patch_tree(repository.tree("main"), f"p/{draw.choice(NAMES)}", files)
        message = draw.choice(("", "one line", "Title\n\nBody ünï\n\nTrailer: x\n"))
        parents = [*commits[-1:], *commits[:1]] if number > 1 else []
        commits.append(pack.commit(tree, parents, BOT, BOT, message))
    pack.save()
    directory = mirror.location.directory

    for number, commit in enumerate(commits):
        run("update-ref", f"refs/heads/written/{number}", commit, cwd=directory)

    check_objects(directory)
    for commit, files in zip(commits, written, strict=True):
        listed = run("ls-tree", "-r", "-z", commit, "p/", cwd=directory).split("\0")[:-1]
        entries = {row.partition("\t")[2].split("/", 2)[2]: row.partition("\t")[0].split() for row in listed}
        assert entries == {path: [f"{file.mode:o}", "blob", file.oid] for path, file in files.items()}
