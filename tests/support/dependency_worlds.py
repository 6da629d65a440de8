"""Random small worlds of packages, with every rule of resolution in some of them."""

from random import Random

from reconciler.dependencies.model.cluster import (
    ClusterInputs,
    ClusterState,
    ObservedInstallation,
    ResolverSettings,
    build_catalogue,
)
from reconciler.dependencies.model.instances import Instance, MetNeed, Resolved, Slot, SlotKind, met_need
from reconciler.dependencies.model.packages import (
    ApiNeed,
    Candidate,
    Dialect,
    Ecosystem,
    Gvk,
    Install,
    InstallationType,
    Interface,
    InterfaceNeed,
    PackageId,
    PackageNeed,
    Platform,
    PlatformNeed,
    Requirement,
    Share,
    Sharing,
    version_range,
)
from reconciler.dependencies.solve.problem import ResolutionProblem, Solution, SolverOutcome
from reconciler.dependencies.solve.sat import attempt
from reconciler.dependencies.versions import parse_loose, parse_strict
from tests.support.values import replace

RULES = (
    "or",
    "optional",
    "owner",
    "installationType",
    "lock",
    "platform",
    "api",
    "present",
    "cycle",
    "sticky",
)


def small_world(seed: int) -> tuple[ClusterInputs, frozenset[str]]:
    """Return a world and the rules that occur in it. The same seed gives the same world."""
    random = Random(seed)
    rules = frozenset(rule for rule in RULES if random.random() < 0.35)
    crossplane = random.random() < 0.3
    maker = _Maker(random, rules, crossplane=crossplane)
    return maker.world(), rules


def pin(instance: Instance, candidate: Candidate) -> Resolved:
    """Return a locked package in the version of a candidate, with what that requires."""
    return Resolved(
        instance=instance,
        dialect=instance.ecosystem.dialect,
        kind=candidate.kind,
        version=candidate.version.text,
        digest=candidate.digest,
        source=candidate.source,
        dependencies=tuple(
            met_need(r.alternatives[0], signature=str(r), alias=r.alias, optional=r.optional, via="candidate")
            for r in candidate.requires
        ),
    )


def pins_of(solution: Solution) -> tuple[Resolved, ...]:
    return tuple(pin(instance, candidate) for instance, candidate in solution.candidates.items())


def choice(parent: Instance, requirement: str, alternative: int) -> Resolved:
    """Return a locked package that has a requirement with two alternatives."""
    fields = {"need": "api", "id": "g.io/v1/Thing", "via": "candidate", "alternatives": 2}
    met = MetNeed(signature=requirement, alternative=alternative, **fields)
    return Resolved(instance=parent, dialect="carvel", version="1.0.0", dependencies=(met,))


class _Maker:
    def __init__(self, random: Random, rules: frozenset[str], *, crossplane: bool) -> None:
        self.random = random
        self.rules = rules
        self.dialect = Dialect.CROSSPLANE if crossplane else Dialect.CARVEL
        self.ecosystem = Ecosystem.XPKG if crossplane else Ecosystem.CARVEL
        self.names = "abcd"[: random.randint(2, 4)]

    def id(self, name: str) -> PackageId:
        return PackageId(self.ecosystem, name)

    def range_(self) -> str:
        low, high = sorted((self.random.randint(1, 3), self.random.randint(1, 3)))
        return self.random.choice(
            ("", f">={low}.0.0", f"<={high}.0.0", f">={low}.0.0 <={high}.0.0", f"={low}.0.0")
        )

    def need(self, name: str) -> PackageNeed:
        return PackageNeed(self.id(name), version_range(self.dialect, self.range_()))

    def requirement(self, own: str) -> Requirement:
        later = [n for n in self.names if n > own or ("cycle" in self.rules and self.random.random() < 0.3)]
        names = later or [self.names[-1]]
        if "api" in self.rules and self.random.random() < 0.3:
            return Requirement((ApiNeed(self.gvk()),))
        several = 2 if "or" in self.rules and self.random.random() < 0.5 else 1
        return Requirement(
            tuple(self.need(self.random.choice(names)) for _ in range(several)),
            optional="optional" in self.rules and self.random.random() < 0.4,
            install=not ("present" in self.rules and self.random.random() < 0.3),
        )

    def gvk(self) -> Gvk:
        return Gvk("example.org", "v1", self.random.choice("KL"))

    def candidate(self, name: str, major: int) -> Candidate:
        random = self.random
        wants = (
            random.choices((0, 1, 2), (3, 4, 2))[0] if name != self.names[-1] or "cycle" in self.rules else 0
        )
        provides = ("owner" in self.rules or "api" in self.rules) and random.random() < 0.5
        strict = "installationType" in self.rules and random.random() < 0.5
        platform = "platform" in self.rules and random.random() < 0.4
        range_ = version_range(Dialect.CARVEL, f">={random.randint(20, 30)}.0.0", prereleases=())
        return Candidate(
            self.id(name),
            parse_strict(f"{major}.0.0"),
            requires=tuple(r for r in (self.requirement(name) for _ in range(wants))),
            provides=(self.gvk(),) if provides else (),
            installation=random.choice(list(InstallationType))
            if strict
            else InstallationType.NO_RESTRICTIONS,
            platforms=(PlatformNeed(Platform.KUBERNETES, range_),) if platform else (),
        )

    def install(self, namespace: str, name: str) -> Install:
        return Install(namespace, f"my-{name}", self.dialect, self.need(name), kind="Install")

    def world(self) -> ClusterInputs:
        random = self.random
        candidates = [
            self.candidate(name, major) for name in self.names for major in range(1, random.randint(1, 3) + 1)
        ]
        spaces = ("x", "y") if "installationType" in self.rules else ("x",)
        roots = {self.names[0], random.choice(self.names)}
        installs = tuple(self.install(random.choice(spaces), name) for name in sorted(roots))
        known = build_catalogue(candidates)
        return ClusterInputs(
            installs,
            known,
            presence=ClusterState(
                apis=frozenset({self.gvk()})
                if "api" in self.rules and random.random() < 0.3
                else frozenset(),
                platforms=((Platform.KUBERNETES, parse_strict("25.0.0")),),
            ),
            pins=tuple(self.pins(candidates, installs)) if "lock" in self.rules else (),
            locked=tuple(self.chosen(candidates, installs)) if "sticky" in self.rules else (),
            choices=ResolverSettings(allow_downgrade=random.random() < 0.6),
        )

    def slots(self, name: str, installs: tuple[Install, ...]) -> list[Slot]:
        if self.ecosystem is Ecosystem.XPKG:
            return [Slot(SlotKind.CLUSTER)]
        own = [Slot(SlotKind.INSTALL, i.namespace, (i.name,)) for i in installs if i.need.id.name == name]
        return own or [Slot(SlotKind.NAMESPACE, "x"), Slot(SlotKind.CLUSTER)]

    def pins(self, candidates: list[Candidate], installs: tuple[Install, ...]) -> list[Resolved]:
        found = []
        for name in self.names:
            several = [c for c in candidates if c.id.name == name]
            if self.random.random() < 0.7:
                slot = self.random.choice(self.slots(name, installs))
                found.append(pin(Instance(*self.id(name), slot), self.random.choice(several)))
        return found

    def chosen(self, candidates: list[Candidate], installs: tuple[Install, ...]) -> list[Resolved]:
        return [
            choice(Instance(*c.id, slot), str(r), self.random.randrange(2))
            for c in candidates
            for r in c.requires
            if len(r.alternatives) > 1
            for slot in self.slots(c.id.name, installs)
        ]


