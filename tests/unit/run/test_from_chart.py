"""A package of a chart: what is vendored, what follows, what another version leaves to people."""

import io
import json
import re
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.base.errors import ConfigurationError, ReconcilerError, RefusedError, UsageError
from reconciler.inventory.inventory import PackageRevision, PullRequest, PullState
from reconciler.names.ids import Lifecycle, ObjectName, Oid
from reconciler.names.objects import File, Files, Mode
from reconciler.names.refs import tag_ref
from reconciler.policy import Policy
from reconciler.run.chart_proposals import _places, find_released
from reconciler.run.from_chart import (
    SOURCE,
    VERSIONS,
    VendoredChart,
    package_with,
    pinned_chart,
    read_chart,
    write_package,
)
from tests.support.plan_values import a_pull
from tests.support.sets import COMMIT, a_package, package_set, repository, source, variant, world
from tests.support.values import replace

METADATA = "apiVersion: v2\nname: web\nversion: 1.0.0\n"
DIGEST = "sha256:" + "0" * 64


def chart(directory: Path, metadata: str = METADATA, **files: str) -> Path:
    """Write a chart; the names of further files have `__` for a slash and `_` for a dot."""
    directory.mkdir(exist_ok=True)
    named = {name.replace("__", "/").replace("_", "."): text for name, text in files.items()}
    for path, text in {"Chart.yaml": metadata, **named}.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_text(text)
    return directory


def vendored(directory: Path, *given: str, **files: str) -> VendoredChart:
    return read_chart(str(chart(directory, *given, **files)), "", Policy())


def archive(directory: Path, *names: str, kind: bytes = tarfile.REGTYPE) -> Path:
    """Write an archive with members of these names, each with the metadata of a chart."""
    file = directory / "web.tgz"
    with tarfile.open(file, "w:gz") as opened:
        for name in names:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "/etc/passwd"
            member.size = len(METADATA) if kind == tarfile.REGTYPE else 0
            opened.addfile(member, io.BytesIO(METADATA.encode()))
    return file


def test_directory_and_archive_of_a_chart_are_read_alike(tmp_path: Path) -> None:
    from_directory = vendored(tmp_path / "web")
    from_archive = read_chart(str(archive(tmp_path, "web/Chart.yaml", "./web/x/y")), "", Policy())

    files = {"Chart.yaml": File.of(METADATA.encode())}
    assert from_directory[:3] == ({"apiVersion": "v2", "name": "web", "version": "1.0.0"}, files, "web")
    assert from_archive[:2] == (from_directory.metadata, {**files, "x/y": files["Chart.yaml"]})
    assert from_archive.source == "web.tgz"
    assert (from_directory.name, from_directory.version) == ("web", "1.0.0")


def test_directories_of_an_archive_are_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^web.tgz has no Chart.yaml$"):
        read_chart(str(archive(tmp_path, "web/dir", kind=tarfile.DIRTYPE)), "", Policy())


HAS_CACHE = {"charts__cache__Chart_yaml": "version: 1.0.0"}
IN_TWO_VERSIONS = "dependencies:\n- {name: cache, version: 1.x}\n- {name: cache, version: 2.x, alias: b}\n"
NEEDS = "dependencies:\n- name: db\n- name: cache\n- version: 1.0.0\n"


@pytest.mark.parametrize(
    ("metadata", "files", "message"),
    [
        ("name: web\n", {}, "web/Chart.yaml has no name or no version"),
        ("version: 1\n", {}, "web/Chart.yaml has no name or no version"),
        ("name: a/b\nversion: 1\n", {}, "names the chart a/b, and its name contains a slash"),
        ("name: ..\nversion: 1\n", {}, "names the chart .., and its name is empty or stands for another"),
        ("name: [\n", {}, "web/Chart.yaml:2: Did not find"),
        (f"{METADATA}type: library\n", {}, "web is a library chart"),
        (METADATA + NEEDS, {}, r"does not have: db, cache$"),
        (METADATA + NEEDS, {"charts__db__Chart_yaml": "", "charts__c__Chart_yaml": "name: cache"}, ""),
        (METADATA + NEEDS, {"charts__db-2__Chart_yaml": "", **HAS_CACHE}, r"does not have: db$"),
        (METADATA + NEEDS, {"charts__db": "", "charts__db-admin__x": "", **HAS_CACHE}, r"not have: db$"),
        (METADATA + NEEDS, {"charts___db__Chart_yaml": "name: db", **HAS_CACHE}, r"does not have: db$"),
        (METADATA + IN_TWO_VERSIONS, HAS_CACHE, r"does not have: cache 2.x$"),
        (METADATA, {"requirements_yaml": NEEDS}, r"does not have: db, cache$"),
        (METADATA, {"requirements_yaml": "[]"}, ""),
        (f"{METADATA}type: application\n", {}, ""),
    ],
)
def test_chart_has_a_name_a_version_and_all_that_it_depends_on(
    tmp_path: Path, metadata: str, files: dict[str, str], message: str
) -> None:
    if not message:
        assert vendored(tmp_path / "web", metadata, **files).name == "web"
        return
    with pytest.raises(ReconcilerError, match=message):
        vendored(tmp_path / "web", metadata, **files)


