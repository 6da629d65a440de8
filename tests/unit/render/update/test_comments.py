"""Comments across an update: each comment of a side is in the result, or listed as dropped."""

import pytest

from reconciler.render.update import Updated, update_package
from tests.support.model import kptfile, package

BASE = """\
# header 0

# head 0
apiVersion: apps/v1
kind: Deployment
metadata:
  name: app
  # label 0
  labels: # labels 0
    tier: web # tier 0
spec:
  # replicas 0
  replicas: 3 # count 0
  template:
    spec:
      containers:
      # first 0
      - name: app # name 0
        image: app:1 # image 0
        args:
        # arg 0
        - --one # one 0
        - --two
      # second 0
      - name: side
        image: side:1
      # last 0
# foot 0
"""
PLACES = (
    "header head label labels tier replicas count first name image arg one second last foot".split()  # noqa: SIM905
)


def side(comment: str, mark: str, image: str = "app:1") -> str:
    return BASE.replace(f"# {comment} 0", f"# {comment} {mark}").replace("app:1", image)


def update(upstream: str, local: str) -> Updated:
    files = [package({"Kptfile": kptfile("web"), "app.yaml": text}) for text in (BASE, upstream, local)]
    return update_package(*files)


def listed(updated: Updated) -> str:
    conflicts = [*updated.conflicts, *(each.conflict for each in updated.decided)]
    return "\n".join(text or "" for each in conflicts for text in (each.upstream, each.local))


@pytest.mark.parametrize("place", PLACES)
def test_comment_that_both_sides_changed_is_yours_and_says_so(place: str) -> None:
    updated = update(side(place, "u", "app:7"), side(place, "k"))

    assert updated.files["app.yaml"].data.decode() == side(place, "k", "app:7")
    assert [(each.conflict.path, each.conflict.upstream) for each in updated.decided] == [
        ("app.yaml", f"# {place} u")
    ]
    assert [each.rule.text for each in updated.decided] == [
        "both sides changed this comment, and local's stays"
    ]


def test_equal_comments_on_both_sides_are_not_listed() -> None:
    both = side("count", "x")

    updated = update(both.replace("tier: web", "tier: up"), both.replace("image: side:1", "image: side:9"))

    assert (updated.decided, updated.conflicts) == ((), ())
    assert updated.files["app.yaml"].data.decode().count("# count x") == 1


KPTFILE = """\
# header 0
apiVersion: kpt.dev/v1
kind: Kptfile
metadata:
  name: web # name 0
  # note 0
  annotations: {a: b}
# info 0
info:
  # text 0
  description: old # line 0
"""


@pytest.mark.parametrize("place", ["header", "name", "note", "info", "text", "line"])
@pytest.mark.parametrize("who", ["uk", "u", "k"])
def test_every_dropped_comment_of_kptfile_is_listed(place: str, who: str) -> None:
    own = KPTFILE.replace("name: web", "name: mine")
    texts = [
        KPTFILE,
        KPTFILE.replace(f"# {place} 0", f"# {place} u") if "u" in who else KPTFILE,
        own.replace(f"# {place} 0", f"# {place} k") if "k" in who else own,
    ]

    updated = update_package(*[package({"Kptfile": text}) for text in texts])

    seen = updated.files["Kptfile"].data.decode() + listed(updated)
    assert all(f"# {place} {mark}" in seen for mark in who)


def test_comment_between_resources_that_both_sides_changed_is_yours_and_says_so() -> None:
    head = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: app\n"
    texts = [f"# licence {mark}\n---\n{head}data: {{size: {mark}}}\n" for mark in ("one", "two", "mine")]

    updated = update_package(*[package({"Kptfile": kptfile("web"), "app.yaml": text}) for text in texts])

    assert updated.files["app.yaml"].data.decode() == texts[2]
    (dropped,) = updated.decided
    assert (dropped.conflict.path, dropped.conflict.upstream) == ("app.yaml", "# licence two")


@pytest.mark.parametrize("who", ["u", "k", "uk"])
def test_every_dropped_comment_between_resources_is_listed(who: str) -> None:
    def text(mark: str, size: int) -> str:
        head = f"# licence {mark}\n---\n" if mark else ""
        return (
            f"{head}apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: app\ndata: {{size: '{size}', a: b}}\n"
        )

    updated = update(text("u" if "u" in who else "", 2), text("k" if "k" in who else "", 1))

    merged = updated.files["app.yaml"].data.decode()
    assert all(f"# licence {mark}" in merged + listed(updated) for mark in who)
    assert who == "uk" or f"# licence {who}\n" in merged
