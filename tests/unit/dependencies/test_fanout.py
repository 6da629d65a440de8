"""What variants need in a cluster, read off its lock: each package once, with the ways that lead to it."""

import msgspec

from reconciler.dependencies.lock.format import VARIANT_KIND, needed_packages
from reconciler.dependencies.model.instances import Instance, Resolution, Resolved, Slot, SlotKind

BLUEPRINTS = "git.example.com/blueprints"


def instance(name: str, *, install: bool = False, ecosystem: str = "kpt") -> Instance:
    slot = Slot(SlotKind.INSTALL, namespace="prod", path=(name,)) if install else NAMESPACE
    return Instance(ecosystem=ecosystem, name=f"{BLUEPRINTS}//{name}", slot=slot)


NAMESPACE = Slot(SlotKind.NAMESPACE, namespace="prod")


def root(name: str, kind: str = VARIANT_KIND) -> Resolved:
    own = instance(name, install=True)
    return Resolved(instance=own, dialect="kpt", kind=kind, name=name, version="1.0.0", by_user=True)


def needed(name: str, *askers: Resolved, ecosystem: str = "kpt") -> Resolved:
    asked = tuple(one.instance for one in askers)
    own = instance(name, ecosystem=ecosystem)
    return Resolved(instance=own, dialect="kpt", version="1.0.0", requested_by=asked)


def trails(*packages: Resolved) -> dict[str, list[list[str]]]:
    return {
        one.package.instance.name.rpartition("//")[2]: [
            [step.instance.name.rpartition("//")[2] for step in trail] for trail in one.paths
        ]
        for one in needed_packages(Resolution(packages=packages))
    }


WEB = root("web")


def test_what_only_an_install_of_another_kind_needs_is_left_to_it() -> None:
    install = root("shop", kind="PackageInstall")

    assert trails(install, needed("base", install)) == {}
    assert trails(install, WEB, needed("base", install, WEB)) == {"base": [["web"]]}


def test_packages_that_need_each_other_alone_are_there_for_nobody() -> None:
    first, second = needed("a"), needed("b")
    first = msgspec.structs.replace(first, requested_by=(second.instance,))
    second = msgspec.structs.replace(second, by_user=True, requested_by=(first.instance,))

    assert trails(first, second) == {}
    both = msgspec.structs.replace(second, by_user=False, requested_by=(first.instance, WEB.instance))
    assert trails(WEB, first, both) == {"a": [["web", "b"]], "b": [["web"], ["web", "b", "a"]]}