def test_package_has_what_helm_packs_and_nothing_that_changes_what_git_commits(tmp_path: Path) -> None:
    rules = {"_helmignore": "local/\n", "local__values_yaml": "a: 1", "templates___x_yaml": "kind: A"}
    made = vendored(tmp_path / "web", _gitignore="charts/*", charts__db___gitattributes="* text", **rules)

    assert made.files.keys() == {"Chart.yaml", ".helmignore"}
    with pytest.raises(ConfigurationError, match=r"^odd/.helmignore:1: Helm knows no `\*\*`$"):
        vendored(tmp_path / "odd", _helmignore="a/**")
    with pytest.raises(ConfigurationError, match=r"^none/.helmignore leaves out Chart.yaml$"):
        vendored(tmp_path / "none", _helmignore="!README.md")


def needing(name: str, version: str, repository: str) -> str:
    return f'dependencies:\n- {{name: {name}, version: "{version}", repository: "{repository}"}}\n'


def test_addresses_that_a_chart_of_ones_own_names_may_be_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Policy, *named: str) -> None:
        raise RefusedError(" ".join(named))

    addresses = ("https://h/stable", "file://../base", "oci://r.io/charts", "")
    needs = "".join(f'- {{name: n{n}, version: "1", repository: "{a}"}}\n' for n, a in enumerate(addresses))
    monkeypatch.setattr("reconciler.run.from_chart._open_client", refuse)

    with pytest.raises(RefusedError, match=r"^https://h/stable https://r.io/charts$"):
        vendored(tmp_path / "web", f"{METADATA}dependencies:\n{needs}")


def test_dependencies_beside_a_chart_are_brought_with_their_own(tmp_path: Path) -> None:
    chart(tmp_path / "base", "name: base\nversion: 2.0.0\ntype: library\n")
    chart(tmp_path / "db", "name: db\nversion: 1.0.0\n" + needing("base", "2", "file://../base"), x="")
    made = vendored(tmp_path / "web", METADATA + needing("db", "~1", "file://../db"))

    assert made.files.keys() == {
        *("Chart.yaml", "charts/db/Chart.yaml", "charts/db/x", "charts/db/charts/base/Chart.yaml")
    }
    assert made.brought == ("db", "base")
    assert b"reconciler.dev/chart-dependencies: db base" in package_with(made, {}, "p")["chart.yaml"].data
    without = package_with(vendored(tmp_path / "web", METADATA), package_with(made, {}, "p"), "p")
    assert b"chart-dependencies" not in without["chart.yaml"].data


def test_versions_of_a_dependency_are_each_brought_once(tmp_path: Path) -> None:
    old, new = (chart(tmp_path / f"db{n}", f"name: db\nversion: {n}.0.0\n") for n in (1, 2))
    needs = needing("db", "1", "file://../db1") + "".join(
        f'- {{name: db, version: "{version}", alias: {alias}, repository: "file://../db2"}}\n'
        for alias, version in (("b", "2"), ("c", "2"), ("d", ">=2"))
    )
    made = vendored(tmp_path / "web", METADATA + needs)

    assert made.files.keys() == {"Chart.yaml", "charts/db/Chart.yaml", "charts/db-2.0.0/Chart.yaml"}
    assert made.brought == (old.name, new.name)


@pytest.mark.parametrize(("name", "version"), [("db", "2"), ("base", "1"), ("base", "")])
def test_dependency_that_is_another_chart_than_the_one_named_is_refused(
    tmp_path: Path, name: str, version: str
) -> None:
    chart(tmp_path / "db", "name: db\nversion: 1.0.0\n")
    message = f"^{f'web depends on {name} {version}'.rstrip()}, and db is db 1.0.0$"
    with pytest.raises(RefusedError, match=message):
        vendored(tmp_path / "web", METADATA + needing(name, version, "file://../db"))


