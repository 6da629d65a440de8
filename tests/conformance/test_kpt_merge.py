"""Package updates as the real kpt made them: equal in `compatible` mode, never worse in the default one.

The cases with another result are listed by name, each with what is asserted instead. `docs/divergences.md`
says why. A listed case with kpt's result fails, and so does an unlisted one with another.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reconciler.names.objects import File, Files
from reconciler.policy import MergeMode, OnConflict, Strategy
from reconciler.render.update import Conflict, UpstreamRef
from tests.support.conformance import OWN, PROJECT, folders
from tests.support.merges import MINIMAL, attempt, difference, documents, read_tree

NEW = UpstreamRef("${REPO}", "/pkg", "v2", "${COMMIT_UPSTREAM}")
UPSTREAM = "upstream:\n  type: git\n  git:\n    repo: ${REPO}\n    directory: /pkg\n    ref: v1\n"
LOCK = UPSTREAM.replace("upstream:", "upstreamLock:") + "    commit: ${COMMIT_ORIGINAL}\n"
CASES = folders("kpt", "case.json")
RECORDED = {folder.name for folder in OWN.glob("kpt/*")}

Check = Callable[[Files], Any]


def data_of(files: Files, path: str = "r.yaml") -> Any:
    found = documents(files[path].data)
    return found[0] if len(found) == 1 else found


def spec_of(files: Files) -> Any:
    return data_of(files)["spec"]


def pod_of(files: Files) -> Any:
    return spec_of(files)["template"]["spec"]


def mutators_of(files: Files) -> Any:
    return data_of(files, "Kptfile")["pipeline"]["mutators"]


def is_whole(files: Files) -> bool:
    """The update was refused, and nothing of it was written: the old upstream still stands."""
    return data_of(files, "Kptfile")["upstream"]["git"]["ref"] == "v1"


def data_at(files: Files, path: str) -> Any:
    return data_of(files, path)["data"]


def images_of(files: Files) -> list[str]:
    return [container["image"] for container in pod_of(files)["containers"]]


COMPATIBLE: dict[str, Check] = {
    "13-type-change-scalar-to-map": lambda f: spec_of(f) == {"a": {"x": "1"}},
    "27-alist-no-key": lambda f: images_of(f) == ["app:2", "plain:1", "side:1"],
    "46-anchors": lambda f: spec_of(f) == {"a": {"k": "2"}, "b": {"k": "2"}, "l": "1"},
    "47-alias-beside-change": lambda f: (
        spec_of(f) == {"a": {"k": "1"}, "b": {"k": "1"}, "c": "2", "l": "1"} and b"b: *x" in f["r.yaml"].data
    ),
    "65-dup-resource": is_whole,
    "68-invalid-yaml": lambda f: (
        f["t.yaml"].data == b"a: {{ .Values.y }}\n" and data_at(f, "k.yaml")["a"] == "up"
    ),
    "69-krmignore": lambda f: f["t.yaml"].data == b"a: {{ .Values.y }}\n",
    "71-krmignore-directory": lambda f: data_at(f, "d/i.yaml") == {"a": "y"},
    "86-subpkg-added-both": is_whole,
    "89-dir-becomes-subpkg": lambda f: data_of(f, "sub/Kptfile")["metadata"] == {"name": "sub"},
    "91-ff-modified": is_whole,
    "92-ff-modified-kptfile": is_whole,
    "95-copy-merge": lambda f: (
        "old.yaml" not in f and [data_at(f, "r.yaml"), data_at(f, "mine.yaml")] == [{"a": "up"}, {"a": "x"}]
    ),
}
"""Crashes, half-written states and lost values of kpt; what happens instead."""

DEFAULT: dict[str, Check] = {
    **COMPATIBLE,
    "12-null-upstream": lambda f: spec_of(f) == {"a": None, "b": "7", "n": None},
    "16-alist-up-adds-front": lambda f: images_of(f) == ["side:1", "app:1", "l"],
    "17-alist-reordered-up": lambda f: [c["name"] for c in pod_of(f)["containers"]] == ["side", "app"],
    "22-alist-whole-del-up": lambda f: pod_of(f)["volumes"] == [{"name": "local", "emptyDir": {}}],
    "24-alist-multikey-default": lambda f: (
        pod_of(f)["containers"][0]["ports"] == [{"containerPort": "80", "name": "web", "protocol": "TCP"}]
    ),
    "27-alist-no-key": lambda f: images_of(f) == ["app:1", "plain:1", "side:1"],
    "28-alist-dup-key": lambda f: images_of(f) == ["a2", "b2"],
    "52-file-moved-up": lambda f: "a.yaml" not in f and data_at(f, "sub/b.yaml") == {"a": "up", "b": "local"},
    "54-file-moved-local": lambda f: data_at(f, "mine/a.yaml") == {"a": "up"},
    "65-dup-resource": lambda f: [d["data"]["a"] for d in data_of(f)] == ["x", "y"],
    "66-nonkrm-files": lambda f: "s.sh" not in f and f["delmod.txt"].data == b"local\n",
    "70-json-file": lambda f: data_of_json(f) == {"a": "up", "l": "1"},
    "77-kptfile-dup-fns": lambda f: (
        mutators_of(f)
        == [{"image": "ss:v0.2", "configMap": {"a": "local"}}, {"image": "ss:v0.2", "configMap": {"b": "x"}}]
    ),
    "78-kptfile-mixed-names": lambda f: [m["image"] for m in mutators_of(f)] == ["a:v2", "b:v2", "l:v1"],
    "80-kptfile-meta-info": lambda f: data_of(f, "Kptfile")["info"]["keywords"] == ["a", "l", "u"],
    "83-package-context": lambda f: (
        data_at(f, "package-context.yaml")
        == {"name": "edge", "package-path": "fleet/edge", "zone": "local", "team": "up"}
    ),
    "86-subpkg-added-both": lambda f: (
        [data_at(f, path) for path in ("k.yaml", "sub/k.yaml")] == [{"a": "up"}, {"a": "l"}]
    ),
    "94-fdr-kptfile": lambda f: [m["image"] for m in mutators_of(f)] == ["a:v2", "l:v1"],
}
"""Where losing nothing gives another result than kpt's, whoever wins the conflicts."""

