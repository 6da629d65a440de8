"""Judgements: what the API server of one cluster would do with one object of a change."""

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

from reconciler.base.text import Text


class AdmissionVerdict(StrEnum):
    """Answer of the API server, the worst first."""

    REFUSED = "refused"
    DESTROYS = "destroys"
    """It removes the object, and others with it."""
    RECREATED = "recreated"
    """It asks its controller to delete it and create it anew: nothing serves it in between."""
    WARNED = "warned"
    """A policy that refuses nothing would warn, or write an audit entry."""
    NOT_JUDGED = "not judged"

    @property
    def rank(self) -> int:
        """The place of the verdict among all, the worst first."""
        return _RANKS[self]


_RANKS = {verdict: rank for rank, verdict in enumerate(AdmissionVerdict)}


class AdmissionJudgement(Struct, frozen=True, order=True):
    """One answer about one object of a package, or about a whole cluster where `object` is empty."""

    verdict: AdmissionVerdict
    rule: str
    """The kind with its field, the definition, or the policy with its binding that decides."""
    message: Text
    """The reason, as the API server gives it."""
    cluster: str = ""
    object: str = ""
    """The object as `Deployment shop/web`."""
    is_old: bool = False
    """Whether the object on main would be refused, too."""

    @property
    def is_refusal(self) -> bool:
        """Whether the change would not get into the cluster."""
        return self.verdict is AdmissionVerdict.REFUSED and not self.is_old

    @property
    def text(self) -> Text:
        """The judgement as a clause: `edge-1 would refuse Deployment web: spec.selector is immutable`."""
        if not self.object:
            return f"{self.cluster}: {self.message}"
        verb = {
            AdmissionVerdict.REFUSED: "refuses already" if self.is_old else "would refuse",
            AdmissionVerdict.DESTROYS: "would destroy what depends on",
            AdmissionVerdict.RECREATED: "would recreate",
            AdmissionVerdict.WARNED: "would warn about",
            AdmissionVerdict.NOT_JUDGED: "may refuse",
        }[self.verdict]
        return f"{self.cluster} {verb} {self.object}: {self.message}"


def worst_first(judgements: Iterable[AdmissionJudgement]) -> tuple[AdmissionJudgement, ...]:
    """Return each judgement once, those of the worst verdict first."""
    return tuple(sorted(set(judgements), key=lambda j: (j.is_old, j.verdict.rank, j)))
