"""The `index` commands on a working copy: what they write, what they refuse, what they list."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from reconciler.base.errors import ConfigurationError, RefusedError, UsageError
from reconciler.cli.index import index
from tests.support.dependency_manifests import package
from tests.support.schema import output_violations
from tests.support.world import git

MYSQL = "io.cnab.interface.mysql"
BUNDLE = """schemaType: Bundle
name: NAME
version: 1.0.0
dependencies:
  provides:
  - {interface: io.cnab.interface.mysql, version: 5.7.9}
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    root = tmp_path / "control"
    root.mkdir()
    git(root, "init", "-q")
    (root / "index/folder.yaml").mkdir(parents=True)
    for name in ("helm", "azure"):
        (tmp_path / f"{name}.yaml").write_text(BUNDLE.replace("NAME", name))
        run(root, "add", f"r.io/{name}", "1.0.0", "--manifest", str(tmp_path / f"{name}.yaml"))
    return root


def invoke(root: Path, command: str, *arguments: str) -> Result:
    return CliRunner().invoke(index, [command, "--control", str(root), *arguments], standalone_mode=False)


def run(root: Path, command: str, *arguments: str) -> list[str]:
    result = invoke(root, command, *arguments)
    assert result.exception is None, result.exception
    return result.output.splitlines()


def files(root: Path) -> list[str]:
    return sorted(p.relative_to(root).as_posix() for p in (root / "index").rglob("*") if p.is_file())


def test_a_version_is_a_folder_and_nothing_is_committed(copy: Path) -> None:
    run(copy, "add", "x.io/aws", "v1.2.0", "--provides", "s3.io/v1/Bucket", "--label", "team=cloud")

    assert files(copy) == [
        "index/r.io/azure/1.0.0/azure.yaml",
        "index/r.io/azure/1.0.0/version.yaml",
        "index/r.io/helm/1.0.0/helm.yaml",
        "index/r.io/helm/1.0.0/version.yaml",
        "index/x.io/aws/v1.2.0/version.yaml",
    ]
    assert (copy / "index/x.io/aws/v1.2.0/version.yaml").read_text() == (
        "apiVersion: reconciler.dev/v1alpha1\nkind: PackageVersion\nsource: x.io/aws\nversion: v1.2.0\n"
        "provides:\n- s3.io/v1/Bucket\nlabels:\n  team: cloud\n"
    )
    assert "?? index/" in git(copy, "status", "--porcelain")
    assert run(copy, "show", "x.io/aws") == [
        "xpkg:x.io/aws v1.2.0  index/x.io/aws/v1.2.0/version.yaml:1",
        "  provides s3.io/v1/Bucket",
    ]


def test_the_list_is_filtered_and_marks_the_default_of_its_layer(copy: Path) -> None:
    run(copy, "add", "x.io/aws", "v1.2.0", "--keyword", "cloud")
    run(copy, "set-default", MYSQL, "bundle:r.io/helm")
    run(copy, "set-default", MYSQL, "bundle:r.io/azure", "--environment", "production")

    tail = f"  1.0.0  implements {MYSQL}"
    assert run(copy, "list", "--interface", MYSQL) == [
        f"  bundle:r.io/azure{tail}",
        f"* bundle:r.io/helm{tail}",
    ]
    assert run(copy, "list", "--interface", MYSQL, "--environment", "production")[0][0] == "*"
    assert run(copy, "list", "--keyword", "cloud") == ["  xpkg:x.io/aws  v1.2.0"]
    assert output_violations("IndexPackage", "\n".join(run(copy, "list", "--output", "json"))) == []
    assert run(copy, "list", "--name", "AZURE") == [f"  bundle:r.io/azure{tail}"]
    assert run(copy, "list", "--label", "team=none") == ["No package in the index matches."]


