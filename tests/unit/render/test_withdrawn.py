"""Injected values that a variant does not ask for any more are the upstream's again."""

import pytest

from reconciler.api.porch import InjectionSelector, PackageVariantSpec
from reconciler.names.ids import ObjectName
from reconciler.names.objects import tree_id
from reconciler.render.injection import INJECTED, INJECTED_NAME
from reconciler.render.withdrawn import function_owners, take_back, without_withdrawn
from tests.support.git import kptfile
from tests.support.model import package
from tests.support.plan_values import WEB, a_draft, a_pin, a_record, a_resolved, world

POINT = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: conf
  annotations:
    kpt.dev/config-injection: optional
data:
  mtu: "1500"
"""
MARKS = f"    {INJECTED}: net\n    {INJECTED_NAME}: net\n"
FILLED = POINT.replace("optional\n", f"optional\n{MARKS}").replace("1500", "9000")


def withdrawn(local: str, original: str, *injectors: InjectionSelector) -> str:
    trees = (package({"conf.yaml": local}), package({"conf.yaml": original}))
    spec = PackageVariantSpec(injectors=list(injectors))
    files = without_withdrawn(*trees, spec, {}, keeps_context=False)
    assert without_withdrawn(files, trees[1], spec, {}, keeps_context=False) == files, "once is twice"
    return files["conf.yaml"].data.decode()


@pytest.mark.parametrize(
    ("reason", "injectors", "want"),
    [
        ("no injector is left", (), POINT),
        ("the injectors name other objects", (InjectionSelector(name="other"),), POINT),
        ("the injector is for another kind", (InjectionSelector(name="net", kind="Team"),), POINT),
        ("the object is asked for, wherever it is", (InjectionSelector(name="net"),), FILLED),
    ],
)
def test_injected_value_stays_while_an_injector_names_its_object(reason, injectors, want) -> None:
    assert withdrawn(FILLED, POINT, *injectors) == want, reason


def test_line_ends_and_other_edits_stay() -> None:
    local, want = (text.replace("  name: conf\n", "  name: conf # mine\n") for text in (FILLED, POINT))

    assert withdrawn(local.replace("\n", "\r\n"), POINT) == want.replace("\n", "\r\n")


def test_what_an_upstream_was_filled_with_stays_as_people_edited_it() -> None:
    edited = FILLED.replace("9000", "9001")

    assert withdrawn(edited, FILLED) == edited


CONTEXT = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: kptfile.kpt.dev\ndata:\n  name: web\n{}"
FORMER = ObjectName("default", "former")


@pytest.mark.parametrize(
    ("owner", "recorded", "zone", "is_gone"),
    [
        ("default/default/former", FORMER, "a", True),
        ("default/default/former", WEB, "a", False),
        ("default/default/web", WEB, "a", True),
        ("default/default/web", WEB, "edited", False),
        ("default/default/web", FORMER, "a", False),
        ("other/default/former", FORMER, "a", False),
        ("", WEB, "a", True),
    ],
)
@pytest.mark.parametrize("is_edited", [True, False], ids=["edited draft", "draft of ours"])
def test_context_is_withdrawn_as_the_record_of_the_owner_has_it(
    owner: str, recorded: ObjectName, zone: str, *, is_gone: bool, is_edited: bool
) -> None:
    head = kptfile("web", owner=owner, location="edge/web" if owner else "")
    local = package({"Kptfile": head, "package-context.yaml": CONTEXT.format(f"  zone: {zone}\n")})
    original = package({"Kptfile": head, "package-context.yaml": CONTEXT.format("")})
    base = a_pin(tree=tree_id(original))
    draft = a_draft(tree=tree_id(local), written=tree_id(local), has_foreign_commits=is_edited)
    resolved = a_resolved(local=tree_id(local), pin=base, base=base, draft_base=base, draft=draft)
    trees = {tree_id(local): local, tree_id(original): original}
    inventory = world(records={recorded: a_record(context={"zone": "a"})})

    (done,), contents = take_back([resolved], trees, inventory, lambda _: [])

    assert (b"zone" not in contents[done.local]["package-context.yaml"].data) is is_gone
    assert done.draft_local == (done.local if is_gone and is_edited else None)


def test_fields_of_a_kptfile_that_functions_wrote_are_withdrawn_but_for_those_of_kpt() -> None:
    head = "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: web\n"
    ours = "upstream: {type: git}\nupstreamLock: {type: git}\nstatus: {a: b}\npipeline: {}\n"
    texts = ("info: {man: a}\n", f"info: {{man: b}}\n{ours}", f"info: {{man: a}}\n{ours}")
    before, after, want = (package({"Kptfile": head + text}) for text in texts)
    made = (before, after)

    assert without_withdrawn(after, before, PackageVariantSpec(), {}, keeps_context=False, made=made) == want


def test_functions_of_every_upstream_of_a_package_are_no_function_of_its_variant() -> None:
    names = ("PackageVariant.pin.a.0", "PackageVariant.base.a.0", "PackageVariant.draft.a.0")
    texts = [f"kind: Kptfile\npipeline: {{mutators: [{{name: {name}, image: a}}]}}\n" for name in names]
    trees = [package({"Kptfile": text}) for text in texts]
    pins = [a_pin(n, tree=tree_id(files)) for n, files in enumerate(trees, start=1)]
    resolved = a_resolved(pin=pins[0], base=pins[1], draft_base=pins[2])
    contents = {tree_id(files): files for files in trees}

    owners = function_owners(package({"Kptfile": kptfile("web")}), resolved, world(), contents)

    assert owners == (WEB, {*names}, None)
