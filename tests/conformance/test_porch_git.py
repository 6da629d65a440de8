"""Porch's own answers about names, refs and what a repository holds."""

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from reconciler.api.porch import Repository
from reconciler.base.errors import Location
from reconciler.forge.local.pulls import head_branches
from reconciler.git.repository import Mirrors
from reconciler.inventory.inventory import PackageState, RepositoryView, Source, Sourced, repository_commits
from reconciler.names.ids import Lifecycle, ObjectName
from reconciler.names.refs import (
    HEADS,
    PLACEHOLDER,
    TAGS,
    PathIndex,
    draft_ref,
    is_within,
    nested_message,
    object_name,
    object_name_errors,
    parse_revision,
    relative_package,
    tag_ref,
)
from reconciler.plan.drafts import CLONE, EDIT, UPGRADE
from reconciler.policy import CommitPolicy, Policy
from tests.support.conformance import Case, vector_files, vectors
from tests.support.reading import read_registered

# Porch renames branches when it fetches; our mirrors hold them under the names of the remote.
REMOTE = "refs/remotes/origin/"


def reference_name(key: Mapping[str, Any]) -> str:
    if not key:
        return ""
    path = "/".join(part for part in (key.get("path", ""), key["package"]) if part)
    workspace, revision = key.get("workspaceName", ""), key.get("revision", 0)
    if revision == PLACEHOLDER:
        return HEADS + key.get("branch", "")
    if revision > 0:
        return tag_ref(path, revision)
    draft = draft_ref(path, workspace)
    if key.get("lifecycle") != "Proposed":
        return draft
    _, proposed = head_branches(draft.removeprefix(HEADS))
    return HEADS + proposed


def as_fetched(ref: str) -> str:
    """Say a name of ours as Porch says it after fetching."""
    return REMOTE + ref.removeprefix(HEADS) if ref.startswith(HEADS) else ref


def overlap(case: Case) -> str:
    index = PathIndex(one["package"] for one in case["existing"] if one["repo"] == case["new"]["repo"])
    path = case["new"]["package"]
    other = index.find_nested(path)
    return "already exists" if path in index else nested_message(path, other) if other else ""


TITLES = {"clone": CLONE, "edit": EDIT, "upgrade": UPGRADE}
"""The titles of our drafts by the task of Porch."""

NAMES: dict[str, tuple[Callable[[Case], Any], str]] = {
    "packageInDirectory": (lambda c: is_within(c["package"], c["directory"]), "expected"),
    "translateRef": (lambda c: as_fetched(c["remote"]), "local"),
    "referenceName": (lambda c: as_fetched(reference_name(c["key"])), "expected"),
    "revisionToInt": (lambda c: parse_revision(c["revision"]), "expected"),
    "pathsOverlap": (lambda c: PathIndex([c["b"]]).find_nested(c["a"]) is not None, "expected"),
    "objectName": (
        lambda c: object_name(c["repo"], c["path"], c["package"], c.get("workspaceName")),
        "expected",
    ),
    "commitMessage": (lambda c: TITLES[c["taskType"]], "expected"),
}


# Porch reads workspaces back out of object names; here refs and annotations name them.
UNUSED = {"workspaceNameOfObjectName"}


def is_used(case: Case) -> bool:
    """Tell whether we do what a vector describes: of Porch's tasks we make the commits of three."""
    return case["op"] not in UNUSED and (case["op"] != "commitMessage" or case["taskType"] in TITLES)


CASES = [case for case in vectors("porch", "GitNames") if case.values[0] is None or is_used(case.values[0])]


@pytest.mark.parametrize("case", CASES)
def test_names(case: Case) -> None:
    op = case["op"]
    if op in NAMES:
        compute, field = NAMES[op]
        assert compute(case) == case[field]
        return
    assert op in {"packagePathOverlap", "cloneAllowed"}
    wanted, got = case["expectedErrorContains"], overlap(case)
    if (
        op == "cloneAllowed" and wanted
    ):  # Porch words it by task: what must agree is that and where it is refused
        wanted = "already exists"
    assert (wanted in got) if wanted else got == ""


