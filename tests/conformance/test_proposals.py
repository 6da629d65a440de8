"""The examples of the proposals of package dependencies, fed in as they are, with what the proposals say."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from pydantic import BaseModel

from reconciler.api import carvel as carvel_api
from reconciler.api import crossplane as crossplane_api
from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.cli.index import index
from reconciler.dependencies.catalog.cluster_inputs import FleetInputs
from reconciler.dependencies.dialects import read_manifest
from reconciler.dependencies.lock.format import DEFAULT_OPTIONS, ClusterLock, ResolveOptions, read_locks
from reconciler.dependencies.lock.update import update_locks
from reconciler.dependencies.model.cluster import ClusterInputs
from reconciler.dependencies.model.packages import Actions, InstallationType
from reconciler.dependencies.solve.resolve import resolve_cluster
from reconciler.inventory.inventory import Source
from reconciler.krm.yaml import load_documents
from reconciler.render.delivery import generate_manifests
from tests.support.conformance import VARIABLE, named_folder, skip_absent
from tests.support.dependency_manifests import (
    bundle,
    crossplane,
    install,
    installation,
    needs,
    package,
    provider,
    resolved,
    world_of,
)
from tests.support.values import replace
from tests.support.world import git

CARVEL, PORTER, CROSSPLANE = "002", "003", "004"


def proposal(number: str) -> str:
    """Return the text of one proposal; skip the test if it is absent, or fail it in CI."""
    folder = named_folder().parent / "seeds"
    files = sorted(folder.glob(f"{number}_*.txt"))
    if not files:
        skip_absent(f"needs the proposals beside the vectors that {VARIABLE} names ({number}, in {folder})")
    return files[0].read_text(encoding="utf-8")


def example(number: str, heading: str, place: int = 0) -> str:
    """Return one of the code blocks behind a heading, the first unless `place` says otherwise."""
    text = proposal(number)
    behind = text[text.index(heading) + len(heading) :]
    return re.findall(r"```[\w=]*\s(.*?)```", behind, re.DOTALL)[place].strip()


def documents(number: str, heading: str, place: int = 0, layout: str = "") -> list[dict[str, Any]]:
    """Return the YAML documents of an example, with the line breaks of its layout if it has one."""
    text = example(number, heading, place)
    return list(yaml.safe_load_all("\n".join(_lines(text, layout)) if layout else text))


def _lines(text: str, layout: str) -> Iterator[str]:
    words = iter(text.split())
    for line in layout.split():
        indent, count = map(int, line.split(":"))
        yield " " * indent + " ".join(next(words) for _ in range(count))
    assert next(words, None) is None, "the layout is of another text"


def commands(heading: str, place: int = 0) -> list[list[str]]:
    """Return the words of each command of an example of Porter's, without `$ porter`."""
    lines = example(PORTER, heading, place).splitlines()
    return [line.split()[2:] for line in lines if line.startswith("$ porter ")]


def struct_fields(name: str, place: int = 0) -> list[str]:
    """Return the names on disk of the fields of a Go struct in Crossplane's proposal."""
    text = proposal(CROSSPLANE)
    found = re.findall(rf"type {name} struct {{(.*?)\n}}", text, re.DOTALL)[place]
    return [field for field in re.findall(r'json:"([^",]*)', found) if field]


def schema_fields(heading: str) -> set[str]:
    """Return the names of the fields in a schema of Carvel's proposal."""
    words = set(re.findall(r"([a-zA-Z0-9]+):", example(CARVEL, heading)))
    return words - set(_SCHEMA_WORDS.split())


_SCHEMA_WORDS = """
apiVersion description default enum items kind metadata name names properties required schema spec status
type versions group listKind plural singular scope shortNames categories openAPIV3Schema
"""


HERE = Source(Location("config/example.yaml", 1))


def text_of(*parts: dict[str, Any]) -> str:
    """Return documents as one text."""
    return "".join(f"---\n{yaml.safe_dump(part, sort_keys=False)}" for part in parts)


def locked_after(*texts: str, options: ResolveOptions = DEFAULT_OPTIONS) -> tuple[ClusterInputs, ClusterLock]:
    """Decide one text after the other, each from the last lock; the options are for the last."""
    files: dict[str, bytes] = {}
    for text in texts:
        world = replace(world_of(text), cluster="one")
        asked = options if text is texts[-1] else DEFAULT_OPTIONS
        files = dict(update_locks(FleetInputs((world,)), read_locks(files), options=asked).files)
    return world, read_locks(files).by_cluster["one"]


