"""``sbatch-router history``: what was decided, why, and what became of the jobs."""

from __future__ import annotations

import datetime
import json
import os
import re
import time
from typing import Dict, List, Optional, Sequence, Tuple

import click
from rich.text import Text

from ..core import decide as core
from ..core import spell
from ..decisionlog import log_path
from ..slurm.patience import explain
from . import _avoided, _decisions, _pools, _sacct
from . import _policy as policies
from . import _render as render
from ._decisions import Became, Entry
from ._render import BAD, GOOD, NOTE, Screen
from ._summary import AT_ONCE, INSTEAD, NOT_KNOWN, Summary, Told, kind_of, summarise, waited

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def _since(text: str, now: float) -> float:
    """``12h``, ``30d``, ``2026-03-02``, ``all``. Raises ValueError."""
    if text == "all":
        return 0.0
    short = re.fullmatch(r"(\d{1,6})([smhdw])", text)
    if short:
        return now - int(short[1]) * _UNITS[short[2]]
    return datetime.datetime.fromisoformat(text).timestamp()


@click.command("history", short_help="Show what was decided, and what became of the jobs.")
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
    metavar="N",
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

    The summary says how many jobs were moved, how long they waited, and what the place had at
    that time where sbatch alone would have sent them: room as well, or none, and why. How much
    waiting that avoided can only be estimated: such a place counts as full from one decision
    to the last in a row that found it full, for a job that asked for no more. And it says
    which accounts are chronically full, with the lines that would block them.

    A log of more than 5 MiB is set aside here, and the one set aside before is dropped.

    \b
    Examples:
      sbatch-router history
      sbatch-router history --since 7d -n 0
      sbatch-router history --json | jq .summary

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
    policies.remind(policies.environment())
    path = log_path(policies.environment())
    if not path:
        raise click.ClickException(
            "HOME is not set, so there is no log; set HOME or XDG_STATE_HOME"
        )
    log = _decisions.read_log(path, start)
    _decisions.rotate(path)
    if log.troubles and not log.entries and not log.bad:
        # Not "nothing was decided": nobody knows.
        raise click.ClickException("; ".join(log.troubles))
    for trouble in log.troubles:
        click.echo(f"warning: {trouble}", err=True)
    if log.bad:
        click.echo(
            f"warning: {path}: {render.many(log.bad, 'line')} left out: no decision", err=True
        )
    told = _ask(log, now)
    summary = summarise(log.entries, told, now)
    if as_data:
        shown = number or len(log.entries)
        click.echo(json.dumps(as_json(log, told, summary, path, shown), indent=2))
        return
    if not log.entries:
        where = "" if os.path.lexists(path) else "; see `sbatch-router doctor`"
        click.echo(f"nothing was decided since {_day(start)} ({path}){where}", err=True)
        return
    for what, trouble in (("ended", told.trouble), ("waiting", told.queue_trouble)):
        if trouble:
            words = f"what became of {what} jobs is not known: {explain([trouble])}"
            click.echo(f"warning: {words}; see `sbatch-router doctor`", err=True)
    screen = Screen(plain)
    limit = 20 if number is None else number or len(log.entries)
    screen.lines(page(log.entries, told, summary, limit, screen, now))


def _day(start: float) -> str:
    return datetime.date.fromtimestamp(start).isoformat() if start else "ever"


def _ask(log: _decisions.Log, now: float) -> Told:
    entries = log.entries
    if not entries:
        return Told((), "")
    user = _pools.me()
    # Last what may take long: a large accounting is no reason not to wait.
    queued = _sacct.queue()
    unsaid = any(entry.changed and not entry.unrouted for entry in entries)
    default = _default_account(user) if unsaid and not queued.trouble else ""
    accounting = _sacct.ask(user, entries[0].at - 60)
    if accounting.trouble and queued.trouble:
        return Told([None] * len(entries), "", accounting.trouble, queued.trouble)
    became = _decisions.match(log.entries, _sacct.known_jobs(accounting, queued), log.moves)
    return Told(became, default, accounting.trouble, queued.trouble)


def _default_account(user: str) -> str:
    site = _pools.ask_site(user)
    return site.default_account if isinstance(site.default_account, str) else ""


# -- what became of them -------------------------------------------------------------------------


def outcome(entry: Entry, found: Optional[Became], told: Told, now: float) -> Tuple[str, str]:
    """What became of a decision, in words, and their style."""
    if entry.action == "refuse":
        return ("full at that time" if entry.exit_code == 75 else "never fits"), BAD
    if found is None:
        return ("not known" if told.trouble else "no job found"), NOTE
    job = found.job
    wait = waited(entry, job)
    moved = f"rerouted to {job.account}, " if entry.account not in ("", job.account) else ""
    if wait is not None:
        state = job.state.lower().replace("_", " ")
        words = f"{moved}started after {spell.seconds(wait)}, {state}"
        return words, GOOD if wait < AT_ONCE else ""
    if job.state == "PENDING":
        reason = job.reason or "no reason yet"
        return f"{moved}waiting for {spell.seconds(now - job.submit)}: {reason}", "yellow"
    end = f" after {spell.seconds(job.end - job.submit)}" if job.end else ""
    reason = f", waited for {job.reason}" if job.reason else ""
    return f"{moved}never started: {job.state.lower()}{end}{reason}", BAD


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
    details = _details(entry, found, told)
    return lines + render.paragraph("", details, screen.width, NOTE, 13)


