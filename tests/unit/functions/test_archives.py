"""What is read of an archive, and what is refused, in memory near the limits."""

import gzip
import io
import tarfile
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from reconciler.base.errors import RefusedError
from reconciler.functions.archives import ArchiveReader
from reconciler.functions.charts import ChartError, chart_members, find_chart, random_values
from reconciler.functions.pipeline import run_pipeline
from reconciler.names.objects import File
from reconciler.policy import Limits
from tests.support.archives import Member, badly_named, hostile, tar

DEFAULT = Limits()
GOOD = Member("web/Chart.yaml", b"name: web\n")


def read(data: bytes, limits: Limits = DEFAULT) -> list[tuple[str, bytes]]:
    return [*ArchiveReader(limits).read(io.BytesIO(data), "x.tgz", drops_base=True)]


def test_hostile_archive_is_refused_by_its_name_and_that_of_the_member() -> None:
    cases = hostile("web/a.yaml", GOOD) | badly_named("web", GOOD)  # large: they are made here alone

    messages = {name: refusal(case.data) for name, case in cases.items()}

    assert [name for name, message in messages.items() if not message.startswith("x.tgz ")] == []
    assert [name for name, case in cases.items() if case.why not in messages[name]] == []


def refusal(data: bytes) -> str:
    try:
        read(data)
    except RefusedError as error:
        return str(error)
    return ""


def test_only_what_is_wanted_is_held_to_names_and_kinds_and_yet_nothing_leads_out() -> None:
    link, odd = Member("etc/link", kind=tarfile.SYMTYPE), Member("lib/a\\x2db/\udcff")
    members = (Member("./"), link, Member("./packages/a.yaml", b"a"), odd, Member("packages/b.txt", b"b"))

    assert wanted(tar(*members)) == [("packages/a.yaml", b"a")]
    with pytest.raises(RefusedError, match=r"may not hold etc/\.\./\.\./x: it leads out of the archive"):
        wanted(tar(*members, Member("etc/../../x")))


def wanted(data: bytes) -> list[tuple[str, bytes]]:
    return [*ArchiveReader(Limits()).read(io.BytesIO(data), "A layer", lambda path: path.endswith(".yaml"))]


SMALL = tar(Member("web/b", b"1234"), Member("web/c/d"), Member("web/e/", kind=tarfile.DIRTYPE))
EXACT = Limits(package_files=3, package_file_bytes=4, package_bytes=len(SMALL), path_depth=3)


@pytest.mark.parametrize(
    ("limit", "why"),
    [
        ("package_files", "has more than 2 files"),
        ("package_file_bytes", "may not hold web/b: it has 4 bytes, and the limit is 3"),
        ("package_bytes", f"has more than {len(SMALL) - 1} bytes when it is unpacked"),
        ("path_depth", "may not hold web/c/d: it is deeper than 2 directories"),
    ],
)
def test_limits_of_packages_bound_an_archive(limit: str, why: str) -> None:
    assert read(SMALL, EXACT) == [("b", b"1234"), ("c/d", b"")]
    with pytest.raises(RefusedError, match=why):
        read(SMALL, replace(EXACT, **{limit: getattr(EXACT, limit) - 1}))


def test_all_archives_of_one_reader_count_together() -> None:
    reader = ArchiveReader(Limits(), 3000)
    layer = tar(Member("a"))
    assert [*reader.read(io.BytesIO(layer), "The first")] == [("a", b"")]

    with pytest.raises(
        RefusedError, match="The second has more than 3000 bytes when it is unpacked"
    ) as caught:
        [*reader.read(io.BytesIO(layer), "The second")]
    assert caught.value.hint == "Raise spec.registries.unpackedBytes."


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_archives_of_every_form_are_read(form: int, pack: Callable[[bytes], bytes]) -> None:
    long = f"web/{'d' * 100}/{'f' * 90}"
    members = (Member("./web/Chart.yaml", b"x" * 700), Member(long, b"y"), Member("web/ü", b""))

    assert read(pack(tar(*members, form=form))) == [("Chart.yaml", b"x" * 700), (long[4:], b"y"), ("ü", b"")]


def chart_of(name: str, *members: Member) -> bytes:
    """Return the packed archive of a chart."""
    about = Member(f"{name}/Chart.yaml", f"apiVersion: v2\nname: {name}\nversion: 1.0.0\n".encode())
    return gzip.compress(tar(about, *members), mtime=0)


