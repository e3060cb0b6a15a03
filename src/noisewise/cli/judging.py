"""How lists are judged on the command line, and results compared."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from noisewise.cli.options import option, refuse
from noisewise.data import Observations
from noisewise.errors import DataError
from noisewise.evaluation import comparison, ranking
from noisewise.evaluation.comparison import Result
from noisewise.evaluation.ranking import Ranking
from noisewise.evaluation.records import is_number

TOP = 10


@dataclass(frozen=True, kw_only=True)
class ListOptions:
    """Whether and how lists are judged, and which ratings are left out before."""

    top: int | None = option(
        "Ratings: also judge every user's list of so many items: NDCG, recall, MRR, hit rate, "
        "share of the catalogue, novelty."
    )
    relevant: float | None = option(
        "Lists: the least rating of what counts as right; without it, all that was rated counts."
    )
    by: str | None = option(
        "Lists: rank by the value that is expected (value; the default), or by the chance that a "
        "user takes an item up and likes it (utility).",
        choices=("value", "utility"),
    )
    risk: float | None = option("Lists: rank by mean minus risk times std.")
    core: int | None = option(
        "Ratings: keep only users and items that have so many ratings of each other (k-core)."
    )

    def refuse(self) -> None:
        """Raise for options that sensors do not have."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        refuse("is for ratings", **given)

    def ranking(self, *, wanted: bool = False) -> Ranking | None:
        """Return how lists are judged; None if they are not."""
        if self.top is None and not wanted:
            asked = {"relevant": self.relevant, "by": self.by, "risk": self.risk}
            refuse("is for lists: add --top 10", **asked)
            return None
        told = (("by", self.by), ("risk", self.risk))
        how = tuple((name, value) for name, value in told if value is not None)
        top = TOP if self.top is None else self.top
        return Ranking(top=top, relevant=self.relevant, how=how)

    def filtered(self, observations: Observations) -> Observations:
        """Return what is left of ratings."""
        return observations if self.core is None else ranking.core_of(observations, self.core)


def compared(
    first: list[Result], second: list[Result], metric: str | None = None
) -> list[dict[str, Any]]:
    """Compare results under each protocol that both have; lists are, user by user if possible."""
    pairs = [(a, b) for a in first for b in second if a["protocol"] == b["protocol"]]
    rows = []
    for a, b in pairs or [(first[0], second[0])]:  # which say that they are not alike
        chosen = metric or comparison.usual_metric(a)
        test, better = ranking.comparison_of(a, b, chosen)
        if any(not is_number(one.get("mean", {}).get(chosen)) for one in (a, b)):
            raise DataError(f"Both results need the mean of {chosen!r}, as a number.")
        other = b["model"] if b["model"] != a["model"] else f"{b['model']} (2)"
        paired = test.paired
        row = {
            "protocol": label(a["protocol"]), "metric": chosen,
            a["model"]: a["mean"][chosen], other: b["mean"][chosen],
            "difference": paired.difference, "low": paired.low, "high": paired.high,
            **better, "paired p": paired.t_pvalue,
            "Wilcoxon p": paired.wilcoxon_pvalue, "unpaired p": test.unpaired_pvalue,
        }  # fmt: skip
        rows.append(row)
    return rows


def label(protocol: Any) -> str:
    """Return a protocol in words."""
    if not isinstance(protocol, dict):
        return str(protocol)
    return f"{protocol['kind']} {100 * protocol['share']:g} %"