def test_chart_that_depends_on_itself_or_leads_astray_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="web depends on web, below 8 other charts"):
        vendored(tmp_path / "web", METADATA + needing("web", "1", "file://../web"))
    text = "name: odd\nversion: 1.0.0\n" + needing("db", "~1", "https://charts.example.com")
    with pytest.raises(RefusedError, match=r"Chart.lock of odd names db 2.0.0, and Chart.yaml wants ~1"):
        vendored(tmp_path / "odd", text, Chart_lock="dependencies:\n- {name: db, version: 2.0.0}\n")


@pytest.mark.parametrize(
    ("paths", "why"),
    [
        ([".GIT/config"], "charts/web/.GIT/config: some file systems take its name for Git's own"),
        (["git~1/x"], "charts/web/git~1/x: some file systems take its name for Git's own"),
        (["t", "t/u"], "charts/web/t: it would be both a file and a directory"),
        (["t", "T"], "charts/web/t: on some file systems it is the same as charts/web/T"),
        (["d/x", "D/y"], "charts/web/d: on some file systems it is the same as charts/web/D"),
        (["a\nb"], "charts/web/a\\x0ab: its name contains a control character"),
        (["a\u202eb"], "charts/web/a\\u202eb: its name contains a character that reorders text"),
        (["x" * 256], f"charts/web/{'x' * 256}: its name is longer than 255 bytes"),
    ],
)
def test_chart_with_names_that_no_package_may_have_is_neither_written_nor_proposed(
    tmp_path: Path, paths: list[str], why: str
) -> None:
    good = vendored(tmp_path / "web")
    bad = good._replace(files={**good.files, **dict.fromkeys(paths, File.of(b"x"))}, source="oci://h/web:2")

    for before in ({}, package_with(good, {}, "web")):
        with pytest.raises(RefusedError) as caught:
            package_with(bad, before, "web")
        assert str(caught.value) == f"The chart oci://h/web:2 gives a file that no package may have: {why}"
        assert (
            caught.value.hint == "Nothing of it was used. Ask who made the chart for one without such a file."
        )
    with pytest.raises(RefusedError):
        write_package(bad, tmp_path / "package")
    assert not (tmp_path / "package").exists()


@pytest.mark.parametrize("name", ["..", ".git", "a\\b", "x\ny"])
def test_name_of_a_chart_is_one_directory(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match="names the chart "):
        vendored(tmp_path / "web", METADATA.replace("name: web", f"name: {json.dumps(name)}"))


@pytest.mark.parametrize(
    ("source", "versions", "found"),
    [
        (f"https://h/web@{DIGEST}", "1.*", ("https://h/web", "1.*")),
        (f"oci://h:5000/a/web:1.2.3@{DIGEST}", "*", ("oci://h:5000/a/web", "*")),
        (f"https://h/a.git/web@{'a' * 40}", ">1", ("https://h/a.git/web", ">1")),
        (f"web@{DIGEST}", "*", None),
        ("https://h/web@1.2.3", "*", None),
        (f"https://h/web@{DIGEST}", "", None),
        ("", "*", None),
    ],
)
def test_package_follows_the_chart_that_its_annotations_pin(
    source: str, versions: str, found: tuple[str, str] | None
) -> None:
    annotations = f"reconciler.dev/chart-source: {source}, reconciler.dev/chart-versions: '{versions}'"
    text = f"metadata: {{annotations: {{{annotations}}}}}\nhelmCharts: [CHARTS]\n"
    args = "{chartArgs: {name: web, version: 1.2.3}}"

    followed = pinned_chart(text.replace("CHARTS", args).encode())

    assert followed == (("web", *found, "1.2.3") if found else None)
    assert pinned_chart(text.replace("CHARTS", "").encode()) is None
    assert pinned_chart(b"a: [") is pinned_chart(b"") is pinned_chart(b"7") is None
    if found:
        assert pinned_chart(text.replace("CHARTS", "{}").encode()) == ("", *found, "")


def texts(files: Files) -> dict[str, str]:
    return {path: file.data.decode() for path, file in files.items()}


