"""Revisions of one package: numbered, named by content, of which at most one is active."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace

from reconciler.dependencies.lockfile import DesiredState, Revision
from reconciler.dependencies.model import RevisionWish
from reconciler.dependencies.names import LABEL_LENGTH

_NAME_LENGTH, _DIGEST_LENGTH = 50, 12


@dataclass(frozen=True, slots=True)
class History:
    """The revisions of one package object before a run, and the greatest number that was ever given."""

    revisions: tuple[Revision, ...] = ()
    last: int = 0

    @property
    def active(self) -> Revision | None:
        """The revision that runs, if one does."""
        return next((one for one in self.revisions if one.is_active), None)


@dataclass(frozen=True, slots=True)
class Asked:
    """What one package asks of its revisions.

    `package` is its object (`Provider/aws`), `image` has the tag. Unless `automatic`, what is new
    waits. `wishes` are what people say about its revisions. `limit` is how many inactive ones stay; 0 is all.
    `needs` are the instances that meet what this version requires.
    """

    package: str
    image: str
    digest: str = ""
    automatic: bool = True
    limit: int = 1
    wishes: tuple[RevisionWish, ...] = ()
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Proposal:
    """What the revisions would be: all that there are, and the one that would be active, by name.

    `rivals` are what people say who want two revisions at once; the one that runs stays then.
    `unknown` are what they say about revisions that do not exist.
    """

    asked: Asked
    history: History
    revisions: tuple[Revision, ...]
    active: str = ""
    rivals: tuple[RevisionWish, ...] = ()
    unknown: tuple[RevisionWish, ...] = ()

    @property
    def current(self) -> Revision:
        """The revision that the package asks for, active or not."""
        return next(one for one in self.revisions if one.current)

    @property
    def running(self) -> str:
        """The revision that was active before, by name; empty if none was or it is gone."""
        before = self.history.active
        return before.name if before is not None else ""

    def held_back(self) -> "Proposal":
        """Return the proposal in which nothing is activated: what runs keeps running."""
        return replace(self, active=self.running)


def revision_name(package: str, digest: str, image: str = "") -> str:
    """Return what a revision is called: its package's name, and the first digits of its content's digest.

    Where no digest is known, that of the image's name stands for it.

    Source: crossplane internal/xpkg, FriendlyID. Newer versions of it hash the digest together with
    the generation of the package; such names are kept where they are found.
    """
    content = digest.rpartition(":")[2] or hashlib.sha256(image.encode()).hexdigest()
    name = package.rpartition("/")[2][:_NAME_LENGTH]
    return f"{name}-{content[:_DIGEST_LENGTH]}"[:LABEL_LENGTH]


def propose(history: History, asked: Asked) -> Proposal:
    """Return what the revisions of a package would be. Total, deterministic; order of wishes does not matter.

    New content is a new revision with the next number; content that there is already is the same
    revision again. An automatic package runs what it asks for, a manual one what it ran before,
    and either runs what a person says instead.
    """
    current = next((one for one in history.revisions if _is_content(one, asked)), None)
    if current is None:
        current = _new(history, asked)
    else:
        learned = {"digest": current.digest or asked.digest, "image": asked.image, "needs": asked.needs}
        current = current.model_copy(update=learned)
    others = [_as_current(one, is_current=False) for one in history.revisions if one.name != current.name]
    revisions = tuple(sorted((*others, _as_current(current, is_current=True)), key=_number))
    known = [(wish, _meant(wish, revisions, asked.package)) for wish in sorted(asked.wishes, key=str)]
    unknown = tuple(wish for wish, meant in known if meant is None)
    stopped = {meant.name for wish, meant in known if meant is not None and not wish.active}
    wanted = {meant.name: wish for wish, meant in known if meant is not None and wish.active}
    proposal = Proposal(asked, history, revisions, unknown=unknown)
    if len(wanted) > 1:
        return replace(proposal, active=proposal.running, rivals=tuple(wanted.values()))
    if wanted:
        return replace(proposal, active=next(iter(wanted)))
    if asked.automatic:
        return replace(proposal, active=current.name)
    return replace(proposal, active="" if proposal.running in stopped else proposal.running)


def settle(proposal: Proposal) -> tuple[Revision, ...]:
    """Return the revisions after a run: at most one active, numbered, without those beyond the limit.

    A revision that becomes active again gets a number above all others. The active and the current
    one always stay; of the others as many as the limit says, those with the greatest numbers.
    """
    greatest = max((proposal.history.last, *(one.revision for one in proposal.revisions)))
    found = [_activated(one, proposal, greatest) for one in proposal.revisions]
    return tuple(_within(proposal.asked.limit, sorted(found, key=_number)))


def _activated(one: Revision, proposal: Proposal, greatest: int) -> Revision:
    if one.name != proposal.active:
        return one.model_copy(update={"desired_state": DesiredState.INACTIVE})
    number = one.revision if one.is_active or one.revision == greatest else greatest + 1
    return one.model_copy(update={"desired_state": DesiredState.ACTIVE, "revision": number})


def _within(limit: int, revisions: list[Revision]) -> Iterable[Revision]:
    """Leave out the oldest of those that neither run nor wait for it.

    Source: the packages-v2 design, garbage collecting old PackageRevisions.
    Differs: crossplane deletes one per reconcile, the lowest number, which may be the active one.
    """
    spare = [one.name for one in revisions if not one.is_active and not one.current]
    gone = set(spare[:-limit]) if limit else set()
    return (one for one in revisions if one.name not in gone)


def _new(history: History, asked: Asked) -> Revision:
    last = max((history.last, *(one.revision for one in history.revisions)))
    return Revision(
        package=asked.package,
        name=revision_name(asked.package, asked.digest, asked.image),
        revision=last + 1,
        desired_state=DesiredState.INACTIVE,
        image=asked.image,
        digest=asked.digest,
        needs=asked.needs,
    )


def _is_content(one: Revision, asked: Asked) -> bool:
    if one.digest and asked.digest:
        return one.digest == asked.digest
    return one.image == asked.image


def _as_current(one: Revision, *, is_current: bool) -> Revision:
    return one if one.current is is_current else one.model_copy(update={"current": is_current})


def _number(one: Revision) -> tuple[int, str]:
    return (one.revision, one.name)


def _meant(wish: RevisionWish, revisions: Iterable[Revision], package: str) -> Revision | None:
    """Return the revision that a person means: by name, else by package and content."""
    several = tuple(revisions)
    named = next((one for one in several if one.name == wish.name), None)
    if named is not None or wish.package != package.rpartition("/")[2]:
        return named
    by_digest = (one for one in several if wish.digest and one.digest == wish.digest)
    by_image = (one for one in several if wish.image and one.image == wish.image)
    return next(iter((*by_digest, *by_image)), None)
