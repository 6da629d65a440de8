"""Manifests are read at a commit; what is wrong stalls its owner, names its place, and nothing else."""

from collections.abc import Callable

import pytest

from reconciler.api.porch import GROUP, GitRepository, Repository, RepositorySpec
from reconciler.base.reasons import Reason
from reconciler.names.ids import ObjectKey, ObjectName
from reconciler.policy import Policy
from reconciler.read.files import ParsedObject
from reconciler.read.manifests import Classification, Manifests, classify_object, read_manifests
from tests.support.control import FIRST, STEP_S, World

POLICY = Policy(default_namespace="platform")


def variant(name: str, **more: str) -> str:
    lines = [
        "apiVersion: config.porch.kpt.dev/v1alpha1",
        "kind: PackageVariant",
        "metadata:",
        f"  name: {name}",
        *(f"  {key}: {value}" for key, value in more.items()),
        "spec:",
        "  upstream:",
        "    repo: blueprints",
        "    package: web",
        "    revision: 1",
        "  downstream: {repo: edge, package: web}",
    ]
    return "\n".join(lines) + "\n"


GOOD = variant("good", namespace="default")
SET = "apiVersion: config.porch.kpt.dev/v1alpha2\nkind: PackageVariantSet\nmetadata:\n  name: web\nspec:\n"
REGISTRATION = """\
apiVersion: config.porch.kpt.dev/v1alpha1
kind: Repository
metadata:
  name: {name}
spec:
  git:
    repo: {repo}
    directory: "{directory}"
"""

Make = Callable[..., World]


def read(world: World, policy: Policy = POLICY) -> Manifests:
    return read_manifests(world.mirror, world.commit, policy)


def key(kind: str, namespace: str, name: str) -> ObjectKey:
    return ObjectKey(GROUP, kind, namespace, name)


def names(manifests: Manifests) -> list[str]:
    return [str(v.key) for v in manifests.variants]


def test_manifests_are_read_from_every_form_of_file(world: Make) -> None:
    manifests = read(
        world(
            {
                "a/two.yaml": f"{variant('a')}---\n# nothing\n---\n{variant('b')}",
                "b.yml": GOOD,
                "deep/er/c.json": '{"apiVersion": "config.porch.kpt.dev/v1alpha1", "kind": "PackageVariant",'
                '\n "metadata": {"name": "c"}}',
                "list.yaml": "apiVersion: v1\nkind: List\nitems:\n- " + variant("d").replace("\n", "\n  "),
                "notes.txt": variant("e"),
            }
        )
    )

    assert names(manifests) == ["default/good", "platform/a", "platform/b", "platform/c", "platform/d"]
    assert manifests.problems == ()
    assert {str(v.source.location) for v in manifests.variants} == {
        "a/two.yaml:1",
        "a/two.yaml:14",
        "b.yml:1",
        "deep/er/c.json:1",
        "list.yaml:4",
    }


def test_time_of_a_manifest_is_its_last_change(world: Make) -> None:
    manifests = read(world({"a.yaml": variant("a")}, {"a.yaml": variant("a"), "b.yaml": variant("b")}))

    assert [v.source.time for v in manifests.variants] == [FIRST, FIRST + STEP_S]


@pytest.mark.parametrize(
    "path",
    [".github/a.yaml", ".hidden.yaml", "snapshot/a.yaml", "index/a/a.yaml", "reconciler.yaml", "x/.y/a.yaml"],
)
def test_files_without_manifests_are_ignored(world: Make, path: str) -> None:
    assert read(world({path: "not: [yaml", "a.yaml": GOOD})).problems == ()


def test_only_manifest_paths_are_read(world: Make) -> None:
    made = world({"a/x.yaml": variant("a"), "b/y.yaml": variant("b"), "c.yaml": variant("c")})
    manifests = read(made, Policy(default_namespace="n", manifests=("a", "c.yaml", "absent")))

    assert names(manifests) == ["n/a", "n/c"]
    assert manifests.missing == ("absent",)
    assert manifests.files == {"a/x.yaml", "c.yaml"}