def _details(entry: Entry, found: Optional[Became], told: Told) -> str:
    """What was asked, the rule, where it would have gone, and what the other accounts lacked."""
    job_name = entry.job_name or (found.job.name if found else "")
    parts = [job_name] if job_name else []
    asked = " ".join(
        f"{tres}={spell.amount(tres, n)}"
        for tres, n in entry.tres.items()
        if tres not in ("node", "billing")
    )
    if entry.array_tasks > 1:
        asked += f", {entry.array_tasks} tasks"
    parts += [asked] if asked else []
    if entry.rule:
        parts.append(f"rule {entry.rule!r}")
    one = _avoided.unrouted(entry, told.default_account)
    moved = one is not None and one.place == entry.unrouted
    if one is not None and moved:
        why = f" [{one.reason}]" if one.reason else ""
        parts.append(f"not {one.place}: {kind_of(one)[1]}{why}")
    told_of = (f"{entry.account}/{entry.qos}", entry.unrouted if moved else "")
    lacking = []
    for name, verdict in entry.verdicts.items():
        if name not in told_of and verdict != core.FITS:
            reason = entry.reasons.get(name)
            key, words = kind_of(_avoided.Unrouted(name, verdict))
            words = verdict if key == NOT_KNOWN[0] else words
            lacking.append(f"{name} {words}" + (f" [{reason}]" if reason else ""))
    parts += [", ".join(lacking)] if lacking else []
    if not (lacking or moved) or entry.action in ("pass", "refuse"):
        parts += [entry.why] if entry.why else []
    return "; ".join(parts)


def summary_lines(summary: Summary, screen: Screen, now: float) -> List[Text]:
    """The summary for people."""
    counts = ", ".join(f"{n} {_noun(action)}" for action, n in summary.actions.items())
    total = sum(summary.actions.values())
    lines = render.paragraph(
        "", f"{render.many(total, 'decision')}: {counts}", screen.width, "bold"
    )
    for text in _moved_words(summary):
        lines += render.paragraph("", text, screen.width)
    for job, reason, seconds in summary.stuck:
        text = f"job {job} waiting for {spell.seconds(seconds)}: {reason or 'no reason yet'}"
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


def _moved_words(summary: Summary) -> List[str]:
    """What was moved, what that was worth, and what it was not."""
    if not summary.moved:
        return ["none was moved to another account than sbatch alone would have used (*)"]
    text = (
        f"{render.many(summary.moved, 'job')} moved (*) to another account than sbatch alone "
        "would have used"
    )
    if summary.waits:
        at_once = sum(wait < AT_ONCE for wait in summary.waits)
        middle = sorted(summary.waits)[len(summary.waits) // 2]
        text += (
            f"; {len(summary.waits)} of them started so far, {at_once} within a minute "
            f"(median {spell.seconds(middle)})"
        )
    found = [text, _instead_words(summary)]
    if summary.avoided_seconds >= 1:
        found.append(
            f"waiting avoided, estimated: at least {spell.seconds(summary.avoided_seconds)} in "
            f"all, for {render.many(summary.avoided_jobs, 'job')} (until the last decision in a "
            "row that found no room for as much; how long after is not known)"
        )
    if summary.in_vain:
        found.append(
            f"{render.many(summary.in_vain, 'moved job')} waited a minute or longer although "
            "there was room without the move"
        )
    if summary.guessed and summary.default_account:
        found.append(
            f"({render.many(summary.guessed, 'job')} logged by an older version: the place is "
            f"taken to be {summary.default_account}, your default account)"
        )
    return found


def _instead_words(summary: Summary) -> str:
    """``the places ...: 2 full of others' jobs (QOSGrpMemLimit 2), 1 free as well``."""
    parts = []
    for key, words in [*(row[1:] for row in INSTEAD), NOT_KNOWN]:
        number = summary.instead.get(key, 0)
        if number:
            parts.append(f"{number} {words}")
            if key == "full":
                reasons = ", ".join(f"{name} {n}" for name, n in summary.full_reasons.items())
                parts[-1] += f" ({reasons})"
    return "the places where sbatch alone would have sent them were then: " + ", ".join(parts)


# -- for programs --------------------------------------------------------------------------------


def as_json(
    log: _decisions.Log, told: Told, summary: Summary, path: str, shown: int
) -> Dict[str, object]:
    """The object of ``history --json``. Times are seconds since the epoch, null if not known."""
    pairs = list(zip(log.entries, told.became))[max(0, len(log.entries) - shown) :]
    return {
        "log": {"file": path, "decisions": len(log.entries), "bad_lines": log.bad},
        "accounting": {"trouble": told.trouble},
        "queue": {"trouble": told.queue_trouble},
        "decisions": [_decision_json(entry, found, told) for entry, found in pairs],
        "summary": {
            "actions": dict(summary.actions),
            "moved": summary.moved,
            "moved_started": len(summary.waits),
            "moved_waited_seconds": [round(wait) for wait in summary.waits],
            "moved_from": dict(summary.instead),
            "moved_from_full_reasons": dict(summary.full_reasons),
            "moved_in_vain": summary.in_vain,
            "moved_from_guessed": summary.guessed,
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


def _decision_json(entry: Entry, found: Optional[Became], told: Told) -> Dict[str, object]:
    one = _avoided.unrouted(entry, told.default_account)
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
        "unrouted": None if one is None else one._asdict(),
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