def test_other_version_leaves_what_people_own(tmp_path: Path) -> None:
    first = vendored(tmp_path / "web", values_yaml="replicas: 1\n\nimage: a\n", old="x")
    made = package_with(first, {}, "pkg")
    values = made["values.yaml"].data.replace(b"# replicas: 1\n", b"# replicas: 1\nreplicas: 9\n")
    configuration = made["chart.yaml"].data.replace(b"namespace: default", b"namespace: mine")
    own = {
        **made,
        "values.yaml": File.of(values, Mode.EXECUTABLE),
        "README.md": File.of(b"mine"), "Kptfile": File.of(b"kind: Kptfile\n"), "more.yaml": File.of(b""),
        "chart.yaml": File.of(configuration, Mode.EXECUTABLE),
    }  # fmt: skip
    two = METADATA.replace("1.0.0", "2.0.0")
    second = vendored(tmp_path / "next", two, values_yaml="replicas: 1\n\nimage: b\n")

    after = package_with(second._replace(versions=">1"), own, "pkg")

    assert {path for path in own if own[path] != after.get(path)} == {
        "chart.yaml", "values.yaml", "charts/web/Chart.yaml", "charts/web/values.yaml", "charts/web/old",
    }  # fmt: skip
    assert after.keys() == own.keys() - {"charts/web/old"}
    head = "# Values for every cluster; the comments are the defaults of web.\n"
    assert texts(after)["values.yaml"] == f"{head}# replicas: 1\nreplicas: 9\n#\n# image: b\n"
    assert [after[path].mode for path in ("values.yaml", "chart.yaml")] == [Mode.EXECUTABLE] * 2
    changed = {*texts(after)["chart.yaml"].splitlines()} - {*texts(own)["chart.yaml"].splitlines()}
    assert {line.strip().partition(":")[0] for line in changed} == {
        "version", *(f"reconciler.dev/chart-{name}" for name in ("source", "digest", "versions")),
    }  # fmt: skip
    assert "namespace: mine" in texts(after)["chart.yaml"]


def test_defaults_that_are_too_long_for_people_are_no_comments(tmp_path: Path) -> None:
    made = package_with(vendored(tmp_path / "web", values_yaml="a: 1\n" * (1 << 18)), {}, "p")

    where = b"# Values for every cluster; the defaults are in charts/web/values.yaml.\n"
    assert made["values.yaml"].data == where


def test_values_of_people_that_the_defaults_contradict_stay(tmp_path: Path) -> None:
    first = vendored(tmp_path / "web", values_yaml="a: 1\n")
    own = {**package_with(first, {}, "p"), "values.yaml": File.of(b"mine: 1\n")}

    after = package_with(vendored(tmp_path / "next", values_yaml="a: 2\n"), own, "p")

    assert after["values.yaml"].data == b"mine: 1\n"


@pytest.mark.parametrize(
    ("configuration", "error", "message"),
    [
        (lambda text: text.replace("name: web", "name: db"), RefusedError, "of another chart than web"),
        (lambda _: "a: [", ConfigurationError, "cannot be edited"),
        (lambda _: "", ConfigurationError, "cannot be edited"),
        (lambda _: "helmCharts: []", ConfigurationError, "cannot be edited"),
        (lambda _: "helmCharts: 7", ConfigurationError, "cannot be edited"),
    ],
)
def test_configuration_of_another_chart_is_not_changed(
    tmp_path: Path, configuration: Callable[[str], str], error: type[Exception], message: str
) -> None:
    web = vendored(tmp_path / "web")
    made = package_with(web, {}, "p")
    text = configuration(made["chart.yaml"].data.decode())

    with pytest.raises(error, match=message):
        package_with(web, {**made, "chart.yaml": File.of(text.encode())}, "p")


def test_only_what_changed_is_told_and_other_directories_are_refused(tmp_path: Path) -> None:
    web, target = vendored(tmp_path / "web"), tmp_path / "pkg"

    assert "chart.yaml" in write_package(web, target)
    assert write_package(web, target) == ()
    newer = vendored(tmp_path / "web", METADATA.replace("1.0.0", "1.0.1"))
    assert write_package(newer, target) == ("chart.yaml", "charts/web/Chart.yaml")
    for name in ("Kptfile", "chart.yaml"):
        (target / name).rename(tmp_path / name)
        with pytest.raises(RefusedError, match="is not empty, and no package of a chart"):
            write_package(web, target)
        (tmp_path / name).rename(target / name)


@pytest.mark.parametrize(
    ("address", "version", "message"),
    [
        ("web", "1.0.0", "--version is for charts elsewhere"),
        ("none", "", "none does not exist"),
        (".git/web", "", ".git/web does not exist"),
        ("ftp://h/web", "", "ftp://h/web is no address that charts are read from"),
    ],
)
def test_address_that_no_chart_is_read_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, version: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    chart(tmp_path / "web")

    with pytest.raises(UsageError, match=message):
        read_chart(address, version, Policy(), tmp_path / "cache")


