"""``sbatch-router history``: what was decided, why, and what became of the jobs."""

from __future__ import annotations

import datetime
import json
import os
import re
import time
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import click
from rich.text import Text

from ..core import decide as core
from ..decisionlog import log_path
from . import _decisions, _pools, _sacct
from . import _policy as policies
from . import _render as render
from ._decisions import Became, Entry
from ._render import BAD, GOOD, NOTE, Screen
from .init import scalar

#: An account is chronically full if others filled all its pools in so large a part of at least
#: so many decisions, which lie at least so many days apart.
CHRONIC_SHARE, CHRONIC_LEAST, CHRONIC_DAYS = 0.8, 10, 3
#: Days after which a suggested block asks to be reviewed.
REVIEW_DAYS = 90
#: Seconds after which a job counts as having waited.
_AT_ONCE = 60.0
_JUDGED = frozenset((core.FITS, core.WAITS_MINE, core.WAITS_OTHERS))
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def _since(text: str, now: float) -> float:
    """``12h``, ``30d``, ``2026-03-02``, ``all``. Raises ValueError."""
    if text == "all":
        return 0.0
    short = re.fullmatch(r"(\d{1,6})([smhdw])", text)
    if short:
        return now - int(short[1]) * _UNITS[short[2]]
    return datetime.datetime.fromisoformat(text).timestamp()


@click.command("history")
@click.option("--json", "as_data", is_flag=True, help="Print one JSON object instead.")
@click.option(
    "--since",
    default="30d",
    show_default=True,
    metavar="WHEN",
    help="From then on: 12h, 7d, 4w, a date such as 2026-03-02, or all.",
)
@click.option(
    "-n",
    "number",
    type=click.IntRange(min=0),
    help="Show the last N decisions (20, with --json all); 0 is all. The summary counts all.",
)
@render.ascii_option
def command(as_data: bool, since: str, number: Optional[int], plain: bool) -> None:
    """Show what was decided for your jobs, and what became of them.

    Each decision is logged when a job is submitted. The job is looked up in Slurm's
    accounting (sacct, and squeue) by account, QOS, name, size and time of submission, as the
    log does not have its id: where several jobs fit, the id is marked with ~. Jobs that still
    wait show the reason that squeue gives now.

    The summary says how many jobs were moved and how long they waited; how much waiting that
    avoided, which can only be estimated: a pool counts as full from one decision to the last
    in a row that found it full; and which accounts are chronically full, with the lines that
    would block them.

    A log of more than 5 MiB is set aside here, and the one set aside before is dropped.

    \b
    Files:
      ~/.local/state/sbatch-router/decisions.jsonl    ($XDG_STATE_HOME)

    \b
    Exit status:
      0  also when nothing was decided yet
      1  the log cannot be found or read
    """
    now = time.time()
    try:
        start = _since(since, now)
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{since!r}; expected 12h, 7d, 4w, a date such as 2026-03-02, or all",
            param_hint="--since",
        ) from None
    path = log_path(policies.environment())
    if not path:
        raise click.ClickException(
            "HOME is not set, so there is no log; set HOME or XDG_STATE_HOME"
        )
    log = _decisions.read_log(path, start)
    _decisions.rotate(path)
    for trouble in log.troubles:
        click.echo(f"warning: {trouble}", err=True)
    if log.bad:
        click.echo(
            f"warning: {path}: {render.many(log.bad, 'line')} left out: no decision", err=True
        )
    told = _ask(log.entries, now)
    summary = summarise(log.entries, told, now)
    if as_data:
        shown = number or len(log.entries)
        click.echo(json.dumps(as_json(log, told, summary, path, shown), indent=2))
        return
    if not log.entries:
        where = "" if os.path.lexists(path) else "; see `sbatch-router doctor`"
        click.echo(f"nothing was decided since {_day(start)} ({path}){where}", err=True)
        return
    if told.trouble:
        click.echo(f"warning: what became of ended jobs is not known: {told.trouble}", err=True)
    screen = Screen(plain)
    limit = 20 if number is None else number or len(log.entries)
    screen.lines(page(log.entries, told, summary, limit, screen, now))


