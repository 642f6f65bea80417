"""What the log comes to: jobs moved, waiting avoided, accounts that are always full."""

from __future__ import annotations

import datetime
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ..core import decide as core
from . import _avoided
from ._avoided import Unrouted, is_full
from ._decisions import Became, Entry
from ._sacct import JobRow
from .init import scalar

#: An account is chronically full if others filled all its pools in so large a part of at least
#: so many decisions, which lie at least so many days apart.
CHRONIC_SHARE, CHRONIC_LEAST, CHRONIC_DAYS = 0.8, 10, 3
#: Days after which a suggested block asks to be reviewed.
REVIEW_DAYS = 90
#: Seconds after which a job counts as having waited.
AT_ONCE = 60.0


class Told(NamedTuple):
    """What Slurm told of the jobs, in step with the entries."""

    became: Sequence[Optional[Became]]
    default_account: str
    #: Why ended jobs are not known, and why those that still wait are not.
    trouble: str = ""
    queue_trouble: str = ""


def waited(entry: Entry, job: JobRow) -> Optional[float]:
    """Seconds from submission to the start; None: it has not started, or never did."""
    if job.start is None or (job.state.startswith("CANCELLED") and job.start == job.end):
        # sacct gives a job that was cancelled while it waited a start, at its end.
        return None
    return max(0.0, job.start - job.submit)


class Chronic(NamedTuple):
    """An account that others fill nearly always."""

    account: str
    full: int
    judged: int
    first: float
    last: float
    reason: str

    def words(self) -> str:
        share = f"full of others' jobs in {self.full} of {self.judged} decisions"
        days = f"{_date(self.first)} to {_date(self.last)}"
        return f"{share}, {days}" + (f" ({self.reason})" if self.reason else "")

    def yaml(self, now: float) -> List[str]:
        """The lines that block it, for the policy."""
        return [
            f"  - account: {scalar(self.account)}",
            f"    reason: {self.words()}",
            f"    since: {_date(now)}",
            f"    review: {_date(now + REVIEW_DAYS * 86400)}",
        ]


def _date(at: float) -> str:
    return datetime.date.fromtimestamp(at).isoformat()


class Summary(NamedTuple):
    """The whole in numbers. Times are seconds."""

    actions: Mapping[str, int]
    moved: int
    #: Waits of the moved jobs that started.
    waits: Sequence[float]
    #: Of the moved jobs: what the place had where plain sbatch would have sent them -> jobs.
    instead: Mapping[str, int]
    #: Why those places were full: Slurm's reason -> jobs.
    full_reasons: Mapping[str, int]
    #: Moved jobs that started and would have met a place full of others' jobs, and the least
    #: they would have waited longer there.
    avoided_jobs: int
    avoided_seconds: float
    #: Moved jobs that have waited long although the other place had room.
    in_vain: int
    #: Moved jobs whose log line does not say where they would have gone.
    guessed: int
    default_account: str
    stuck: Sequence[Tuple[str, str, float]]
    chronic: Sequence[Chronic]


#: What `Summary.instead` counts, in the order in which it is told: verdict, key and words.
INSTEAD = (
    (core.WAITS_OTHERS, "full", "full of others' jobs"),
    (core.NEVER, "never", "unable to run it at all"),
    (core.NOT_ALLOWED, "not_allowed", "not allowed"),
    (core.WAITS_MINE, "own_jobs", "busy with your own jobs"),
    (core.FITS, "room", "free as well"),
)
NOT_KNOWN = ("not_known", "not looked at")


def kind_of(one: Optional[Unrouted]) -> Tuple[str, str]:
    """Key and words for what a place had."""
    if one is not None:
        for verdict, key, words in INSTEAD:
            if one.verdict == verdict:
                return key, words
    return NOT_KNOWN


def summarise(entries: Sequence[Entry], told: Told, now: float) -> Summary:
    """Count and estimate; see the command's help for how."""
    actions: Dict[str, int] = {}
    instead_of: Dict[str, int] = {}
    reasons: Dict[str, int] = {}
    waits: List[float] = []
    stuck: List[Tuple[str, str, float]] = []
    moved = avoided_jobs = in_vain = guessed = 0
    avoided = 0.0
    instead = [_avoided.unrouted(entry, told.default_account) for entry in entries]
    until = _avoided.full_until(entries, instead)
    for index, (entry, found) in enumerate(zip(entries, told.became)):
        _count(actions, entry.action)
        wait = waited(entry, found.job) if found else None
        pending = found is not None and found.job.state == "PENDING"
        so_far = now - found.job.submit if found is not None and pending else 0.0
        if pending and found is not None and so_far > AT_ONCE:
            stuck.append((found.job.id, found.job.reason, so_far))
        if not entry.changed:
            continue
        moved += 1
        one = instead[index]
        guessed += not entry.unrouted
        kind, _ = kind_of(one)
        _count(instead_of, kind)
        if one is not None and kind == "full":
            _count(reasons, one.reason or "no reason given")
        in_vain += kind == "room" and max(wait or 0.0, so_far) >= AT_ONCE
        if wait is not None:
            waits.append(wait)
            if index in until:
                avoided_jobs += 1
                avoided += max(0.0, until[index] - entry.at - wait)
    return Summary(
        actions,
        moved,
        waits,
        instead_of,
        reasons,
        avoided_jobs,
        avoided,
        in_vain,
        guessed,
        told.default_account,
        stuck,
        chronic(entries),
    )


def _count(counts: Dict[str, int], key: str) -> None:
    counts[key] = counts.get(key, 0) + 1


def chronic(entries: Sequence[Entry]) -> List[Chronic]:
    """The accounts that are nearly always full, judging by the log."""
    names = dict.fromkeys(n.partition("/")[0] for e in entries for n in e.verdicts)
    found = []
    for account in names:
        judged = [(e, full) for e in entries for full in [is_full(e, account)] if full is not None]
        full_ones = [entry for entry, full in judged if full]
        if len(judged) < CHRONIC_LEAST or len(full_ones) < CHRONIC_SHARE * len(judged):
            continue
        first, last = judged[0][0].at, judged[-1][0].at
        if last - first < CHRONIC_DAYS * 86400:
            continue
        reasons: Dict[str, int] = {}
        for entry in full_ones:
            for name, reason in entry.reasons.items():
                if name.partition("/")[0] == account:
                    reasons[reason] = reasons.get(reason, 0) + 1
        reason = max(reasons, key=lambda name: reasons[name]) if reasons else ""
        found.append(Chronic(account, len(full_ones), len(judged), first, last, reason))
    return found