@pytest.mark.parametrize(
    ("chart", "remote"),
    [
        ("https://h/x.git", "https://h/x.git"),
        ("https://h/x.git//web/", "https://h/x.git"),
        ("https://h/x.git/b.git/web", "https://h/x.git/b.git"),
        (f"https://h/x.git{'/' * 100_000}\n", "https://h/x.git"),
    ],
)
def test_chart_of_a_repository_is_below_its_address(tmp_path: Path, chart: str, remote: str) -> None:
    with pytest.raises(RefusedError, match=rf"^{re.escape(remote)} is not an address that"):
        read_chart(chart, "", Policy(addresses=("https://elsewhere/",)), tmp_path)


UPDATE = "Update the chart web to"
CONFIGURATION = f"""\
metadata:
  annotations: {{{SOURCE}: "oci://h/web@{DIGEST}", {VERSIONS}: "^1"}}
helmCharts:
- chartArgs: {{name: web, version: "VERSION"}}
"""


@pytest.mark.parametrize(
    ("main", "tags", "released"),
    [
        ("1.1", {1: "1.0"}, "v2 1.0 -> 1.1"),
        ("1.1", {2: "1.1", 1: "1.0"}, "v2, tagged, 1.0 -> 1.1"),
        ("1.1", {3: "1.1", 2: "1.0", 1: "1.1"}, "v3, tagged, 1.0 -> 1.1"),
        ("1.1", {2: "0.9", 1: "1.0"}, "v3 0.9 -> 1.1"),
        ("1.1", {1: ""}, "v2  -> 1.1"),
        ("1.1", {1: "1.1"}, ""),
        ("1.1", {2: "1.1", 1: "1.1"}, ""),
        ("1.1", {}, ""),
        ("", {1: "1.0"}, ""),
        ("1.2", {1: "1.0"}, ""),
    ],
)
def test_revision_is_released_where_a_merged_pull_request_brought_its_chart(
    main: str, tags: dict[int, str], released: str
) -> None:
    versions = {Oid(version): version for version in (main, *tags.values())}
    revisions = [
        PackageRevision("web", f"v{n}", n, Lifecycle.PUBLISHED, tag_ref("web", n), COMMIT, Oid(version))
        for n, version in tags.items()
    ]
    package = a_package(main_tree=Oid(main), published=tuple(sorted(revisions, key=lambda r: r.revision)))
    view = repository("blueprints", packages={"web": package})
    mirror: Any = SimpleNamespace(
        blob_at=lambda tree, _: tree if versions[tree] else None,
        ensure=lambda _: None,
        blob=lambda blob, _: CONFIGURATION.replace("VERSION", versions[blob]).encode(),
    )
    inputs: Any = SimpleNamespace(
        inventory=world(views=(view,)), mirrors=SimpleNamespace(open=lambda _: None)
    )
    ours = a_pull(PullState.MERGED, head="reconciler/default/chart/web/next", title=f"{UPDATE} 1.1")

    def find(pull: PullRequest) -> str:
        found = find_released(view, "web", mirror, [pull], inputs)
        if found is None:
            return ""
        tagged = ", tagged," if found.is_tagged else ""
        return f"v{found.number}{tagged} {found.chart.before} -> {found.chart.after}"

    assert find(ours) == released
    for other in ({"state": PullState.CLOSED}, {"head": "drafts/web/w"}, {"title": f"{UPDATE} 1.0"}):
        assert find(replace(ours, **other)) == ""


def test_manifests_that_name_a_revision_are_those_of_its_repository_in_its_namespace() -> None:
    named = {"repo": "blueprints", "package": "web", "revision": 1}
    rows = [
        ("same", {}), ("other-revision", {"revision": 2}), ("other-package", {"package": "db"}),
        ("other-repository", {"repo": "edge"}), ("other-namespace", {}),
    ]  # fmt: skip
    variants = [variant(name, upstream=named | more, at=source(f"{name}.yaml")) for name, more in rows]
    variants[-1] = replace(variants[-1], key=ObjectName("team", "other-namespace"))
    fleet = package_set(spec={"upstream": named, "targets": []}, at=source("set.yaml"))
    view = repository("blueprints", packages={"web": a_package()})

    places = _places(world(*variants, fleet, views=(view,)), view, "web", 1)

    assert [path for path, *_ in places] == ["same.yaml", "set.yaml"]