CONFLICTS = {
    "02-scalar-conflict",
    "04-field-del-up-modified",
    "06-field-del-local-modified-up",
    "19-alist-del-up-modified-local",
    "21-alist-del-local-modified-up",
    "26-alist-env-value-to-valuefrom",
    "33-crd-named-list",
    "42-block-scalar-both",
    "62-res-added-both",
    "72-list-kind",
}
"""Where a conflict is listed in the default mode that kpt decides for upstream."""


def data_of_json(files: Files) -> Any:
    return json.loads(files["r.json"].data)["data"]


def sides_of(case: Path) -> tuple[Files, Files, Files, Strategy]:
    """Read a case; local's Kptfile gets the upstream that it was fetched from."""
    original, upstream, local = (read_tree(case / side) for side in ("original", "upstream", "local"))
    strategy = Strategy(json.loads((case / "case.json").read_text())["strategy"])
    kptfile = local.get("Kptfile") or original.get("Kptfile") or File.of(MINIMAL.encode())
    text = kptfile.data.decode()
    block = f"{UPSTREAM}  updateStrategy: {strategy}\n"
    local["Kptfile"] = File.of(
        "".join((text, *(b for b in (block, LOCK) if b[: b.index(":")] + ":\n" not in text))).encode()
    )
    return original, upstream, local, strategy


def updated(case: Path, mode: MergeMode, on_conflict: OnConflict) -> tuple[Files, tuple[Conflict, ...], bool]:
    original, upstream, local, strategy = sides_of(case)
    options = {"strategy": strategy, "mode": mode, "on_conflict": on_conflict, "new_upstream": NEW}
    return attempt(original, upstream, local, **options)


def failed(case: Path) -> bool:
    return bool(json.loads((case / "result.json").read_text())["rc"])


@pytest.mark.parametrize("case", CASES)
def test_compatible_mode_equals_kpt(case: Path) -> None:
    files, _, refused = updated(case, MergeMode.COMPATIBLE, OnConflict.ASK)

    differs = bool(difference(files, read_tree(case / "expected"), with_comments=True))
    assert (differs or refused is not failed(case)) is (case.name in COMPATIBLE)
    assert COMPATIBLE.get(case.name, bool)(files)


@pytest.mark.parametrize("case", CASES)
def test_default_mode_equals_kpt_or_is_better(case: Path) -> None:
    kpts = read_tree(case / "expected")
    open_, conflicts, refused = updated(case, MergeMode.DEFAULT, OnConflict.ASK)
    decided, _, _ = updated(case, MergeMode.DEFAULT, OnConflict.UPSTREAM)

    assert DEFAULT.get(case.name, bool)(open_)
    if case.name in DEFAULT:
        # A listed case differs in its files, or in whether it is refused at all.
        assert difference(open_, kpts) or refused is not failed(case), "it is listed, and has kpt's result"
    else:
        # An empty map that kpt leaves behind is no other result.
        differs = bool(difference(open_, kpts, loose=True))
        # A conflict may be one that kpt's result happens to decide as local did.
        assert conflicts or not differs, "what both sides changed is listed"
        if case.name in RECORDED:
            assert differs is (case.name in CONFLICTS)
        assert difference(decided, kpts, loose=True) == {}, "with upstream as the winner the result is kpt's"
        assert refused is failed(case)


def test_divergences_name_the_listed_cases() -> None:
    section = (PROJECT / "docs" / "divergences.md").read_text().partition("\n## PackageVariantSets")[0]

    assert set(re.findall(r"`(\d\d-[\w-]+)`", section)) == {*DEFAULT, *CONFLICTS}
    assert {*DEFAULT, *CONFLICTS} <= RECORDED