def _day(start: float) -> str:
    return datetime.date.fromtimestamp(start).isoformat() if start else "ever"


class Told(NamedTuple):
    """What Slurm told of the jobs, in step with the entries."""

    became: Sequence[Optional[Became]]
    default_account: str
    #: Why ended jobs are not known.
    trouble: str = ""


def _ask(entries: Sequence[Entry], now: float) -> Told:
    if not entries:
        return Told((), "")
    user = _pools.me()
    accounting, queued = _sacct.ask(user, entries[0].at - 60), _sacct.queue()
    if accounting.trouble and queued.trouble:
        return Told([None] * len(entries), "", accounting.trouble)
    became = _decisions.match(entries, _sacct.known_jobs(accounting, queued))
    return Told(became, _default_account(user) if _moved(entries) else "", accounting.trouble)


def _moved(entries: Sequence[Entry]) -> bool:
    return any(entry.changed for entry in entries)


def _default_account(user: str) -> str:
    site = _pools.ask_site(user)
    return site.default_account if isinstance(site.default_account, str) else ""


# -- what became of them -------------------------------------------------------------------------


def waited(entry: Entry, job: _sacct.JobRow) -> Optional[float]:
    """Seconds from submission to the start; None: it has not started, or never did."""
    if job.start is None or (job.state.startswith("CANCELLED") and job.start == job.end):
        # sacct gives a job that was cancelled while it waited a start, at its end.
        return None
    return max(0.0, job.start - job.submit)


def outcome(entry: Entry, found: Optional[Became], told: Told, now: float) -> Tuple[str, str]:
    """What became of a decision, in words, and their style."""
    if entry.action == "refuse":
        return ("full at that time" if entry.exit_code == 75 else "never fits"), BAD
    if found is None:
        return ("not known" if told.trouble else "no job found"), NOTE
    job = found.job
    wait = waited(entry, job)
    if wait is not None:
        state = job.state.lower().replace("_", " ")
        return f"started after {render.seconds(wait)}, {state}", GOOD if wait < _AT_ONCE else ""
    if job.state == "PENDING":
        reason = job.reason or "no reason yet"
        return f"waiting for {render.seconds(now - job.submit)}: {reason}", "yellow"
    end = f" after {render.seconds(job.end - job.submit)}" if job.end else ""
    reason = f", waited for {job.reason}" if job.reason else ""
    return f"never started: {job.state.lower()}{end}{reason}", BAD


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
    #: Moved jobs whose default account was full of others' jobs, and the least they would have
    #: waited longer there.
    avoided_jobs: int
    avoided_seconds: float
    default_account: str
    stuck: Sequence[Tuple[str, str, float]]
    chronic: Sequence[Chronic]


def summarise(entries: Sequence[Entry], told: Told, now: float) -> Summary:
    """Count and estimate; see the command's help for how."""
    actions: Dict[str, int] = {}
    waits: List[float] = []
    stuck: List[Tuple[str, str, float]] = []
    moved = avoided_jobs = 0
    avoided = 0.0
    until = _full_until(entries, told.default_account)
    for index, (entry, found) in enumerate(zip(entries, told.became)):
        actions[entry.action] = actions.get(entry.action, 0) + 1
        wait = waited(entry, found.job) if found else None
        if entry.changed:
            moved += 1
            if wait is not None:
                waits.append(wait)
                if index in until:
                    avoided_jobs += 1
                    avoided += max(0.0, until[index] - entry.at - wait)
        if found and found.job.state == "PENDING" and now - found.job.submit > _AT_ONCE:
            stuck.append((found.job.id, found.job.reason, now - found.job.submit))
    return Summary(
        actions, moved, waits, avoided_jobs, avoided, told.default_account, stuck, chronic(entries)
    )


def _full_until(entries: Sequence[Entry], account: str) -> Dict[int, float]:
    """Entry -> when the account was last seen full, for entries that found it full of others'."""
    found: Dict[int, float] = {}
    last = 0.0
    if not account:
        return found
    for index in range(len(entries) - 1, -1, -1):
        full = _is_full(entries[index], account)
        if full:
            last = last or entries[index].at
            found[index] = last
        elif full is False:
            last = 0.0
    return found