def pins(locked: ClusterLock) -> dict[str, str]:
    return {p.instance.name: p.version for p in locked.resolution.packages}


def generated(text: str) -> dict[str, Any]:
    world, locked = locked_after(text)
    found = generate_manifests(world, locked, owner="main/default/x@one")
    assert found.problems == ()
    return {path: load_documents(data)[0].value for path, data in found.files.items()}


# Carvel: packaging API dependency management

PACKAGE_LAYOUT = (
    "0:2 0:2 0:1 2:2 0:1 2:2 2:2 2:2 2:1 4:1 4:2 6:2 10:2 10:2 6:2 10:2 10:2 4:2 8:2 8:2 4:2 8:2 8:2 6:2"
)
INSTALL_LAYOUT = (
    "0:2 0:2 0:1 2:2 0:1 2:2 2:1 4:2 4:1 6:2 2:1 4:1 4:3 6:1 8:2 4:3 6:8 4:1 4:3 6:1 8:2 4:3 6:1 8:2 0:1 2:1 "
    "2:3 2:3"
)
CREATED_LAYOUT = "0:2 0:2 0:1 2:2 2:1 4:2 0:1 2:2 2:1 4:2 4:1 6:2 2:1 4:1 6:2"
SEARCH_LAYOUT = (
    "0:2 0:2 0:1 2:2 0:1 2:2 2:2 2:1 2:2 6:2 6:2 6:2 0:1 0:2 0:2 0:1 2:2 0:1 2:2 2:2 2:1 2:2 6:2 6:2"
)
OTHERS = (
    package("pkg2.test.carvel.dev", "1.1.0")
    + package("pkg3.test.carvel.dev", "0.1.0")
    + package("pkg3.test.carvel.dev", "0.2.0")
    + package("pkg4.test.carvel.dev", "0.2.0")
)
SERVED = "---\n{kind: Cluster, apis: [some.api.org/v1/MainAPI]}\n"


def carvel_package() -> str:
    return text_of(*documents(CARVEL, "Package Example:", layout=PACKAGE_LAYOUT))


def carvel_install() -> str:
    return text_of(*documents(CARVEL, "PackageInstall Example:", layout=INSTALL_LAYOUT))


def disk_names(*models: type[BaseModel]) -> set[str]:
    return {field.alias or name for model in models for name, field in model.model_fields.items()}


def test_carvel_schema_of_a_package() -> None:
    models = (
        carvel_api.CarvelPackageSpec,
        carvel_api.Dependency,
        carvel_api.GroupVersionKind,
        carvel_api.PackageReference,
    )
    words = proposal(CARVEL)

    assert schema_fields("Updated Package API") <= disk_names(*models)
    for type_ in InstallationType:
        assert f"- {type_}" in words
    assert carvel_api.CarvelPackageSpec.model_fields["installation_type"].default == "noRestrictions"


def test_carvel_schema_of_a_package_install() -> None:
    models = (
        carvel_api.PackageInstallSpec,
        carvel_api.InstallDependencies,
        carvel_api.DependencyOverride,
        carvel_api.DependencyValues,
        carvel_api.VersionSelection,
        carvel_api.PrereleaseSelection,
        carvel_api.SecretKeyRef,
    )
    status = {"created", "package", "packageInstallRef", "gvk", "providedBy", "version"}

    assert schema_fields("Updated PackageInstall API") <= disk_names(*models) | status
    assert carvel_api.InstallDependencies().install


def test_carvel_package_and_its_install() -> None:
    found = resolved(carvel_package() + carvel_install() + OTHERS)

    assert "carvel:pkg.test.carvel.dev@install/default/pkg-demo 1.0.0 for user" in found
    assert "carvel:pkg2.test.carvel.dev@namespace/default 1.1.0" in found
    assert "carvel:pkg3.test.carvel.dev@namespace/default 0.1.0" in found
    assert "skipped pkg4.test.carvel.dev 0.2.0" in found
    assert "pkg4.test.carvel.dev@" not in found