def crowded_world(seed: int) -> ClusterInputs:
    """Return a small world without a lock in which a user asks for every package."""
    world, random = small_world(seed)[0], Random(seed)
    asked = {install.need.id for install in world.installs}
    dialect = world.installs[0].dialect
    others = (
        Install(
            "x",
            f"my-{id_.name}",
            dialect,
            PackageNeed(id_, version_range(dialect, random.choice(_CROWD))),
            kind="Install",
        )
        for id_ in world.catalogue.packages
        if id_ not in asked
    )
    return replace(world, installs=(*world.installs, *others), pins=(), locked=())


_CROWD = ("", ">=2.0.0", "<=1.0.0", "<=2.0.0")


def shared_world(seed: int) -> ClusterInputs:
    """Return a world of bundles that share, keep for themselves, bind, and ask for interfaces."""
    random = Random(seed)
    names = "abcd"[: random.randint(2, 4)]

    def need(name: str) -> PackageNeed:
        low, high = sorted((random.randint(1, 3), random.randint(1, 3)))
        text = random.choice(("", f">={low}.0.0", f"<={high}.0.0", f"={low}.0.0"))
        return PackageNeed(PackageId(Ecosystem.BUNDLE, name), version_range(Dialect.PORTER, text))

    def requirement(own: str, number: int) -> Requirement:
        later = [name for name in names if name > own] or [names[-1]]
        other = need(random.choice(names if random.random() < 0.1 else later))
        interface = random.random() < 0.3
        target = InterfaceNeed("i", version_range(Dialect.PORTER, random.choice(("", ">=2.0.0"))))
        scope = random.choice((Sharing.EXCLUSIVE, Sharing.NAMESPACE, Sharing.GLOBAL))
        labels = (
            (("app", random.choice("st")),)
            if scope is not Sharing.EXCLUSIVE and random.random() < 0.5
            else ()
        )
        return Requirement(
            (target,) if interface else (other,),
            alias=f"r{number}",
            share=Share(scope, labels=labels),
            default=other if interface and random.random() < 0.4 else None,
            wired=random.random() < 0.2,
        )

    candidates = [
        Candidate(
            PackageId(Ecosystem.BUNDLE, name),
            parse_loose(f"v{major}.0.0"),
            requires=tuple(
                requirement(name, number)
                for number in range(random.randint(0, 2) if name != names[-1] else 0)
            ),
            interfaces=(Interface("i", parse_loose(f"{major}.0.0")),) if random.random() < 0.4 else (),
        )
        for name in names
        for major in range(1, random.randint(1, 3) + 1)
    ]
    installs = tuple(
        Install(
            random.choice(("x", "x", "y", "")),
            f"my-{name}{number}",
            Dialect.PORTER,
            need(name),
            kind="Installation",
            labels=(("app", "s"),) if random.random() < 0.5 else (),
            bindings=(("r0", "x/there"),) if random.random() < 0.15 else (),
        )
        for number, name in enumerate((names[0], random.choice(names)))
    )
    there = ObservedInstallation(
        "x",
        "there",
        PackageId(Ecosystem.BUNDLE, random.choice(names)),
        parse_loose("v2.0.0"),
        labels=(("app", "t"),),
    )
    defaults = (("i", PackageId(Ecosystem.BUNDLE, names[-1])),) if random.random() < 0.5 else ()
    return ClusterInputs(
        installs,
        build_catalogue(candidates),
        presence=ClusterState(installations=(there,) if random.random() < 0.3 else ()),
        choices=ResolverSettings(defaults=defaults, depth=4),
    )


def solve(problem: ResolutionProblem) -> SolverOutcome:
    """Return the canonical answer of a problem."""
    return attempt(problem)[0]
