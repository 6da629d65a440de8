"""Injected values that a variant does not ask for any more are the upstream's again."""

import pytest

from reconciler.api.porch import InjectionSelector, PackageVariantSpec
from reconciler.names.ids import ObjectName
from reconciler.names.objects import tree_id
from reconciler.render.injection import INJECTED, INJECTED_NAME
from reconciler.render.withdrawn import take_back, without_withdrawn
from tests.support.git import kptfile
from tests.support.model import package
from tests.support.plan_values import WEB, a_pin, a_record, a_resolved, world

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
    ("owner", "recorded", "is_gone"),
    [
        ("default/default/former", FORMER, True),
        ("default/default/former", WEB, False),
        ("default/default/web", WEB, True),
        ("default/default/web", FORMER, False),
        ("other/default/former", FORMER, False),
        ("", WEB, True),
    ],
)
def test_context_is_withdrawn_as_the_record_of_the_owner_has_it(owner, recorded, is_gone) -> None:
    head = kptfile("web", owner=owner, location="edge/web" if owner else "")
    local = package({"Kptfile": head, "package-context.yaml": CONTEXT.format("  zone: a\n")})
    original = package({"Kptfile": head, "package-context.yaml": CONTEXT.format("")})
    base = a_pin(tree=tree_id(original))
    resolved = a_resolved(local=tree_id(local), pin=base, base=base)
    trees = {tree_id(local): local, tree_id(original): original}
    inventory = world(records={recorded: a_record(context={"zone": "a"})})

    (done,), contents = take_back([resolved], trees, inventory, lambda _: [])

    assert (b"zone" not in contents[done.local]["package-context.yaml"].data) is is_gone