def _is_full(entry: Entry, account: str) -> Optional[bool]:
    """Whether others filled all pools of an account; None: it was not judged."""
    judged = [
        verdict
        for name, verdict in entry.verdicts.items()
        if name.partition("/")[0] == account and verdict in _JUDGED
    ]
    return all(verdict == core.WAITS_OTHERS for verdict in judged) if judged else None


def chronic(entries: Sequence[Entry]) -> List[Chronic]:
    """The accounts that are nearly always full, judging by the log."""
    names = dict.fromkeys(n.partition("/")[0] for e in entries for n in e.verdicts)
    found = []
    for account in names:
        judged = [(e, full) for e in entries for full in [_is_full(e, account)] if full is not None]
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


# -- for people ----------------------------------------------------------------------------------

_WORDS = {
    "route": "sent to {}",
    "queue": "queued on {}",
    "keep": "kept in {}",
    "pass": "as written",
    "refuse": "refused",
}


def page(
    entries: Sequence[Entry],
    told: Told,
    summary: Summary,
    limit: int,
    screen: Screen,
    now: float,
) -> List[Text]:
    """The last decisions, then the summary."""
    first = max(0, len(entries) - limit)
    shown = list(zip(entries, told.became))[first:]
    jobs = [_job(found) for _, found in shown]
    width = max([len(job) for job in jobs] or [0])
    lines: List[Text] = []
    for (entry, found), job in zip(shown, jobs):
        lines += _lines(entry, found, job.rjust(width), told, screen, now)
    if first:
        lines.append(render.styled((f"({first} earlier: -n 0 shows all)", NOTE)))
    lines.append(Text(""))
    return lines + summary_lines(summary, screen, now)


def _job(found: Optional[Became]) -> str:
    if found is None:
        return "-"
    return ("~" if found.match == _decisions.LIKELY else "") + found.job.id


def _lines(
    entry: Entry, found: Optional[Became], job: str, told: Told, screen: Screen, now: float
) -> List[Text]:
    clock = time.strftime("%m-%d %H:%M", time.localtime(entry.at))
    where = f"{entry.account}/{entry.qos}" if entry.qos else entry.account
    decided = _WORDS.get(entry.action, entry.action).format(where)
    text, style = outcome(entry, found, told, now)
    mark = " *" if entry.changed else ""
    head = f"{clock}  {job}  {decided}{mark}"
    lines = [render.styled((head, "bold"))]
    if len(head) + 2 + len(text) <= screen.width:
        lines[0].append_text(render.styled("  ", (text, style)))
    else:
        lines += render.paragraph("", text, screen.width, style, 13)
    return lines + render.paragraph("", _details(entry), screen.width, NOTE, 13)


def _details(entry: Entry) -> str:
    """What was asked, the rule, and what the other accounts lacked."""
    parts = [entry.job_name] if entry.job_name else []
    asked = " ".join(
        f"{tres}={render.amount(tres, n)}"
        for tres, n in entry.tres.items()
        if tres not in ("node", "billing")
    )
    if entry.array_tasks > 1:
        asked += f", {entry.array_tasks} tasks"
    parts += [asked] if asked else []
    if entry.rule:
        parts.append(f"rule {entry.rule!r}")
    chosen = f"{entry.account}/{entry.qos}"
    lacking = []
    for name, verdict in entry.verdicts.items():
        if name != chosen and verdict != core.FITS:
            reason = entry.reasons.get(name)
            words = verdict.replace("_", " ")
            lacking.append(f"{name} {words}" + (f" [{reason}]" if reason else ""))
    parts += [", ".join(lacking)] if lacking else []
    if not lacking or entry.action in ("pass", "refuse"):
        parts += [entry.why] if entry.why else []
    return "; ".join(parts)


