"""One cluster in one step: which revisions run, who controls what they have, and what people are told."""

from reconciler.base.reasons import Reason
from reconciler.dependencies.catalog.cluster_inputs import FleetInputs
from reconciler.dependencies.lock.digest import InputDigests
from reconciler.dependencies.lock.format import LockUpdate, ResolveOptions, read_locks
from reconciler.dependencies.lock.revisions import revision_name
from reconciler.dependencies.lock.update import update_locks
from reconciler.dependencies.model.packages import ActivationRequest, RevisionPolicy
from reconciler.report.locks import lock_lines
from tests.support.dependency_manifests import install, needs, package, world_of
from tests.support.package_life import CLUSTER, Life, digest, source
from tests.support.values import replace

CONSENTS = RevisionPolicy(take_over=("x.io/aws",))


def life(**packages: str) -> Life:
    """Return a cluster in which versions are published: `aws2="Bucket Queue"`, needs after a colon."""
    found = Life()
    for called, brings in packages.items():
        kinds, _, needs = brings.partition(":")
        found.publish(called[:-1], int(called[-1]), frozenset(kinds.split()), frozenset(needs.split()))
    return found


def said(name: str, version: int, *, active: bool = True) -> ActivationRequest:
    """Return a manifest of a person for a revision whose name is somebody else's scheme."""
    return ActivationRequest(
        "ProviderRevision", f"{name}-{version}-by-hand", active, package=name, digest=digest(name, version)
    )


def states(one: Life, name: str) -> list[str]:
    return [f"{r.image.rpartition(':')[2]} {r.awaits or r.desired_state}" for r in one.revisions(name)]


def test_lock_entries_have_object_image_digest_and_dependencies() -> None:
    one = life(web1=":aws", aws1="Bucket")
    one.ask("web", 1)
    one.run()

    aws, web = one.locked.resolution.packages
    assert (aws.api_version, aws.kind, aws.name) == ("pkg.crossplane.io/v1", "Provider", "aws")
    assert (aws.source, aws.version, aws.digest) == (source("aws"), "v1.0.0", digest("aws", 1))
    assert [str(dependency.resolved) for dependency in web.dependencies] == ["xpkg:x.io/aws@cluster"]
    (revision,) = one.revisions("web")
    assert (revision.package, revision.needs) == (web.object, (aws.instance,))


def test_a_loser_in_the_solver_keeps_its_version_and_everything_else_proceeds() -> None:
    one = life(aws1="Bucket", late1="Queue", late2="Queue Bucket", gcp1="", gcp2="")
    for name in ("aws", "late", "gcp"):
        one.ask(name, 1)
    one.run()
    one.ask("late", 2)
    one.ask("gcp", 2)
    decision = one.run()

    assert [problem.subject for problem in decision.problems] == ["Provider late"]
    assert states(one, "late") == ["v1.0.0 Active"]
    assert states(one, "gcp") == ["v1.0.0 Inactive", "v2.0.0 Active"]
    (scope,) = decision.scopes
    assert [explanation.stalled for explanation in scope.explanations] == [("Provider late",)]

    both = life(aws1="Bucket", late1="Bucket")
    both.ask("late", 1)
    both.ask("aws", 1)
    (scope,) = both.run().scopes
    assert [explanation.stalled for explanation in scope.explanations] == [("Provider late",)]
    assert (states(both, "aws"), states(both, "late")) == (["v1.0.0 Active"], [])

    taken = life(aws1="Bucket", aws2="Bucket", arm1="", arm2="Bucket")
    for version in (1, 2):
        taken.ask("aws", version)
        taken.ask("arm", version, CONSENTS)
        decision = taken.run()
    (scope,) = decision.scopes
    assert [explanation.stalled for explanation in scope.explanations] == [("Provider arm",)]
    assert states(taken, "aws") == ["v1.0.0 Inactive", "v2.0.0 Active"]
    assert states(taken, "arm") == ["v1.0.0 Active"]


def test_a_package_under_another_object_is_not_called_gone() -> None:
    one = life(aws1="Bucket")
    one.ask("aws", 1)
    one.run()
    del one.installs["aws"]
    one.ask("cloud", 1, package="aws")
    text = "\n".join(lock_lines(one.run()))

    discarded = "revision: discard aws-617773010000 Active: revision 1 of Provider/aws"
    assert f"{discarded}, Provider/cloud installs its package" in text
    assert "gone" not in text


def test_two_wishes_for_one_package_name_each_other_and_change_nothing() -> None:
    one = life(aws1="Bucket", aws2="Bucket")
    one.ask("aws", 1)
    one.run()
    one.ask("aws", 2)
    one.run()
    before = one.locked.lock.revisions
    one.activations = {str(number): said("aws", number) for number in (1, 2)}
    decision = one.run()

    assert {problem.reason for problem in decision.problems} == {Reason.REVISION_CONFLICT}
    assert {problem.subject: problem.message.partition("; ")[2] for problem in decision.problems} == {
        f"ProviderRevision aws-{number}-by-hand": f"aws-{3 - number}-by-hand () is to be active too"
        for number in (1, 2)
    }
    assert one.locked.lock.revisions == before


def test_a_wish_for_no_revision_is_a_note_with_those_that_there_are() -> None:
    one = life(aws1="Bucket")
    one.ask("aws", 1)
    one.activations["aws"] = said("aws", 9)
    decision = one.run()

    (note,) = decision.warnings
    assert note.reason == Reason.NOT_FOUND
    assert one.revisions("aws")[0].name in note.hint


