"""The revisions of a package as its history lists them."""

from reconciler.inventory.inventory import (
    Commit,
    KptfileHeader,
    Lifecycle,
    PackageRevision,
    UnpublishedRevision,
)
from reconciler.run.queries import package_stages
from tests.support.plan_values import a_draft, oid
from tests.support.sets import a_package


def test_stages_of_a_package_are_drafts_what_waits_for_its_tag_and_revisions_the_newest_first() -> None:
    drafts = (a_draft(tip=Commit(oid("d1"), 20)), a_draft(workspace="late", tip=Commit(oid("d2"), 30)))
    package = a_package(
        "web",
        drafts=drafts,
        published=tuple(
            PackageRevision(
                "web",
                "w",
                number,
                Lifecycle.PUBLISHED,
                f"refs/tags/web/v{number}",
                Commit(oid(f"c{number}"), 1),
                oid(f"b{number}"),
            )
            for number in (-1, 1, 10, 2)
        ),
        unpublished=tuple(
            UnpublishedRevision(Commit(oid(f"e{time}"), time), oid(f"f{time}"), KptfileHeader())
            for time in (5, 9, 7)
        ),
    )

    stages = package_stages(package)

    assert [label for label, _, _ in stages] == [
        "draft late", "draft packagevariant-1", "untagged", "untagged", "untagged", "v10", "v2", "v1"
    ]  # fmt: skip
    assert [commit[:3] for _, commit, _ in stages] == ["d20", "d10", "e90", "e70", "e50", "c10", "c20", "c10"]