def summary_lines(summary: Summary, screen: Screen, now: float) -> List[Text]:
    """The summary for people."""
    counts = ", ".join(f"{n} {_noun(action)}" for action, n in summary.actions.items())
    total = sum(summary.actions.values())
    lines = render.paragraph(
        "", f"{render.many(total, 'decision')}: {counts}", screen.width, "bold"
    )
    lines += render.paragraph("", _moved_words(summary), screen.width)
    if summary.avoided_seconds >= 1:
        lines += render.paragraph("", _avoided_words(summary), screen.width)
    for job, reason, seconds in summary.stuck:
        text = f"job {job} waiting for {render.seconds(seconds)}: {reason or 'no reason yet'}"
        lines += render.paragraph("", text, screen.width, "yellow")
    for one in summary.chronic:
        text = f"blocked? {one.account} was {one.words()}. If that will stay so, add to the policy:"
        lines += [Text(""), *render.paragraph("", text, screen.width, "magenta")]
        lines += [Text("blocked:"), *(render.styled(line) for line in one.yaml(now))]
    return lines


def _noun(action: str) -> str:
    return {"route": "sent", "queue": "queued", "keep": "kept", "pass": "as written"}.get(
        action, "refused"
    )


def _moved_words(summary: Summary) -> str:
    if not summary.moved:
        return "none was moved to another account than sbatch alone would have used (*)"
    text = (
        f"{render.many(summary.moved, 'job')} moved (*) to another account than sbatch alone "
        "would have used"
    )
    if summary.waits:
        at_once = sum(wait < _AT_ONCE for wait in summary.waits)
        middle = sorted(summary.waits)[len(summary.waits) // 2]
        text += (
            f"; of {len(summary.waits)} that started, {at_once} did within a minute "
            f"(median {render.seconds(middle)})"
        )
    return text


def _avoided_words(summary: Summary) -> str:
    return (
        f"waiting avoided, estimated: at least {render.seconds(summary.avoided_seconds)} in all, "
        f"for {render.many(summary.avoided_jobs, 'job')} that found {summary.default_account}, "
        "your default account, full of others' jobs (until the last decision in a row that found "
        "it so; how long after is not known)"
    )


# -- for programs --------------------------------------------------------------------------------


def as_json(
    log: _decisions.Log, told: Told, summary: Summary, path: str, shown: int
) -> Dict[str, object]:
    """The object of ``history --json``. Times are seconds since the epoch, null if not known."""
    pairs = list(zip(log.entries, told.became))[max(0, len(log.entries) - shown) :]
    return {
        "log": {"file": path, "decisions": len(log.entries), "bad_lines": log.bad},
        "accounting": {"trouble": told.trouble},
        "decisions": [_decision_json(entry, found) for entry, found in pairs],
        "summary": {
            "actions": dict(summary.actions),
            "moved": summary.moved,
            "moved_started": len(summary.waits),
            "moved_waited_seconds": [round(wait) for wait in summary.waits],
            "default_account": summary.default_account,
            "avoided_is_an_estimate": True,
            "avoided_jobs": summary.avoided_jobs,
            "avoided_seconds_at_least": round(summary.avoided_seconds),
            "stuck": [
                {"job": job, "reason": reason, "waiting_seconds": round(seconds)}
                for job, reason, seconds in summary.stuck
            ],
            "chronically_full": [
                {
                    "account": one.account,
                    "full": one.full,
                    "judged": one.judged,
                    "reason": one.reason,
                    "words": one.words(),
                }
                for one in summary.chronic
            ],
        },
    }


def _decision_json(entry: Entry, found: Optional[Became]) -> Dict[str, object]:
    data: Dict[str, object] = {
        "time": entry.at,
        "action": entry.action,
        "account": entry.account,
        "qos": entry.qos,
        "rule": entry.rule,
        "why": entry.why,
        "changed": entry.changed,
        "exit_code": entry.exit_code,
        "job_name": entry.job_name,
        "tres": dict(entry.tres),
        "array_tasks": entry.array_tasks,
        "verdicts": dict(entry.verdicts),
        "reasons": dict(entry.reasons),
        "job": None,
    }
    if found is not None:
        job = found.job
        wait = waited(entry, job)
        data["job"] = {
            "id": job.id,
            "match": found.match,
            "state": job.state,
            "reason": job.reason,
            "submitted": round(job.submit),
            "started": None if job.start is None else round(job.start),
            "ended": None if job.end is None else round(job.end),
            "waited_seconds": None if wait is None else round(wait),
            "exit_code": job.exit_code,
        }
    return data