def test_carvel_alternative_that_is_there() -> None:
    found = resolved(carvel_package() + carvel_install() + OTHERS + SERVED)

    assert "<- api:cluster (snapshot)" in found
    assert "pkg2.test.carvel.dev@" not in found


def test_carvel_words_about_what_is_no_dependency() -> None:
    solution = resolve_cluster(world_of(carvel_package() + carvel_install() + OTHERS))

    message = (
        "pkg.test.carvel.dev 1.0.0 has no dependency pkg1.test.carvel.dev, "
        "so what is said about it has no effect"
    )
    assert [warning.message for warning in solution.warnings] == [message, message]


def test_carvel_one_per_cluster() -> None:
    second = carvel_install().replace("name: pkg-demo", "name: pkg-demo\n  namespace: other")

    solution = resolve_cluster(world_of(carvel_package() + carvel_install() + second + OTHERS))
    (explanation,) = solution.explanations
    assert [problem.subject for problem in solution.problems] == ["PackageInstall other/pkg-demo"]
    assert "PackageInstall default/pkg-demo" in str(explanation)
    assert "PackageInstall other/pkg-demo" in str(explanation)


def test_carvel_created_install() -> None:
    (shown,) = documents(CARVEL, "automatically created", layout=CREATED_LAYOUT)
    own = generated(carvel_package() + carvel_install() + OTHERS)[
        "packageinstalls/default/pkg3.test.carvel.dev.yaml"
    ]

    owner = "kapp-controller.carvel.dev/owner"
    assert own["metadata"]["annotations"][owner] == shown["metadata"]["annotations"][owner]
    assert own["spec"]["serviceAccountName"] == shown["spec"]["serviceAccountName"]
    assert own["spec"]["packageRef"]["refName"] == shown["spec"]["packageRef"]["refName"]
    assert own["spec"]["packageRef"]["versionSelection"] == {"constraints": "0.1.0"}
    assert own["spec"]["values"] == [shown["spec"]["values"]]
    assert own["metadata"]["name"] == shown["spec"]["packageRef"]["refName"]


def test_carvel_created_install_as_a_manifest() -> None:
    (shown,) = documents(CARVEL, "automatically created", layout=CREATED_LAYOUT)
    reading = read_manifest(shown, HERE)

    assert reading is not None
    assert [str(install.need) for install in reading.installs] == ["pkg3.test.carvel.dev 1.0.0"]
    assert [warning.message for warning in reading.warnings] == ["values is read as a list of one"]


def test_carvel_resolution_one_install_at_a_time() -> None:
    sentence = re.search(
        r"When (\w+) depends on (\w+) and (\w+), while (\w+) depends on (\w+)", proposal(CARVEL)
    )
    assert sentence is not None
    root, first, second, parent, deep = (f"{word}.io" for word in sentence.groups())
    text = package(root, "1.0.0", needs(first), needs(second)) + package(parent, "1.0.0", needs(deep))
    text += package(second, "1.0.0") + package(deep, "1.0.0") + install("demo", root, "")
    _, locked = locked_after(text)

    packages = locked.resolution.packages
    owners = {p.instance.name: str(p.owner) if p.owner else "user" for p in packages if p.owner or p.by_user}
    demo = f"carvel:{root}@install/prod/demo"
    assert owners == {root: "user", first: demo, second: demo, deep: f"carvel:{parent}@namespace/prod"}


@pytest.mark.parametrize("discovery", [True, False])
def test_carvel_search_for_the_provider_of_an_api(discovery: bool) -> None:
    both = text_of(*documents(CARVEL, "Automatic search and installation", layout=SEARCH_LAYOUT))
    choices = f"---\n{{kind: Cluster, choices: {{discovery: {str(discovery).lower()}}}}}\n"
    found = resolved(both + choices + install("demo", "some-pkg.test.carvel.dev", ""))

    assert ("carvel:provider.carvel.dev@namespace/prod 1.0.0" in found) is discovery


# Porter: dependency namespaces and labels


def porter_bundle(name: str, heading: str, place: int = 0, **more: Any) -> str:
    (section,) = documents(PORTER, heading, place)
    head = {"schemaType": "Bundle", "repository": f"r.io/{name}", "name": name, "version": "1.0.0"}
    return text_of({**head, **more, **section})