@pytest.mark.parametrize("case", vectors("porch", "ObjectNameValidation"))
def test_object_names(case: Case) -> None:
    workspace = case["ws"] if case["op"] == "packageRevisionObjectName" else None

    wrong = object_name_errors(case["repo"], case["path"], case["pkg"], workspace)

    assert bool(wrong) is case["err"]
    fields = {
        "name": "prerrstring",
        "repository": "repoerrstring",
        "path": "patherrstring",
        "package": "pkgerrstring",
    }
    if workspace is not None:
        fields["workspace"] = "wserrstring"
    for part, field in fields.items():  # an empty text is contained in any: Porch leaves that part unsaid
        assert case[field] in wrong.get(part, "")


@pytest.mark.parametrize("case", vectors("porch", "CommitAuthor"))
def test_commit_author(case: Case) -> None:
    git = {"repo": "../edge.git", **case["repositoryGit"]}
    manifest = Repository.model_validate(
        {"apiVersion": "config.porch.kpt.dev/v1alpha1", "kind": "Repository", "spec": {"git": git}}
    )
    view = RepositoryView(ObjectName("", "edge"), "", "", "main", "", manifest, Source(Location("")))
    ours = CommitPolicy(name="<api user name>", email="<api user email>")

    name, email = repository_commits([view], ours).author("web")

    assert {"name": name, "email": email} == case["expectedAuthor"]


def view_of(case: Case, directory: Path) -> RepositoryView:
    (file,) = vector_files(f"porch/{case['repositoryTar']}")
    (directory / "repository").mkdir()
    subprocess.run(["tar", "-xf", file, "-C", directory / "repository", "--no-same-owner"], check=True)
    git = {"repo": str(directory / "repository"), "branch": case["branch"], "directory": case["directory"]}
    manifest = Repository.model_validate(
        {"apiVersion": "config.porch.kpt.dev/v1alpha1", "kind": "Repository", "spec": {"git": git}}
    )
    key = ObjectName("default", "repository")
    views = read_registered(
        [Sourced(key, manifest, Source(Location("")))], Mirrors(directory / "cache"), Policy()
    )
    assert views[key].problem is None
    return views[key]


def revisions(view: RepositoryView) -> list[dict[str, Any]]:
    """Return the view's package revisions as Porch lists them: tags, drafts, main's placeholders."""
    return [row for state in view.packages.values() for row in _rows(view, state)]


def _rows(view: RepositoryView, state: PackageState) -> list[dict[str, Any]]:
    name = relative_package(state.path, view.directory)
    found = [(r.revision, r.workspace, r.lifecycle, r.ref) for r in state.published]
    found += [(0, d.workspace, d.lifecycle, d.ref) for d in state.drafts]
    if state.main_tree:
        found.append((PLACEHOLDER, "$branch", Lifecycle.PUBLISHED, "$branch"))
    return [
        {
            "package": name,
            "revision": n,
            "workspaceName": w,
            "lifecycle": str(life),
            "selfLockRef": short(ref),
        }
        for n, w, life, ref in found
    ]


def short(ref: str) -> str:
    return ref.removeprefix(HEADS).removeprefix(TAGS)


def by_name(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(str(sorted(row.items())) for row in rows)


@pytest.mark.parametrize("case", vectors("porch", "PackageDiscovery"))
def test_discovery(case: Case, tmp_path: Path) -> None:
    found, wanted = revisions(view_of(case, tmp_path)), case["expected"]

    if case["name"].startswith("TestDiscoverManuallyTagged"):
        assert found
        assert all(row["package"] == "pkg" and row["revision"] in wanted for row in found)
    elif wanted and isinstance(wanted[0], dict) and "packageSlashRevisionOrWorkspace" in wanted[0]:
        kept = [row for row in found if row["revision"] != PLACEHOLDER]
        got = [(f"{r['package']}/{_last(r)}", r["lifecycle"]) for r in kept]
        assert sorted(got) == sorted((w["packageSlashRevisionOrWorkspace"], w["lifecycle"]) for w in wanted)
    elif wanted and isinstance(wanted[0], dict):
        fields = wanted[0].keys()
        kept = [row for row in found if not case["compare"].startswith("published") or row["revision"]]
        assert by_name([{f: row[f] for f in fields} for row in kept]) == by_name(wanted)
    else:
        top = {f"{row['package']}/{row['workspaceName']}" for row in found if "/" not in row["package"]}
        assert top == set(wanted)


def _last(row: Mapping[str, Any]) -> str:
    return f"v{row['revision']}" if row["revision"] > 0 else row["workspaceName"]