def files_of(archive: bytes, limits: Limits = DEFAULT) -> set[str]:
    files = {"charts/web.tgz": File.of(archive)}
    return {*chart_members(find_chart("web", "", "charts", files, limits=limits))}


def test_archives_in_charts_are_directories_of_their_names_and_versions_stay_apart() -> None:
    inner = chart_of("inner", Member("inner/templates/x.yaml"))
    db = chart_of("db", Member("db/charts/inner-3.tgz", inner), Member("db/values.yaml"))
    packed = {
        "db-1.tgz": db,
        "db-2.tgz": db,
        "odd.tgz": gzip.compress(tar(Member("a/Chart.yaml", b"name: a/b"))),
    }
    web = chart_of(
        "web",
        *(Member(f"web/charts/{name}", data) for name, data in packed.items()),
        Member("web/files/x.tgz"),
    )

    assert "charts/odd/Chart.yaml" in files_of(web)
    assert {path for path in files_of(web) if not path.endswith("Chart.yaml")} == {
        "files/x.tgz",
        "charts/db/values.yaml",
        "charts/db/charts/inner/templates/x.yaml",
        "charts/db-2/values.yaml",
        "charts/db-2/charts/inner/templates/x.yaml",
    }


@pytest.mark.parametrize(
    ("depth", "copies", "limits", "why"),
    [
        (30, 1, DEFAULT, "charts/a.tgz of .* is below more charts than limits.pathDepth allows"),
        (2, 5, Limits(package_bytes=30_000), "charts/.* of .* has more than 30000 bytes"),
        (2, 5, Limits(package_files=20), "charts/.* of .* has more than 20 files"),
    ],
)
def test_archives_in_archives_count_together(depth: int, copies: int, limits: Limits, why: str) -> None:
    archive = chart_of("web")
    for _ in range(depth):
        members = (Member(f"web/charts/{'a' * (number + 1)}.tgz", archive) for number in range(copies))
        archive = chart_of("web", *members)

    with pytest.raises(ChartError, match=why):
        files_of(archive, limits)
    assert files_of(chart_of("web", Member("web/charts/a.tgz", chart_of("db")))) == {
        "Chart.yaml",
        "charts/db/Chart.yaml",
    }


def test_actions_of_templates_without_an_end_are_found_in_one_pass() -> None:
    start = time.process_time()
    sources = (b"{{ " * 200_000, b"{{ } {{ .Values.no }}{{ now | default .Values.yes }} {{ .Values.open")
    names = set(random_values(sources))

    assert time.process_time() - start < 5, "it took a minute when each action was looked for by itself"
    assert names == {"yes"}


def test_metadata_of_a_chart_is_no_larger_than_a_manifest() -> None:
    large = gzip.compress(tar(Member("web/Chart.yaml", b"name: web\nversion: 1.0.0\n#" + b"x" * (1 << 20))))

    with pytest.raises(
        ChartError, match=r"charts/web\.tgz/Chart\.yaml: The file has 1048602 bytes; the limit is"
    ):
        files_of(large)
    assert files_of(large, Limits(manifest_bytes=2 << 20)) == {"Chart.yaml"}


@pytest.mark.parametrize(
    "patterns", [b"a*b?c\n" * 1001, b"a" * 70_000, b"**/a[!b]c*d\n" * 900 + b"x" * 40_000]
)
def test_patterns_that_cannot_be_compiled_refuse_the_chart_and_the_package(patterns: bytes) -> None:
    kptfile = File.of(b"apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata: {name: p}\n")
    chart = {
        "charts/web/Chart.yaml": File.of(b"name: web\nversion: 1.0.0\n"),
        "charts/web/.helmignore": File.of(patterns),
    }

    with pytest.raises(
        ChartError,
        match=r"charts/web/\.helmignore( has too many patterns, or too long ones|:1: Helm knows no)",
    ):
        find_chart("web", "", "charts", chart)
    package = {"Kptfile": kptfile, "sub/.krmignore": File.of(patterns)}
    assert run_pipeline(package).error.startswith(
        "sub/.krmignore: The file has more or longer patterns than can"
    )
    few = {**package, "sub/.krmignore": File.of(b"!\na\\\n[z-a]\n" + b"b*\n" * 900)}
    assert not run_pipeline(few).error