def test_porter_exclusive_resource() -> None:
    own = porter_bundle("app", "#### Solution: Exclusive Resource")
    found = resolved(own + installation("a", "app") + installation("b", "app") + bundle("redis", "6.0.0"))

    assert "bundle:r.io/redis@for/prod/a/redis 6.0.0" in found
    assert "bundle:r.io/redis@for/prod/b/redis 6.0.0" in found


def test_porter_global_resource() -> None:
    operator = porter_bundle("operator", "#### Solution: Global Resource") + bundle("olm", "1.0.0")
    two = installation("a", "operator", "x") + installation("b", "operator", "y")

    assert resolved(operator + two).count("olm <- bundle:r.io/olm@shared (candidate)") == 2
    there = installation("olm", "olm", "")
    assert resolved(operator + two + there).count("olm <- bundle:r.io/olm@install/olm (global)") == 2
    near = installation("mine", "olm", "x")
    assert "olm <- bundle:r.io/olm@install/x/mine (installed)" in resolved(operator + two + there + near)


def test_porter_scoped_resource() -> None:
    heading = "#### Solution: Scoped Resource"
    services = "".join(porter_bundle(name, heading) + installation(name, name) for name in ("one", "two"))
    lone = installation("lone", "one", "other")
    other = porter_bundle("three", heading).replace("my-application", "else") + installation("three", "three")
    found = resolved(services + lone + other + bundle("postgres", "14.0.0"))

    assert found.count("<- bundle:r.io/postgres@shared/prod/app=my-application (candidate)") == 2
    assert found.count("bundle:r.io/postgres@shared/prod/app=else 14.0.0") == 1
    assert found.count("bundle:r.io/postgres@shared/other/app=my-application 14.0.0") == 1


def test_porter_scoped_resource_has_its_labels() -> None:
    found = generated(
        porter_bundle("one", "#### Solution: Scoped Resource")
        + installation("one", "one")
        + bundle("postgres", "14.0.0")
    )

    (document,) = found.values()
    assert (document["namespace"], document["labels"]["app"]) == ("prod", "my-application")


PROVIDED = "#### Solution: User Provided Resource"


def test_porter_default_of_a_user_provided_resource() -> None:
    servers = "".join(
        bundle("sqlserver", version).replace("r.io/sqlserver", "azure/sqlserver")
        for version in ("1.2.3", "1.3.0")
    )
    found = resolved(porter_bundle("myapp", PROVIDED) + installation("myapp", "myapp") + servers)

    assert "sqlserver <- bundle:azure/sqlserver@shared (candidate)" in found
    assert "bundle:azure/sqlserver@shared 1.2.3" in found


def test_porter_user_provided_resource() -> None:
    (command,) = commands(PROVIDED, 2)
    alias, _, name = command[command.index("--dependency") + 1].partition("=")
    meta = porter_bundle(name, PROVIDED, 1)
    bound = f"custom: {{reconciler.dev/dependencies: {{{alias}: {name}}}}}"
    found = resolved(
        porter_bundle("myapp", PROVIDED)
        + installation("myapp", "myapp", more=bound)
        + meta
        + installation(name, name)
    )

    assert f"{alias} <- bundle:r.io/{name}@install/prod/{name} (binding)" in found


INTERFACE = "#### Solution: Polymorphic Resource"
BLOG = "blog"


def polymorphic() -> str:
    return porter_bundle("azure-mysql", INTERFACE, repository="r.io/azure-mysql") + porter_bundle(
        BLOG, INTERFACE, 1
    )


def test_porter_interface_of_what_is_installed() -> None:
    found = resolved(polymorphic() + installation(BLOG, BLOG) + installation("db", "azure-mysql"))

    assert "mysql <- bundle:r.io/azure-mysql@install/prod/db (installed)" in found


DEFAULT = "---\n{kind: Cluster, choices: {defaults: {io.cnab.interface.mysql: 'bundle:r.io/azure-mysql'}}}\n"


def test_porter_interface_of_the_default() -> None:
    assert "(default)" in resolved(polymorphic() + installation(BLOG, BLOG) + DEFAULT)
    assert resolve_cluster(world_of(polymorphic() + installation(BLOG, BLOG))).explanations