def test_pruning_keeps_the_kinds_of_an_object_that_installs_another_package() -> None:
    one = life(aws1="Bucket", cloud1="", gcp1="")
    one.ask("aws", 1)
    one.ask("gcp", 1)
    one.run()
    one.ask("aws", 1, package="cloud")
    one.run(prune=True)
    there = one.owners()
    del one.installs["aws"]
    one.run(prune=True)

    assert (there, one.owners()) == ({"Bucket.x.io": "-"}, {})


def test_removing_a_package_removes_its_revisions_and_keeps_its_kinds() -> None:
    one = life(aws1="Bucket", gcp1="")
    one.ask("aws", 1)
    one.ask("gcp", 1)
    one.run()
    del one.installs["aws"]
    one.run()

    assert one.revisions("aws") == ()
    assert one.owners() == {"Bucket.x.io": "-"}
    assert "aws" not in {package.instance.name for package in one.locked.resolution.packages}


def test_a_restore_changes_no_owner_because_owners_are_names() -> None:
    one = life(aws1="Bucket", aws2="Bucket")
    for version in (1, 2):
        one.ask("aws", version)
        one.run()
    restored = Life(dict(one.published), dict(one.installs))
    restored.run()

    assert [revision.revision for revision in restored.revisions("aws")] == [1]
    owner = revision_name("Provider/aws", digest("aws", 2))
    assert restored.owners() == one.owners() == {"Bucket.x.io": owner}


def test_other_pull_secrets_are_decided_anew_and_are_no_new_revision() -> None:
    one = life(aws1="Bucket")
    one.ask("aws", 1)
    one.run()
    before = one.locked.lock
    install = one.installs["aws"]
    one.installs["aws"] = replace(install, inherit=(("packagePullSecrets", '[{"name":"x"}]'),))

    assert InputDigests().of(one.world()) != before.input_digest
    one.run()
    assert one.locked.lock.revisions == before.revisions


def test_what_was_installed_for_others_is_refused_at_the_manifest_that_it_is_there_for() -> None:
    one = life(net1="Bucket", web1=":net", aws1="", aws2="Bucket")
    one.ask("web", 1)
    one.ask("aws", 1)
    one.run()
    one.publish("net", 2, frozenset())
    one.ask("aws", 2, RevisionPolicy(take_over=("x.io/net",)))
    one.run(upgrade=frozenset({"x.io/net"}))
    assert one.owners()["Bucket.x.io"] == one.revisions("aws")[1].name

    one.activations["net"] = said("net", 1)
    (problem,) = one.run().problems

    assert (problem.subject, problem.location.path) == ("Provider web", "clusters/one/web.yaml")
    assert "x.io/net does not get Bucket.x.io, which x.io/aws has" in problem.message
    assert states(one, "net") == ["v1.0.0 Inactive", "v2.0.0 Active"]


BRINGS = "provides: [{apiVersion: x.io/v1, kind: Bucket}]"


def decided(files: dict[str, bytes], text: str, **options: bool) -> LockUpdate:
    world = replace(world_of(text), cluster=CLUSTER)
    return update_locks(FleetInputs((world,)), read_locks(files), options=ResolveOptions(**options))


def names(decision: LockUpdate) -> dict[str, str]:
    (scope,) = decision.scopes
    return {str(package.instance): package.version for package in scope.after.resolution.packages}


def test_unused_package_keeps_its_kinds_until_it_is_pruned() -> None:
    catalogue = package("web.io", "1.0.0", needs("old.io")) + package("web.io", "2.0.0")
    catalogue += package("old.io", "1.0.0", BRINGS) + package("aws.io", "1.0.0", BRINGS)
    policy = "dependencies: {deletePolicy: orphan}"
    files = decided({}, install("web", "web.io", "1.0.0", policy) + catalogue).files

    # In one step the old package gets unused, and another one asks for its kind.
    text = install("web", "web.io", "2.0.0", policy) + install("aws", "aws.io", "") + catalogue
    first = decided(files, text)
    second = decided(first.files, text)

    assert names(first) == {
        "carvel:web.io@install/prod/web": "2.0.0",
        "carvel:old.io@namespace/prod": "1.0.0",
    }
    assert [(p.reason, p.subject) for p in first.problems] == [
        (Reason.OWNERSHIP_CONFLICT, "PackageInstall prod/aws")
    ]
    assert (names(second), second.problems) == (names(first), first.problems)
    (scope,) = second.scopes
    assert scope.explanations[0].hint == (
        "Remove what needs old.io, if anything does, and run `reconciler lock --prune`"
    )
    pruned = decided(first.files, text, prune=True)
    assert names(pruned) == {
        "carvel:web.io@install/prod/web": "2.0.0",
        "carvel:aws.io@install/prod/aws": "1.0.0",
    }
    assert pruned.problems == ()


def test_package_that_a_run_removes_is_not_in_the_way_of_what_it_installs() -> None:
    catalogue = package("b.io", "1.0.0", needs("c.io"), BRINGS)
    catalogue += package("c.io", "1.0.0") + package("c.io", "2.0.0", BRINGS)
    both = install("b", "b.io", "") + install("c", "c.io", "2.0.0") + catalogue
    before = decided({}, both)
    assert [p.reason for p in before.problems] == [Reason.OWNERSHIP_CONFLICT]

    after = decided(before.files, install("b", "b.io", "") + catalogue)

    assert after.problems == ()
    assert names(after) == {"carvel:b.io@install/prod/b": "1.0.0", "carvel:c.io@namespace/prod": "1.0.0"}
    assert decided(after.files, install("b", "b.io", "") + catalogue).changed is False
