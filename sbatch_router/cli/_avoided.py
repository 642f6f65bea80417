"""What moved jobs were spared: what became of them, against what they would have met instead.

The log says where plain sbatch would have sent each job, and what that place had at the time.
Older lines do not: there the user's default account is taken for it.
"""

from __future__ import annotations

from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ..core.candidates import FITS, VERDICTS, WAITS_MINE, WAITS_OTHERS
from ._decisions import Entry

#: Verdicts that say how full a place was.
_JUDGED = frozenset((FITS, WAITS_MINE, WAITS_OTHERS))


class Unrouted(NamedTuple):
    """Where plain sbatch would have sent a job, and what that place had for it then."""

    #: ``account/qos``; the account alone where the log does not say.
    place: str
    #: Empty: it was not judged.
    verdict: str = ""
    #: Slurm's reason, in its own spelling.
    reason: str = ""


def unrouted(entry: Entry, default_account: str) -> Optional[Unrouted]:
    """Where a moved job would have gone; None: it was not moved, or nobody can tell."""
    if not entry.changed:
        return None
    place = entry.unrouted or default_account
    return Unrouted(place, *_met(entry, place)) if place else None


def is_full(entry: Entry, place: str) -> Optional[bool]:
    """Whether others filled a place (an account: all its QOS); None: it was not judged."""
    verdict, _ = _met(entry, place)
    return verdict == WAITS_OTHERS if verdict in _JUDGED else None


def _met(entry: Entry, place: str) -> Tuple[str, str]:
    """Verdict and reason at a place; of an account's several QOS the best one's."""
    if "/" in place:
        return entry.verdicts.get(place, ""), entry.reasons.get(place, "")
    found = [name for name in entry.verdicts if name.partition("/")[0] == place]
    judged = [name for name in found if entry.verdicts[name] in _JUDGED] or found
    known = [name for name in judged if entry.verdicts[name] in VERDICTS]
    if not known:
        return "", ""
    best = min(known, key=lambda name: VERDICTS.index(entry.verdicts[name]))
    return entry.verdicts[best], entry.reasons.get(best, "")


def full_until(entries: Sequence[Entry], instead: Sequence[Optional[Unrouted]]) -> Dict[int, float]:
    """Index of each job that was moved off a full place -> when that was last seen as full.

    Seen by the decisions after it, up to the first that found it otherwise. Only jobs that
    asked for no more of anything count: where a larger one finds no room, this one may.
    `entries` are in the order of time, `instead` in step with them.
    """
    places = {one.place for one in instead if one is not None}
    #: Place -> what was asked for, and when, of the decisions that found it full; the latest
    #: first, and none that a later one for no more makes superfluous.
    seen: Dict[str, List[Tuple[Mapping[str, int], float]]] = {}
    found: Dict[int, float] = {}
    for index in range(len(entries) - 1, -1, -1):
        entry, mine = entries[index], instead[index]
        for place in places:
            full = is_full(entry, place)
            if full is False:
                seen.pop(place, None)
            elif full:
                later = seen.setdefault(place, [])
                last = next((at for asked, at in later if _within(asked, entry.tres)), None)
                if last is None:
                    later.append((entry.tres, entry.at))
                if mine is not None and mine.place == place:
                    found[index] = entry.at if last is None else last
    return found


def _within(asked: Mapping[str, int], other: Mapping[str, int]) -> bool:
    return all(amount <= other.get(tres, 0) for tres, amount in asked.items())