def test_adding_with_an_interface_chooses_it_and_removing_forgets_it_everywhere(copy: Path) -> None:
    run(copy, "set-default", MYSQL, "bundle:r.io/helm", "--cluster", "prod-2")
    run(copy, "set-default", MYSQL, "bundle:r.io/helm")
    manifest = copy.parent / "helm.yaml"
    manifest.write_text(manifest.read_text().replace("version: 1.0.0", "version: 1.1.0"))
    run(copy, "add", "r.io/helm", "1.1.0", "--manifest", str(manifest), "--interface", MYSQL)

    run(copy, "remove", "r.io/helm", "1.1.0")
    assert "index/defaults.yaml" in files(copy)
    run(copy, "remove", "bundle:r.io/helm")
    assert files(copy) == ["index/r.io/azure/1.0.0/azure.yaml", "index/r.io/azure/1.0.0/version.yaml"]
    assert not (copy / "index/r.io/helm").exists()


PLURAL = "io.cnab.interfaces.mysql"


@pytest.mark.parametrize("written", [MYSQL, PLURAL, "mysql"])
def test_an_interface_is_one_in_each_of_its_spellings(copy: Path, written: str) -> None:
    assert run(copy, "set-default", written, "bundle:r.io/helm") == [
        f"{MYSQL} is bundle:r.io/helm in index/defaults.yaml"
    ]
    assert run(copy, "list", "--interface", written) == [
        f"  bundle:r.io/azure  1.0.0  implements {MYSQL}",
        f"* bundle:r.io/helm  1.0.0  implements {MYSQL}",
    ]


def test_a_default_that_a_person_writes_in_the_plural_counts_and_two_spellings_must_agree(copy: Path) -> None:
    layer = copy / "index/defaults.yaml"
    head = "apiVersion: reconciler.dev/v1alpha1\nkind: PackageIndex\ndefaults:\n"
    layer.write_text(f"{head}  {PLURAL}: bundle:r.io/azure\n")
    assert run(copy, "list", "--interface", MYSQL)[0].startswith("* bundle:r.io/azure")

    layer.write_text(f"{head}  {PLURAL}: bundle:r.io/azure\n  mysql: bundle:r.io/helm\n")
    result = invoke(copy, "list", "--interface", MYSQL)
    assert (
        f"index/defaults.yaml:5:10: InvalidManifest: mysql is {MYSQL}, which is bundle:r.io/azure"
        in " ".join(result.stderr.split())
    )
    assert "*" not in result.stdout


@pytest.mark.parametrize(
    ("arguments", "added"),
    [
        (("r.io/new", "1.0.0", "--interface", PLURAL), "bundle:r.io/new"),
        (("bundle:r.io/new", "1.0.0"), "bundle:r.io/new"),
        (("carvel:new.io", "1.0.0"), "carvel:new.io"),
        (("git@h.io:acme/new.git", "v1.0.0"), "xpkg:https://h.io/acme/new"),
        (("r.io/new", "1.0.0"), "xpkg:r.io/new"),
    ],
)
def test_what_is_added_without_a_manifest_has_the_ecosystem_that_is_meant(
    copy: Path, arguments: tuple[str, ...], added: str
) -> None:
    assert run(copy, "add", *arguments)[0].startswith(f"added {added} ")
    assert any(line.removeprefix("*").strip().startswith(f"{added} ") for line in run(copy, "list"))


@pytest.mark.parametrize(
    "source", ["ssh://git@h.io/acme/new.git", "git@h.io:acme/new.git", "https://h.io/acme/new"]
)
def test_a_git_source_has_the_folder_of_its_repository(copy: Path, source: str) -> None:
    run(copy, "add", source, "v1.0.0")

    assert "index/h.io/acme/new/v1.0.0/version.yaml" in files(copy)


