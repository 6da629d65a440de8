"""What people say about revisions: how a package treats its own, and which one is to be active."""

from dataclasses import dataclass, field

from reconciler.errors import Location


@dataclass(frozen=True, slots=True)
class RevisionPolicy:
    """What a Crossplane package says about its revisions.

    Unless it is `manual`, the revision that is asked for becomes the active one at once. Of the
    inactive ones the `history_limit` newest stay, all of them if it is 0. `take_over` names the packages
    whose kinds this one may get; with `prune_kinds` kinds go with the last revision that has them.
    """

    manual: bool = False
    history_limit: int = 1
    take_over: tuple[str, ...] = ()
    prune_kinds: bool = False


@dataclass(frozen=True, slots=True)
class RevisionWish:
    """What a person says about one revision: whether it is to be active.

    It is the revision of this name, or the one of package object `package` with this image or digest.
    """

    kind: str
    name: str
    active: bool
    package: str = ""
    image: str = ""
    digest: str = ""
    location: Location = field(default=Location(""), compare=False)

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


UNSAID_POLICY = RevisionPolicy()
"""What holds where a package says nothing."""
