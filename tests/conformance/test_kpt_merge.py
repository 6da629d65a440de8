"""Package updates as the real kpt made them: equal in `compatible` mode, never worse in the default one.

Every difference stands in `docs/divergences.md`, and the better outcome is asserted here.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reconciler.objects import File, Files
from reconciler.policy import MergeMode, OnConflict, Strategy
from reconciler.render.update import Conflict, UpstreamRef
from tests.support.conformance import PROJECT, folders
from tests.support.merges import MINIMAL, attempt, difference, documents, read_tree

NEW = UpstreamRef("${REPO}", "/pkg", "v2", "${COMMIT_UPSTREAM}")
UPSTREAM = "upstream:\n  type: git\n  git:\n    repo: ${REPO}\n    directory: /pkg\n    ref: v1\n"
LOCK = UPSTREAM.replace("upstream:", "upstreamLock:") + "    commit: ${COMMIT_ORIGINAL}\n"
CASES = folders("kpt", "case.json")

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


def has_whole_containers(files: Files) -> bool:
    return all("image" in container for container in pod_of(files)["containers"])


def follows_ignored_files(files: Files) -> bool:
    """Ignored YAML is merged as text: nothing of the package still says what upstream no longer says."""
    return all(
        "x" not in documents(file.data)[0].get("data", {}).values()
        for p, file in files.items()
        if p.startswith("d/")
    )


COMPATIBLE: dict[str, Check] = {
    "27": has_whole_containers,
    "47": lambda f: b"*" in f["r.yaml"].data,
    "71": follows_ignored_files,
    "13-type-change-scalar-to-map": lambda f: spec_of(f) == {"a": {"x": "1"}},
    "46-anchors": lambda f: spec_of(f) == {"a": {"k": "2"}, "b": {"k": "2"}, "l": "1"},
    "65-dup-resource": is_whole,
    "68-invalid-yaml": lambda f: (
        f["t.yaml"].data == b"a: {{ .Values.y }}\n" and data_of(f, "k.yaml")["data"]["a"] == "up"
    ),
    "69-krmignore": lambda f: f["t.yaml"].data == b"a: {{ .Values.y }}\n",
    "86-subpkg-added-both": is_whole,
    "89-dir-becomes-subpkg": lambda f: data_of(f, "sub/Kptfile")["metadata"] == {"name": "sub"},
    "91-ff-modified": is_whole,
    "92-ff-modified-kptfile": is_whole,
}
"""Crashes and half-written states of kpt; what happens instead."""

DEFAULT: dict[str, Check] = {
    "19": has_whole_containers,
    "83": lambda f: data_of(f, "package-context.yaml")["data"]["name"] != "example",
    **{
        name: check
        for name, check in COMPATIBLE.items()
        if name not in ("65-dup-resource", "86-subpkg-added-both")
    },
    "12-null-upstream": lambda f: spec_of(f) == {"a": None, "b": "7", "n": None},
    "17-alist-reordered-up": lambda f: [c["name"] for c in pod_of(f)["containers"]] == ["side", "app"],
    "22-alist-whole-del-up": lambda f: pod_of(f)["volumes"] == [{"name": "local", "emptyDir": {}}],
    "24-alist-multikey-default": lambda f: (
        pod_of(f)["containers"][0]["ports"] == [{"containerPort": "80", "name": "web", "protocol": "TCP"}]
    ),
    "28-alist-dup-key": lambda f: [c["image"] for c in pod_of(f)["containers"]] == ["a2", "b2"],
    "52-file-moved-up": lambda f: (
        "a.yaml" not in f and data_of(f, "sub/b.yaml")["data"] == {"a": "up", "b": "local"}
    ),
    "54-file-moved-local": lambda f: data_of(f, "mine/a.yaml")["data"] == {"a": "up"},
    "65-dup-resource": lambda f: [d["data"]["a"] for d in data_of(f)] == ["x", "y"],
    "66-nonkrm-files": lambda f: "s.sh" not in f and f["delmod.txt"].data == b"local\n",
    "70-json-file": lambda f: data_of_json(f) == {"a": "up", "l": "1"},
    "77-kptfile-dup-fns": lambda f: (
        mutators_of(f)
        == [{"image": "ss:v0.2", "configMap": {"a": "local"}}, {"image": "ss:v0.2", "configMap": {"b": "x"}}]
    ),
    "78-kptfile-mixed-names": lambda f: [m["image"] for m in mutators_of(f)] == ["a:v2", "b:v2", "l:v1"],
    "80-kptfile-meta-info": lambda f: data_of(f, "Kptfile")["info"]["keywords"] == ["a", "l", "u"],
    "86-subpkg-added-both": lambda f: data_of(f, "k.yaml")["data"]["a"] == "up" and "sub/k.yaml" in f,
    "94-fdr-kptfile": lambda f: [m["image"] for m in mutators_of(f)] == ["a:v2", "l:v1"],
}
"""Where losing nothing gives another result than kpt's, whoever wins the conflicts."""


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


def check_of(table: dict[str, Check], case: Path) -> Check | None:
    """Return the check of a case by its name, or by the number of its kind."""
    return table.get(case.name) or table.get(case.name[:2])


def failed(case: Path) -> bool:
    return bool(json.loads((case / "result.json").read_text())["rc"])


@pytest.mark.parametrize("case", CASES)
def test_compatible_mode_equals_kpt(case: Path) -> None:
    files, _, refused = updated(case, MergeMode.COMPATIBLE, OnConflict.ASK)

    if check := check_of(COMPATIBLE, case):
        assert check(files)
    elif failed(case):
        assert not refused or files == sides_of(case)[2], "whole or not at all"
    else:
        assert difference(files, read_tree(case / "expected"), with_comments=True) == {}
        assert refused is failed(case)


@pytest.mark.parametrize("case", CASES)
def test_default_mode_equals_kpt_or_is_better(case: Path) -> None:
    want = read_tree(case / "expected")
    asked, conflicts, refused = updated(case, MergeMode.DEFAULT, OnConflict.ASK)
    settled, _, _ = updated(case, MergeMode.DEFAULT, OnConflict.UPSTREAM)

    if check := check_of(DEFAULT, case):
        assert check(asked)
    elif failed(case):
        assert not refused or asked == sides_of(case)[2], "whole or not at all"
    elif difference(asked, want, loose=True):
        assert conflicts, "local edits that kpt would lose are told"
        assert difference(settled, want, loose=True) == {}, "who lets upstream win gets what kpt gives"


@pytest.mark.parametrize("name", sorted({*COMPATIBLE, *DEFAULT}))
def test_every_difference_from_kpt_is_written_down(name: str) -> None:
    assert f"`{name[:2]}-" in (PROJECT / "docs" / "divergences.md").read_text()