def test_a_bundle_that_is_added_for_an_interface_implements_it_and_is_its_default(copy: Path) -> None:
    run(copy, "add", "r.io/new", "1.0.0", "--interface", PLURAL, "--environment", "dev")

    listed = run(copy, "list", "--interface", "mysql", "--environment", "dev")
    assert listed[2] == f"* bundle:r.io/new  1.0.0  implements {MYSQL}"
    assert run(copy, "list", "--interface", "mysql")[2].startswith(" ")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("add", "r.io/helm", "1.0.0"), RefusedError),
        (("add", "../../etc", "1.0.0"), UsageError),
        (("add", "/etc", "1.0.0"), UsageError),
        (("add", "x.io/aws", "not a version"), ConfigurationError),
        (("show", "gone"), UsageError),
        (("remove", "r.io/helm", "9.0.0"), UsageError),
        (("set-default", MYSQL, "helm"), UsageError),
        (("set-default", MYSQL, "bundle:x", "--cluster", "a", "--environment", "b"), UsageError),
        (
            ("add", "r.io/x", "1.0.0", "--interface", MYSQL, "--cluster", "a", "--environment", "b"),
            UsageError,
        ),
        (("add", "kpt:r.io/x", "1.0.0"), ConfigurationError),
        (("list", "--label", "team"), UsageError),
    ],
)
def test_what_cannot_be_meant_is_refused_and_nothing_is_written(
    copy: Path, arguments: tuple[str, ...], error: type[Exception]
) -> None:
    before = files(copy)

    assert isinstance(invoke(copy, *arguments).exception, error)
    assert files(copy) == before


