"""Packages as others publish them: laid out anew from one revision to the next, or of an old schema."""

import re
from pathlib import Path

import pytest

from reconciler.base.errors import Exit
from reconciler.cli.main import invoke
from tests.support.git import Repo, kptfile
from tests.support.small_world import manifest, variant, write_world

CONTEXT = "apiVersion: v1\nkind: ConfigMap\n\nmetadata:\n  name: kptfile.kpt.dev\n\ndata:\n  name: example\n"
OWN = re.compile(r"^    reconciler.dev/(owner|location): .*\n", re.MULTILINE)


def publish(root: Path, revision: int, files: dict[str, str]) -> None:
    blueprints = Repo(root / "blueprints.git")
    blueprints.commit(files, message=f"web v{revision}\n")
    blueprints.tag(f"web/v{revision}")


def test_untouched_package_takes_the_layout_of_the_next_revision(tmp_path: Path) -> None:
    root = tmp_path / "w"
    write_world(root, ("edge-1", "edge-2"))
    spaced = kptfile("web").replace("metadata:", "\nmetadata:")
    publish(root, 3, {"web/Kptfile": spaced, "web/package-context.yaml": CONTEXT})
    publish(
        root, 4, {"web/Kptfile": kptfile("web"), "web/package-context.yaml": CONTEXT.replace("\n\n", "\n")}
    )
    control = Repo(root / "control.git")
    for revisions in ((3, 4), (4, 4)):
        changes = {
            manifest(edge, "web"): variant(edge, "web", revision=revision)
            for edge, revision in zip(("edge-1", "edge-2"), revisions, strict=True)
        }
        control.commit(changes, message="Ask\n")
        for command in ("apply", "approve --all", "apply"):
            assert invoke([*command.split(), "--control", str(control.path)]) == Exit.DONE

    for path in ("web/Kptfile", "web/package-context.yaml"):
        climbed, fresh = (
            OWN.sub("", Repo(root / f"{edge}.git").read("main", path).decode())
            for edge in ("edge-1", "edge-2")
        )
        assert climbed == fresh


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("apiVersion: kpt.dev/v1\n", "apiVersion: kpt.dev/v1alpha1\n"), "old version (kpt.dev/v1alpha1)"),
        (("kind: Kptfile\n", "kind: Kptfile\npipelin: {}\n"), "pipelin"),
    ],
)
def test_kptfile_that_kpt_refuses_is_not_ready_without_the_word_pipeline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: tuple[str, str], said: str
) -> None:
    root = tmp_path / "w"
    write_world(root, ("edge-1",))
    publish(root, 3, {"web/Kptfile": kptfile("web").replace(*change)})
    control = Repo(root / "control.git")
    control.commit({manifest("edge-1", "web"): variant("edge-1", "web", revision=3)}, message="Ask\n")

    invoke(["plan", "--control", str(control.path)])

    assert re.search(rf"edge-1/web .*not ready.*{re.escape(said)}", capsys.readouterr().out)