def test_porter_parameters_of_an_interface() -> None:
    (needed,) = documents(PORTER, INTERFACE, 1)
    (document,) = generated(polymorphic() + installation(BLOG, BLOG) + DEFAULT).values()

    assert document["bundle"]["repository"] == "r.io/azure-mysql"
    assert document["parameters"] == needed["dependencies"]["requires"][0]["parameters"]


def test_porter_interface_of_another_version() -> None:
    newer = polymorphic().replace("5.7.12", "8.0.1") + installation(BLOG, BLOG)

    assert resolve_cluster(world_of(newer + installation("db", "azure-mysql"))).explanations


@pytest.fixture
def index_copy(tmp_path: Path) -> Path:
    root = tmp_path / "control"
    root.mkdir()
    git(root, "init", "-q")
    return root


def indexed(root: Path, command: str, *arguments: str) -> list[str]:
    result = CliRunner().invoke(index, [command, "--control", str(root), *arguments], standalone_mode=False)
    assert result.exception is None, result.exception
    return result.stdout.splitlines()


def test_porter_index_add_list_and_remove(index_copy: Path) -> None:
    _, add = commands("#### Register a Bundle")
    source, interface = add[add.index("--repository") + 1], add[add.index("--interface") + 1]
    labels = ("--label", "app=mysql", "--keyword", "mysql")
    indexed(index_copy, "add", source, "1.0.0", "--interface", interface, *labels)
    indexed(index_copy, "add", "bundle:r.io/redis", "1.0.0")

    listed = f"* bundle:{source}  1.0.0  implements io.cnab.interface.mysql"
    _, *queries = commands("#### List Indexed Bundles")
    assert [words[2] for words in queries] == ["--name", "--label", "--interface", "--keyword"]
    for words in queries:
        assert indexed(index_copy, "list", *words[2:]) == [listed]

    ((*_, last),) = commands("#### Unregister a Bundle")
    assert last == "REPOSITORY"
    indexed(index_copy, "remove", source)
    assert indexed(index_copy, "list") == ["  bundle:r.io/redis  1.0.0"]
    assert not (index_copy / "index/defaults.yaml").exists()


LATER = "### Post-Install Dependency Management"
LOGGER = bundle("mylogger", "1.2.3", more="credentials: [{name: key}]").replace(
    "r.io/mylogger", "myorg/mylogger"
)


def managed(heading: str = "### Managed Dependency", place: int = 0) -> str:
    return porter_bundle("app", heading, place)


def test_porter_install_without_dependencies() -> None:
    (command,) = commands(LATER)
    assert command[-3:] == ["--dependencies=false", "--cred", "logger"]
    alone = "custom: {reconciler.dev/dependencies: false}\ncredentialSets: [logger]"
    _, locked = locked_after(managed() + installation("myapp", "app", more=alone))

    assert pins(locked) == {"r.io/app": "1.0.0"}


def test_porter_upgrade_without_dependencies() -> None:
    (command,) = commands(LATER, 1)
    assert command[-1] == "--dependencies=false"
    creds = "credentialSets: [logger]"
    loose = managed().replace("v1.2.3", "v1.x")
    before = loose + installation("myapp", "app", more=creds) + LOGGER
    newer = LOGGER.replace("version: 1.2.3", "version: 1.3.0") + loose.replace("1.0.0", "1.1.0")
    after = before.replace("version: 1.0.0}", "version: 1.1.0}") + newer

    alone = pins(locked_after(before, after, options=ResolveOptions(dependencies=False))[1])
    assert alone == {"r.io/app": "1.1.0", "myorg/mylogger": "1.2.3"}
    assert pins(locked_after(before, after)[1]) == {"r.io/app": "1.1.0", "myorg/mylogger": "1.3.0"}


def test_porter_uninstall_without_dependencies() -> None:
    (command,) = commands(LATER, 2)
    assert command[-1] == "--dependencies=false"
    creds, other = "credentialSets: [logger]", installation("other", "else") + bundle("else", "1.0.0")
    before = managed() + installation("myapp", "app", more=creds) + LOGGER + other
    after = managed() + LOGGER + other

    kept = pins(locked_after(before, after, options=ResolveOptions(dependencies=False))[1])
    assert kept == {"r.io/else": "1.0.0", "myorg/mylogger": "1.2.3"}
    assert pins(locked_after(before, after)[1]) == {"r.io/else": "1.0.0"}