PORCH, X = "config.porch.kpt.dev/v1alpha1", "PackageVariant platform/x"
OLD_SET, SET_KEY = SET.replace("v1alpha2", "v1alpha1"), "PackageVariantSet platform/web"
NEW_FIELDS = "  targets:\n  - repositorySelector:\n      matchLabels: {a: b}\n"
NO_REPO = REGISTRATION.format(name="r", repo="x", directory="").replace("    repo: x\n", "")
BAD = {
    "not YAML": ("a: b: c\n", "1:5 InvalidYAML", "not allowed", "indentation", ""),
    "a duplicate key": (variant("x").replace("  name: x\n", "  name: x\n  name: x\n"),
        *("5:3 DuplicateKey", "'name'", "Keep one", f"{X}, broken")),
    "a missing required field": (*(NO_REPO, "7:5 MissingField", "Missing required field spec.git.repo"),
        *("Add repo to spec.git.", "Repository platform/r")),
    "an empty address": (*(NO_REPO.replace("git:\n", 'git:\n    repo: " "\n'),
        "7:11 InvalidManifest", "spec.git.repo must not be empty"), *("", "Repository platform/r")),
    "a version of a set that is served no more": (*(OLD_SET, "1:13 UnsupportedVersion",
        f"{PORCH} is not supported"), *("Write it as config.porch.kpt.dev/v1alpha2:\napiVersion: ", SET_KEY)),
    "a set of the old version with the fields of the new one": (*(OLD_SET + NEW_FIELDS,
        "1:13 UnsupportedVersion", f"{PORCH} is not supported"),
        *("Its fields are those of config.porch.kpt.dev/v1alpha2: change its apiVersion.", SET_KEY)),
    "a set of the old version with fields of both": (
        OLD_SET + "  adoptionPolicy: adoptExisting\n" + NEW_FIELDS,
        *("1:13 UnsupportedVersion", f"{PORCH} is not supported"),
        "by hand: spec.targets[0].repositorySelector cannot be translated.",
        SET_KEY,
    ),
    "no kind": (variant("x").replace("kind: PackageVariant\n", ""),
        *("1:1 MissingField", "Missing required field kind", "Add the kind", "")),
    "an anchor": (variant("x").replace("spec:", "spec: &a"),
        *("5:0 InvalidYAML", "Anchors and aliases are not allowed", "Write the value out", f"{X}, broken")),
}  # fmt: skip


@pytest.mark.parametrize(("text", "place", "message", "hint", "stalled"), BAD.values(), ids=BAD)
def test_invalid_manifest_stalls_only_its_owner(
    world: Make, *, text: str, place: str, message: str, hint: str, stalled: str
) -> None:
    """A file is broken, too, where an object has no name that it could stall under, or its YAML is wrong."""
    manifests = read(world({"bad.yaml": text, "good.yaml": GOOD}))

    (problem,) = manifests.problems
    where = problem.location
    owner, _, broken = stalled.partition(", ")
    assert place in {f"{where.line}:{column} {problem.reason}" for column in (0, where.column)}
    assert where.path == "bad.yaml"
    assert message in problem.message
    assert hint in problem.hint
    assert problem.subject == owner
    assert {f"{k.kind} {k.namespace}/{k.name}" for k in manifests.stalled} == ({owner} - {""})
    assert manifests.broken == (frozenset({"bad.yaml"}) if broken or not owner else frozenset())
    assert names(manifests) == ["default/good"]


@pytest.mark.parametrize(("name", "stalled"), [("x", {"x"}), ("[x]", set())])
def test_manifest_that_a_bug_breaks_stalls_its_owner_if_it_names_one(
    world: Make, monkeypatch: pytest.MonkeyPatch, name: str, stalled: set[str]
) -> None:
    def fails(parsed: ParsedObject, policy: Policy) -> Classification:
        if parsed.place.path == "x.yaml":
            raise IndexError("odd")
        return classify_object(parsed, policy)

    monkeypatch.setattr("reconciler.read.manifests.classify_object", fails)
    manifests = read(world({"x.yaml": variant(name), "good.yaml": GOOD}))

    assert (names(manifests), manifests.stalled) == (
        ["default/good"],
        {key("PackageVariant", "platform", name) for name in stalled},
    )
    assert [str(problem.location) for problem in manifests.problems] == ["x.yaml:1"]