def test_only_a_working_copy_has_an_index_to_change(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--bare", "bare.git")

    assert isinstance(invoke(tmp_path / "bare.git", "list").exception, UsageError)


PACKAGE = """apiVersion: data.packaging.carvel.dev/v1alpha1
kind: Package
metadata: {name: db.io.VERSION}
spec: {refName: db.io, version: VERSION}
"""
CONFIGURATION = """apiVersion: meta.pkg.crossplane.io/v1
kind: Configuration
metadata: {name: platform}
spec: {dependsOn: [{provider: x.io/aws, version: '>=v1.0.0'}]}
"""
CRD = """---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: buckets.s3.io}
spec: {group: s3.io, names: {kind: Bucket, plural: buckets}, versions: [{name: v1, served: true, schema: {}}]}
"""


def test_import_takes_names_and_versions_from_the_files_and_says_what_is_there(copy: Path) -> None:
    given = copy.parent / "given"
    repository = "apiVersion: packaging.carvel.dev/v1alpha1\nkind: PackageRepository\nmetadata: {name: r}\n"
    inline = "".join(f"        {line}\n" for line in PACKAGE.replace("VERSION", "3.0.0").splitlines())
    for path, text in {
        "packages/stream.yaml": "---\n".join(PACKAGE.replace("VERSION", v) for v in ("1.0.0", "2.0.0")),
        "repository.yml": f"{repository}spec:\n fetch:\n  inline:\n   paths:\n    a.yml: |\n{inline}",
        "platform/v1.2.0/package.yaml": CONFIGURATION + CRD,
        "shop/bundle.json": '{"name": "shop", "reference": "r.io/shop", "version": "1.0.0"}',
        "values.yaml": "a: 1",
        "chart/Chart.yaml": "name: chart",
        "chart/templates/deployment.yaml": "{{ .Values.a }}",
        "config/overlay.yaml": "a: 1\na: 2",
        "platform/v1.2.0/examples/broken.yaml": "a: [",
        "platform/v1.2.0/chart/Chart.yaml": "name: chart",
        "platform/v1.2.0/chart/crds/more.yaml": CRD.replace("buckets", "others"),
    }.items():
        (given / path).parent.mkdir(parents=True, exist_ok=True)
        (given / path).write_text(text)

    first = run(copy, "import", str(given), "--source", "x.io/*")
    again = run(copy, "import", str(given), "--source", "x.io/*")

    assert first == ["11 files: 5 versions added, 0 there already, of 3 packages"]
    assert again == ["11 files: 0 versions added, 5 there already, of 3 packages"]
    assert run(copy, "show", "db.io")[0].startswith("carvel:db.io 1.0.0")
    assert run(copy, "show", "xpkg:x.io/platform")[1:] == [
        "  needs x.io/aws >=v1.0.0",
        "  provides s3.io/buckets",
        "  provides s3.io/v1/Bucket",
    ]
    (given / "platform/v1.2.0/package.yaml").write_text(CONFIGURATION.replace("v1.0.0", "v1.1.0"))
    assert (
        "exists already, with other content"
        in invoke(copy, "import", str(given), "--source", "x.io/*").output
    )
    assert "what the package is called" in invoke(copy, "import", str(given / "platform")).output


@pytest.mark.parametrize(
    ("path", "text", "told"),
    [
        ("packages/db.yaml", PACKAGE + "kind: twice", ""),
        ("platform/v1.2.0/crossplane.yaml", "a: [", ""),
        ("platform/v1.2.0/apis/broken.yaml", "a: [", ""),
        ("porter.yaml", "version: 0.1.0\nregistry: x.io\n", "1: MissingField: The file does not say what"),
        ("shop.yaml", PACKAGE.replace("{refName: db.io,", "\n {refName: db.io,"), "5:28: InvalidVersion"),
    ],
)  # fmt: skip
def test_a_broken_file_that_may_be_of_a_package_is_a_problem_at_its_place(
    copy: Path, path: str, text: str, told: str
) -> None:
    given = copy.parent / "given"
    for name, content in {"platform/v1.2.0/package.yaml": CONFIGURATION, path: text}.items():
        (given / name).parent.mkdir(parents=True, exist_ok=True)
        (given / name).write_text(content)

    imported = invoke(copy, "import", str(given), "--source", "x.io/*")

    assert f"problem: {given}/{path}:{told}" in imported.output
    assert imported.output.count("problem:") == 1


def test_two_files_of_one_version_name_each_other_and_none_is_taken(copy: Path, tmp_path: Path) -> None:
    stream = PACKAGE.replace("VERSION", "1.0.0")
    (tmp_path / "a.yaml").write_text(stream)
    (tmp_path / "b.yaml").write_text(stream.replace("spec: {", "spec: {licenses: [free], "))

    imported = invoke(copy, "import", str(tmp_path / "a.yaml"), str(tmp_path / "b.yaml")).output

    assert (
        f"b.yaml:1: InvalidManifest: {tmp_path}/a.yaml:1 is db.io 1.0.0, too, with other content" in imported
    )


OTHER = ", with other content"
UNNAMED = "The file does not say what the package is called in its registry"


def test_what_is_wrong_with_several_files_for_one_cause_is_one_problem(copy: Path, tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    (given / "db.yaml").write_text(PACKAGE.replace("VERSION", "1.0.0"))
    invoke(copy, "import", str(given))
    for name in ("db.yaml", "again.yaml"):
        (given / name).write_text(
            PACKAGE.replace("VERSION", "1.0.0").replace("spec: {", "spec: {licenses: [free], ")
        )
    for name in ("aws", "gcp"):
        (given / name).mkdir()
        (given / name / "crossplane.yaml").write_text(CONFIGURATION)

    imported = invoke(copy, "import", str(given)).output.splitlines()

    assert imported[:-1] == [
        f"problem: InvalidManifest: 2, all for one cause: index/db.io/1.0.0 exists already{OTHER}",
        f"  {given}/again.yaml:1",
        f"  {given}/db.yaml:1",
        "  hint: Remove that version first, or add another one.",
        f"problem: MissingField: 2, all for one cause: {UNNAMED}",
        f"  {given}/aws/crossplane.yaml:1: Configuration platform",
        f"  {given}/gcp/crossplane.yaml:1: Configuration platform",
        "  hint: Name it: `--source REGISTRY/NAME`, where an asterisk stands for the name in the manifest.",
    ]


def test_a_package_with_two_manifests_is_not_guessed(copy: Path, tmp_path: Path) -> None:
    for name in ("crossplane.yaml", "upbound.yaml"):
        (tmp_path / "new" / "v1.0.0").mkdir(parents=True, exist_ok=True)
        (tmp_path / "new" / "v1.0.0" / name).write_text(CONFIGURATION)

    both = invoke(copy, "import", str(tmp_path / "new"), "--source", "x.io/*")
    alone = run(copy, "import", str(tmp_path / "new/v1.0.0/upbound.yaml"), "--source", "x.io/*")

    assert "crossplane.yaml:1: InvalidManifest: upbound.yaml describes the package of this directory" in (
        both.output
    )
    assert "1 file: 1 version added" in alone[0]


def test_import_makes_a_version_of_every_tag_of_a_repository(copy: Path) -> None:
    upstream = copy.parent / "upstream"
    upstream.mkdir()
    git(upstream, "init", "-q")
    for tag in ("v1.0.0", "v1.1.0", "latest"):
        (upstream / "crossplane.yaml").write_text(CONFIGURATION.replace(">=v1.0.0", f">={tag}"))
        (upstream / "apis").mkdir(exist_ok=True)
        (upstream / "apis/crd.yaml").write_text(CRD)
        (upstream / "examples").mkdir(exist_ok=True)
        (upstream / "examples/crd.yaml").write_text(CRD.replace("bucket", "sample"))
        git(upstream, "add", ".")
        git(upstream, "commit", "-qm", tag)
        git(upstream, "tag", tag)

    said = run(copy, "import", "--git", str(upstream), "--source", "x.io/platform")

    assert said == ["2 tags: 2 versions added, 0 there already, of 1 package"]
    shown = run(copy, "show", "x.io/platform")
    assert [line for line in shown if "needs" in line] == [
        "  needs x.io/aws >=v1.0.0",
        "  needs x.io/aws >=v1.1.0",
    ]
    provided = {line for line in shown if "provides" in line}
    assert provided == {"  provides s3.io/buckets", "  provides s3.io/v1/Bucket"}, "no examples"


def test_import_of_a_repository_without_versions_names_the_way_that_is_left(copy: Path) -> None:
    """Source: getporter/examples has no tag, and a registry with a slash at its end."""
    upstream = copy.parent / "examples"
    upstream.mkdir()
    git(upstream, "init", "-q")
    (upstream / "porter.yaml").write_text(
        "schemaVersion: 1.0.0\nname: e/assets\nversion: 0.1.0\nregistry: ghcr.io/porter/\n"
    )
    git(upstream, "add", ".")
    git(upstream, "commit", "-qm", "all")

    untagged = invoke(copy, "import", "--git", str(upstream)).exception

    assert isinstance(untagged, UsageError)
    assert str(untagged) == "The repository has no tag that is a version"
    assert untagged.hint == "Clone it and import a directory: `reconciler index import PATH`."
    run(copy, "import", str(upstream))
    assert "  bundle:ghcr.io/porter/e/assets  0.1.0" in run(copy, "list")


def test_import_takes_the_packages_of_every_tag_of_a_package_repository(copy: Path) -> None:
    """A tag has the packages of the tags before it, too."""
    upstream = copy.parent / "shop"
    upstream.mkdir()
    git(upstream, "init", "-q")
    for version in ("1.0.0", "1.1.0"):
        for root in ("packages", "repo/packages"):
            (upstream / root / "web.io").mkdir(parents=True, exist_ok=True)
            (upstream / root / f"web.io/{version}.yml").write_text(package("web.io", version))
        git(upstream, "add", ".")
        git(upstream, "commit", "-qm", version)
        git(upstream, "tag", f"v{version}")
    git(upstream, "tag", "v2.0.0")

    below = run(copy, "import", "--git", str(upstream), "--path", "repo/packages/")
    again = run(copy, "import", "--git", str(upstream))

    assert below == ["3 tags: 2 versions added, 1 there already, of 1 package"]
    assert again == ["3 tags: 0 versions added, 3 there already, of 1 package"]
    assert "  carvel:web.io  1.1.0, 1.0.0" in run(copy, "list")
    none = invoke(copy, "import", "--git", str(upstream), "--path", "none").exception
    assert isinstance(none, UsageError)
    assert none.hint == "Name the manifest, or the directory of Carvel packages, with `--path`."