@pytest.mark.parametrize(
    ("place", "actions"), [(0, Actions()), (1, Actions(upgrade=True, invoke=True, uninstall=False))]
)
def test_porter_managed_dependency(place: int, actions: Actions) -> None:
    (candidate, *_) = world_of(managed(place=place) + installation("app", "app")).catalogue.packages.values()
    (requirement,) = candidate[0].requires

    assert requirement.actions == actions


def test_porter_dependency_that_is_not_uninstalled() -> None:
    creds, other = "credentialSets: [logger]", installation("other", "else") + bundle("else", "1.0.0")
    section = managed(place=1)
    before = section + installation("app", "app", more=creds) + LOGGER + other
    _, locked = locked_after(before, section + LOGGER + other)

    assert pins(locked) == {"r.io/else": "1.0.0", "myorg/mylogger": "1.2.3"}
    assert [unused.name for unused in locked.resolution.unused] == ["myorg/mylogger"]


# Crossplane: packages v2


def test_crossplane_fields_of_a_package() -> None:
    values = {
        "package": "x.io/acme/aws:v1.0.0",
        "revisionActivationPolicy": "Manual",
        "revisionHistoryLimit": 0,
        "imagePullSecrets": [{"name": "pull"}],
        "imagePullPolicy": "Always",
        "serviceAccount": {"annotations": {"a": "b"}},
    }
    fields = {*struct_fields("PackageSpec"), *struct_fields("PackageControllerOptions", 1)}
    document = {"apiVersion": "pkg.crossplane.io/v1beta1", "kind": "Package", "metadata": {"name": "aws"}}
    reading = read_manifest({**document, "spec": values}, HERE)

    assert fields == values.keys()
    assert reading is not None
    (aws,) = reading.installs
    assert (aws.revisions.manual, aws.revisions.history_limit) == (True, 0)
    assert dict(aws.inherit).keys() == {"packagePullPolicy", "packagePullSecrets", "serviceAccount"}


def test_crossplane_fields_of_revisions_dependencies_and_locks() -> None:
    for struct, model in (
        ("PackageRevisionSpec", crossplane_api.RevisionSpec),
        ("Dependency", crossplane_api.MetaDependency),
        ("PackageLockSpec", crossplane_api.Lock),
        ("PackageDependencies", crossplane_api.LockPackage),
    ):
        assert set(struct_fields(struct)) <= disk_names(model), struct


@pytest.mark.parametrize("kind", ["ClusterPackageInstall", "PackageInstall", "StackDefinition"])
def test_crossplane_kinds_that_are_deprecated(kind: str) -> None:
    document = {"apiVersion": "packages.crossplane.io/v1alpha1", "kind": kind, "metadata": {"name": "old"}}
    reading = read_manifest(document, HERE)

    assert kind in proposal("004")
    assert reading is not None
    assert [problem.reason for problem in reading.problems] == [Reason.DEPRECATED_MANIFEST]


def test_crossplane_two_packages_with_the_same_crds() -> None:
    text = provider("pa", "v1.0.0") + provider("pb", "v1.0.0")
    text += "".join(crossplane(n, "v1.0.0", kinds="x.org/v1/CRD1 x.org/v1/CRD2") for n in ("pa", "pb"))
    decision = update_locks(FleetInputs((replace(world_of(text), cluster="one"),)), read_locks({}))
    locked = read_locks(dict(decision.files)).by_cluster["one"]

    assert pins(locked) == {"x.io/pa": "v1.0.0"}
    kinds = locked.resolution.custom_resource_definitions
    assert (len(kinds), len({owner.controller for owner in kinds.values()})) == (2, 1)
    assert next(iter(kinds.values())).controller.startswith("pa-")
    assert [str(problem.subject) for problem in decision.problems] == ["Provider pb"]


def test_every_example_has_its_row_in_the_documentation() -> None:
    table = (Path(__file__).parents[2] / "docs/contributing/requirements.md").read_text()
    named = set(re.findall(r"`(test_(?:carvel|porter|crossplane)_\w+)`", table))
    own = {name for name in globals() if re.match(r"test_(carvel|porter|crossplane)_", name)}

    assert named == own