@pytest.mark.parametrize("where", [0, 1, 2])
def test_broken_document_does_not_affect_the_others(world: Make, where: int) -> None:
    documents = [variant("a"), variant("b")]
    documents.insert(where, variant("bad").replace("upstream:", "upstream: ]"))
    manifests = read(world({"all.yaml": "---\n".join(documents)}))

    (problem,) = manifests.problems
    assert problem.location.line == 11 * where + 6
    assert problem.subject == "PackageVariant platform/bad"
    assert names(manifests) == ["platform/a", "platform/b"]
    assert [v.source.location.line for v in manifests.variants] == [
        n * 11 + 1 for n in range(3) if n != where
    ]
    assert manifests.broken == {"all.yaml"}
    lines = [v.source.at("spec", "upstream", "revision").line for v in manifests.variants]
    assert lines == [v.source.location.line + 8 for v in manifests.variants]


NOT_NAME = 'must not contain the key "name"'
WRONG = """\
apiVersion: config.porch.kpt.dev/v1alpha1
kind: PackageVariant
metadata:
  name: n
  annotations: {reconciler.dev/pausd: "true"}
spec:
  upstream: {}
  downstrem: {repo: 5}
  adoptionPolicy: adoptAll
  packageContext:
    data: {a: 5, name: web}
  injectors: [{kind: ConfigMap}]
  pipeline:
    mutators: [{name: a.b, configMap: {on: yes}}]
"""


def test_one_wrong_value_hides_no_other_fault(world: Make) -> None:
    assert [(p.location.line, p.message) for p in read(world({"bad.yaml": WRONG})).problems] == [
        (4, "metadata.name must be a string, but is the boolean false"),
        (5, "reconciler.dev/pausd is unknown on a PackageVariant"),
        (7, "missing required field spec.downstream.package"),
        (7, "missing required field spec.upstream.package"),
        (7, "missing required field spec.upstream.repo"),
        (8, "Unknown field spec.downstrem"),
        (8, "spec.downstream.repo must be a string, but is the number 5"),
        (9, 'spec.adoptionPolicy field can only be "adoptNone" or "adoptExisting"'),
        (11, "spec.packageContext.data.a must be a string, but is the number 5"),
        (11, f'spec.packageContext.data: Invalid value: {{"a":"5","name":"web"}}: {NOT_NAME}'),
        (12, "spec.injectors[0].name must not be empty"),
        (14, "spec.pipeline.mutators[0].name must not contain '.'"),
        (14, "spec.pipeline.mutators[0].configMap.true must be a string, but is the boolean true"),
    ]


def test_duplicate_manifests_stall_and_name_each_other(world: Make) -> None:
    manifests = read(world({"a.yaml": GOOD, "b.yaml": f"{variant('b')}---\n{GOOD}", "c.yaml": variant("c")}))

    assert names(manifests) == ["platform/b", "platform/c"]
    assert manifests.stalled == {key("PackageVariant", "default", "good")}
    assert [(str(p.location), p.reason) for p in manifests.problems] == [
        ("a.yaml:1", Reason.DUPLICATE_OBJECT),
        ("b.yaml:12", Reason.DUPLICATE_OBJECT),
    ]
    assert "b.yaml:12" in manifests.problems[0].message
    assert "a.yaml:1" in manifests.problems[1].message


def test_one_name_in_two_namespaces_or_kinds_is_no_duplicate(world: Make) -> None:
    manifests = read(
        world({"a.yaml": f"{variant('web')}---\n{variant('web', namespace='b')}---\n{SET}  targets: []\n"})
    )

    assert manifests.problems == ()
    assert (names(manifests), [s.key for s in manifests.sets]) == (
        ["b/web", "platform/web"],
        [ObjectName("platform", "web")],
    )


def test_what_is_none_of_ours_is_noted_and_dependency_dialects_are_documents_in_order(world: Make) -> None:
    foreign = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
    dialect = "schemaType: Installation\nname: a\n"

    manifests = read(world({"z.yaml": dialect, "b.yaml": f"{dialect}---\n{dialect}", "f.yaml": foreign}))

    assert (manifests.problems, manifests.stalled, manifests.broken) == ((), frozenset(), frozenset())
    assert len(manifests.notes) == 1
    assert [str(d.source.location) for d in manifests.documents] == ["b.yaml:1", "b.yaml:4", "z.yaml:1"]


