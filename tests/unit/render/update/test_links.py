"""What sub-packages follow, and what `kpt fn render` records, across an update."""

import pytest

from reconciler.names.objects import File, Files
from reconciler.policy import MergeMode, OnConflict, Strategy
from reconciler.render.kptfile import kptfile_value
from reconciler.render.update import ConflictPolicy, Updated, update_package
from tests.support.model import package

HEAD = "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: {}\n"
MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {}\n"
RENDERED = """\
status:
  conditions:
  - type: Rendered
    status: "{status}"
    reason: {reason}
  renderStatus:
    mutationSteps:
    - image: a:v1
      exitCode: {code}
"""


def follows(name: str, ref: str = "v1", *, fetched: bool = True) -> str:
    git = f"  type: git\n  git:\n    repo: https://example.com/{name}\n    directory: /\n    ref: {ref}\n"
    return f"upstream:\n{git}" + (f"upstreamLock:\n{git}    commit: {ref}\n" if fetched else "")


UNFETCHED = follows("a", fetched=False)


def parent(more: str = "", *, sub: str | None = None, files: tuple[str, ...] = ("cm",)) -> Files:
    inner = {f"sub/{name}.yaml": MAP.format(name) for name in files}
    tree = {"sub/Kptfile": HEAD.format("sub") + sub, **inner} if sub is not None else {}
    return package({"Kptfile": HEAD.format("pkg") + more, **tree})


def link(done: Updated) -> str:
    """Return the links of the merged sub-package."""
    text = done.files["sub/Kptfile"].data.decode()
    return text[text.index("upstream:") :] if "upstream:" in text else ""


@pytest.mark.parametrize(
    ("reason", "base", "upstream", "local", "want"),
    [
        ("becomes a package of its own", "", follows("a"), "", follows("a")),
        ("is fetched now", UNFETCHED, follows("a"), UNFETCHED, follows("a")),
        ("is taken over", follows("a"), "", follows("a"), ""),
        ("moves on", follows("a"), follows("a", "v2"), follows("a"), follows("a", "v2")),
        ("is as people made it", follows("a"), "", follows("b"), follows("b")),
    ],
)
def test_sub_package_follows_what_the_blueprint_lets_it_follow(reason, base, upstream, local, want) -> None:
    done = update_package(parent(sub=base), parent(sub=upstream), parent(sub=local))

    assert link(done) == want, reason
    assert not done.conflicts


@pytest.mark.parametrize("theirs", [follows("foo"), ""])
@pytest.mark.parametrize("policy", [OnConflict.ASK, OnConflict.LOCAL, OnConflict.UPSTREAM])
def test_two_packages_at_one_path_are_one_or_the_other(policy: OnConflict, theirs: str) -> None:
    upstream = {**parent(sub=theirs, files=("foo",)), "sub/in/Kptfile": File.of(HEAD.format("in").encode())}

    done = update_package(
        parent(), upstream, parent(sub=follows("bar"), files=("bar",)), on_conflict=ConflictPolicy(policy)
    )

    is_upstream = policy is OnConflict.UPSTREAM
    assert link(done) == (theirs if is_upstream else follows("bar"))
    assert {path for path in done.files if path.startswith("sub/")} == {
        "sub/Kptfile",
        *(("sub/foo.yaml", "sub/in/Kptfile") if is_upstream else ("sub/bar.yaml",)),
    }
    found = [*done.conflicts, *(decided.conflict for decided in done.decided)]
    assert [(each.path, each.field) for each in found] == [("sub/Kptfile", "upstream")]
    assert bool(done.conflicts) is (policy is OnConflict.ASK)


def test_one_package_that_both_sides_added_is_merged() -> None:
    done = update_package(
        parent(), parent(sub=follows("a"), files=("x",)), parent(sub=follows("a"), files=("y",))
    )

    assert not done.conflicts
    assert {"sub/x.yaml", "sub/y.yaml"} <= done.files.keys()


@pytest.mark.parametrize("mode", list(MergeMode))
def test_render_status_is_no_edit_for_a_fast_forward(mode: MergeMode) -> None:
    local = parent(RENDERED.format(status="True", reason="Ok", code=0))

    done = update_package(parent(), parent(sub=""), local, strategy=Strategy.FAST_FORWARD, mode=mode)

    assert "sub/Kptfile" in done.files


def test_render_status_of_both_sides_is_no_question() -> None:
    base, upstream, local = (
        parent(RENDERED.format(status=status, reason=reason, code=code))
        for status, reason, code in (("True", "Ok", 0), ("False", "Failed", 1), ("Unknown", "Other", 2))
    )

    done = update_package(base, upstream, local)

    assert not done.conflicts
    assert not done.decided
    assert (
        kptfile_value(done.files["Kptfile"].data)["status"]
        == kptfile_value(upstream["Kptfile"].data)["status"]
    )


def test_other_conditions_are_still_asked_about() -> None:
    texts = (RENDERED.replace("Rendered", "Ready").format(status="x", reason=r, code=0) for r in "abc")

    done = update_package(*map(parent, texts))

    assert [each.field for each in done.conflicts] == ["status.conditions[type=Ready].reason"]