HOSTILE = [
    b"\xff\xfe\x00",
    b"a: " + b"[" * 5000,
    b"\x00", b"a: *b\n", b"&a [*a]\n", b"? [a]\n: b\n",
    b"{" * 300,
]  # fmt: skip


@pytest.mark.parametrize("data", HOSTILE, ids=range(len(HOSTILE)))
def test_header_of_any_bytes_raises_no_error(world: Make, data: bytes) -> None:
    manifests = read(world({"bad.yaml": data, "good.yaml": GOOD}))

    assert len(manifests.problems) == 1
    assert manifests.broken == {"bad.yaml"}
    assert names(manifests) == ["default/good"]


def control(directory: str) -> str:
    return REGISTRATION.format(name="own", repo="here", directory=directory)


def read_shared(world: World, policy: Policy = POLICY, registered: tuple[Repository, ...] = ()) -> Manifests:
    return read_manifests(
        world.mirror, world.commit, policy, registered=registered, is_control=lambda repo: repo == "here"
    )


ELSEWHERE = REGISTRATION.format(name="own", repo="there", directory="blueprints")
SHARED: dict[str, tuple[dict[str, str], list[str]]] = {
    "a registered directory has no manifests": ({"r.yaml": control("blueprints"),
        "blueprints/fleet/Kptfile": "a: b", "blueprints/fleet/pv.yaml": GOOD, "blueprints/broken.yaml": "[",
        "a.yaml": variant("outside")}, ["platform/outside"]),
    **{f"{directory} is a registered directory": ({"r.yaml": control(directory), "X/pv.yaml": GOOD,
        "a.yaml": variant("outside")}, ["platform/outside"]) for directory in ("X", "/X", "X/", "/X/")},
    "another repository hides nothing": ({"r.yaml": ELSEWHERE, "blueprints/a.yaml": GOOD}, ["default/good"]),
    "a common prefix of names": ({"r.yaml": control("blue"), "blueprints/a.yaml": GOOD}, ["default/good"]),
    "below a registered root only packages are skipped": ({"r.yaml": control(""), "fleet/Kptfile": "a: b",
        "fleet/deep/pv.yaml": GOOD, "other/pv.yaml": variant("outside")}, ["platform/outside"]),
    "an unregistered package may contain manifests": ({"mgmt/Kptfile": "a: b", "mgmt/pv.yaml": GOOD,
        "r.yaml": control("blueprints")}, ["default/good"]),
    "a registration inside a registered directory is content": ({"r.yaml": control("blueprints"),
        "blueprints/r.yaml": control("sets"), "sets/a.yaml": GOOD}, ["default/good"]),
}  # fmt: skip


@pytest.mark.parametrize(("files", "declared"), SHARED.values(), ids=SHARED)
def test_packages_of_a_shared_control_repository_are_no_manifests(world: Make, files, declared) -> None:
    manifests = read_shared(world(files))

    assert (names(manifests), manifests.problems) == (declared, ())


def test_manifest_path_inside_a_registered_directory_is_read(world: Make) -> None:
    files = {
        "r.yaml": control("fleet"),
        "fleet/sets/a.yaml": GOOD,
        "fleet/web/Kptfile": "",
        "fleet/web/b.yaml": "[",
    }

    manifests = read_shared(world(files), Policy(manifests=("r.yaml", "fleet/sets")))

    assert (names(manifests), manifests.problems) == (["default/good"], ())


def test_snapshot_registers_repositories(world: Make) -> None:
    registered = Repository(
        api_version="config.porch.kpt.dev/v1alpha1",
        kind="Repository",
        spec=RepositorySpec(git=GitRepository(repo="here", directory="/blueprints/")),
    )
    files = {"blueprints/a.yaml": GOOD}

    assert names(read_shared(world(files), registered=(registered,))) == []
    assert names(read_shared(world(files))) == ["default/good"]


def test_order_of_files_changes_nothing(world: Make) -> None:
    files = {f"{n}.yaml": text for n, text in zip("cab", [GOOD, variant("b"), "a: ["], strict=True)}
    renamed = read(world(files))

    assert names(renamed) == sorted(names(renamed))
