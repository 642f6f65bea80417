"""``sbatch-router explain``: the decision the shim would take now; nothing is submitted."""

from __future__ import annotations

import json
import os
import select
import stat
import time
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

import click
from rich.text import Text

from .. import route
from ..core import decide as core
from ..core import spell
from ..core.decide import Candidate, Decision
from ..core.limits import START, Check
from ..core.match import why_not
from ..core.policy import Blocked, Policy, Rule
from ..core.report import as_json, holding
from ..core.tres import UNKNOWN, endless
from ..host import TIMEOUT
from ..slurm.options import parse
from ..slurm.patience import explain as stuck
from ..slurm.pyslurm_source import PYSLURM
from ..slurm.request import is_heterogeneous
from ..slurm.script import respool_stdin, script_path
from ..source import choose
from . import _policy as policies
from . import _render as render
from ._render import BAD, GOOD, Row, Screen

#: Seconds that a script on standard input may take to begin.
_STDIN_SECONDS = 2.0

#: Verdict -> (words, style).
_VERDICTS = {
    core.FITS: ("fits now", GOOD),
    core.WAITS_MINE: ("waits for your own jobs", "cyan"),
    core.WAITS_OTHERS: ("full: others hold it", BAD),
    core.NEVER: ("can never run here", BAD),
    core.NOT_ALLOWED: ("not allowed", BAD),
    core.BLOCKED: ("blocked", "magenta"),
    core.UNKNOWN_VERDICT: ("not known", "yellow"),
}
_ORIGINS = {
    "cli": "on the command line",
    "env": "in the environment",
    "script": "in the script",
}


@click.command(
    "explain",
    short_help="Show where a job would go now, and why not elsewhere.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option("--json", "as_data", is_flag=True, help="Print one JSON object instead.")
@render.ascii_option
@click.argument("sbatch_args", nargs=-1, type=click.UNPROCESSED, metavar="[--] SBATCH-ARGS...")
def command(as_data: bool, plain: bool, sbatch_args: Tuple[str, ...]) -> None:
    """Show which account a job would go to now, and why not to the others.

    Takes the arguments that sbatch would get, reads the same policy, script and environment,
    asks Slurm the same questions and decides as the installed sbatch does. Nothing is
    submitted, promised or logged.

    For each account it shows the limits that bind, how full they are, how much of that is
    yours, and by how much the one that is in the way is exceeded. Below the decision stands
    the rule that matched and why the rules before it did not.

    Without a script, options alone are judged. A script on standard input is read as sbatch
    would read it, but never from a terminal.

    \b
    Examples:
      sbatch-router explain -- --gres=gpu:1 --mem=125G job.sh
      sbatch-router explain -c 8 --mem=64G --wrap hostname
      sbatch-router explain --json -- job.sh | jq .account

    \b
    Exit status:
      0  it could decide, whatever the decision is
      1  there is no policy, or it has errors
    """
    environ = policies.environment()
    policy = policies.in_use(environ)
    _settle_stdin(sbatch_args)
    call = route.read_call(sbatch_args, environ)
    found = route.consider(call, environ, policy, promise=False)
    now = time.time()
    if as_data:
        data = as_json(found.decision, found.request, found.snapshot, now)
        click.echo(json.dumps(data, indent=2))
        return
    holders = route.who_holds(found, environ)
    usage = _usage(found, policy, environ, now)
    _Page(found, policy, holders, usage, Screen(plain), sbatch_args).show()


def _settle_stdin(argv: Sequence[str]) -> None:
    """Put a script that does nothing in place of a standard input that is nobody's script.

    That is a terminal, /dev/null, or a pipe in which nothing comes for a while.
    """
    parsed = parse(argv)
    if parsed.operands < len(argv) or any(name == "wrap" for name, _ in parsed.options):
        return
    try:
        kind = os.fstat(0).st_mode
        if stat.S_ISREG(kind):
            return
        if stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind):
            if select.select([0], [], [], _STDIN_SECONDS)[0]:
                return
            click.echo("nothing came on standard input: judged without a script", err=True)
    except OSError:
        pass  # standard input is closed
    empty = respool_stdin(b"#!/bin/sh\n")
    if empty != 0:
        os.dup2(empty, 0)
        os.close(empty)


class _Page:
    """What is shown to people."""

    def __init__(
        self,
        found: route.Considered,
        policy: Policy,
        holders: Mapping[str, str],
        usage: str,
        screen: Screen,
        argv: Sequence[str] = (),
    ) -> None:
        self.found = found
        self.argv = argv
        self.decision = found.decision
        self.policy = policy
        self.holders = holders
        self.usage = usage
        self.screen = screen

    def show(self) -> None:
        screen = self.screen
        words, style = headline(self.found)
        screen.lines(render.paragraph("", words, screen.width, style))
        for label, text in self._facts():
            screen.words(f"{label:<9} ", text, indent=2)
        candidates = self.decision.candidates
        if not candidates:
            return
        screen.line()
        # Only limits that bind this job: one row a TRES.
        rows = {id(c): limit_rows(c, self.decision) for c in candidates}
        every = [row for some in rows.values() for row in some]
        width = max(len(_name(c)) for c in candidates)
        for candidate in candidates:
            screen.lines(self._head(candidate, width))
            screen.lines(render.table(rows[id(candidate)], screen, every))
            holder = self.holders.get(candidate.qos)
            if holder and candidate.verdict == core.WAITS_OTHERS:
                screen.words("held by ", holder, indent=2 if screen.width < render.NARROW else 4)
        if every:
            screen.line()
            screen.line(render.legend(screen.signs))

    def _facts(self) -> List[Tuple[str, str]]:
        decision, request, snapshot = self.found.decision, self.found.request, self.found.snapshot
        facts = [("why", decision.why)] if decision.why else []
        facts += [("note", note) for note in decision.notes if note != decision.why]
        asked = asked_words(self.found)
        if asked:
            facts.append(("asks for", asked))
        facts += [("named", text) for text in _named(self.found)]
        facts += [("rule", text) for text in rule_words(self.found, self.policy)]
        facts += [("script", text) for text in _missing_script(self.argv)]
        facts.append(("usage", self.usage))
        facts += [("trouble", text) for text in _troubles(snapshot.troubles, decision.why)]
        doubts = list(request.doubts)
        if decision.need is not None:
            doubts += decision.need.doubts
            later = [name for name in decision.need.later if name != "billing"]
            if later:
                doubts.append(f"{', '.join(later)}: settled only when the job starts")
        facts += [("doubt", text) for text in doubts if text not in decision.why]
        facts += [("next", text) for text in _next(self.found)]
        return facts

    def _head(self, candidate: Candidate, width: int) -> List[Text]:
        decision, screen = self.decision, self.screen
        chosen = bool(decision.account) and (candidate.account, candidate.qos) == (
            decision.account,
            decision.qos,
        )
        mark = screen.signs.chosen if chosen else " "
        words, style = _VERDICTS.get(candidate.verdict, (candidate.verdict, ""))
        if candidate.verdict == core.BLOCKED and self._entry(candidate) is None:
            words = "left out"
        label = f"{mark} {_name(candidate):<{width}}  "
        text = words + (f" [{candidate.reason}]" if candidate.reason else "")
        why = self._why(candidate)
        if why:
            text += f": {why}"
        if len(label) > screen.width // 2:
            head = [render.styled((label.rstrip(), "bold"))]
            return head + render.paragraph("", text, screen.width, style, 4)
        rows = render.paragraph(label, text, screen.width, style)
        rows[0].stylize("bold", 0, len(label))
        return rows

    def _why(self, candidate: Candidate) -> str:
        """What the rows below do not show."""
        if candidate.verdict == core.BLOCKED:
            return self._block(candidate)
        if candidate.verdict in (core.NOT_ALLOWED, core.UNKNOWN_VERDICT):
            return candidate.why
        if candidate.verdict == core.WAITS_MINE and candidate.starts:
            return candidate.why
        held = holding(candidate)
        if held is not None and held.where != f"qos {candidate.qos}":
            return held.where
        return ""

    def _block(self, candidate: Candidate) -> str:
        entry = self._entry(candidate)
        if entry is None:
            return candidate.why
        text = policies.block_words(entry)
        if entry.file and entry.file != self.policy.files[0]:
            text += f", says {entry.file}"
        return text

    def _entry(self, candidate: Candidate) -> Optional[Blocked]:
        """The policy's block, if that is why the account is left out."""
        blocked = self.policy.blocked
        return next((b for b in blocked if b.account == candidate.account), None)


def _troubles(troubles: Sequence[str], why: str) -> List[str]:
    """What Slurm did not tell, as far as the decision's `why` does not say it."""
    where = stuck(troubles) if troubles else ""
    if where != "; ".join(dict.fromkeys(troubles)):
        return [where]
    return [text for text in troubles if text not in why]


def _missing_script(argv: Sequence[str]) -> List[str]:
    """Why the script that was named cannot be read, if it cannot."""
    parsed = parse(argv)
    if parsed.operands >= len(argv) or any(name == "wrap" for name, _ in parsed.options):
        return []
    if is_heterogeneous(argv, parsed):
        return []
    path = script_path(argv[parsed.operands], {"PATH": os.environ.get("PATH", "")})
    if not os.path.lexists(path):
        return [f"{path} does not exist"]
    return [] if os.access(path, os.R_OK) else [f"{path} cannot be read"]


def _name(candidate: Candidate) -> str:
    return f"{candidate.account}/{candidate.qos}" if candidate.qos else candidate.account


def headline(found: route.Considered) -> Tuple[str, str]:
    """The decision in one sentence, and its style."""
    decision = found.decision
    where = f"{decision.account}/{decision.qos}" if decision.qos else decision.account
    if decision.action == "keep":
        return f"sbatch keeps the account you named: {where}", "bold"
    if decision.action == "pass":
        return "sbatch submits this as you wrote it", "bold yellow"
    if decision.action == "refuse":
        kind = "try again later" if decision.exit_code == 75 else "no account may ever run it"
        return f"sbatch refuses this with exit code {decision.exit_code}: {kind}", BAD
    verb = "queues this on" if decision.action == "queue" else "submits this to"
    return f"sbatch {verb} {where}{_instead(found)}", GOOD if decision.action == "route" else "bold"


def _instead(found: route.Considered) -> str:
    decision = found.decision
    if decision.changed is False:
        return ", as it would without the router"
    word = "on" if decision.action == "queue" else "to"
    given = found.request.given("account")
    if given and given.value.lower() != decision.account:
        return f", not {word} {given.value} (named {_ORIGINS.get(given.origin, given.origin)})"
    default = found.snapshot.default_account
    if not given and isinstance(default, str) and default != decision.account:
        return f", not {word} {default} (your default account)"
    return ""


def asked_words(found: route.Considered) -> str:
    """``cpu=8 mem=125G gres/gpu=1, 3 tasks, 1h, partition main``."""
    decision, request = found.decision, found.request
    need = decision.need
    if need is None or need.doubts:
        return ""
    shown = [
        f"{name}={spell.amount(name, value)}"
        for name, value in need.tres.items()
        if name != "billing" and not (name == "node" and value == 1)
    ]
    parts = [" ".join(shown)]
    if request.array_tasks > 1:
        at_once = request.array_at_once
        limit = f", {at_once} at once" if at_once and at_once < request.array_tasks else ""
        parts.append(f"each of {request.array_tasks} tasks{limit}")
    parts.append(_time_words(need.time_limit))
    if decision.partition:
        parts.append(f"partition {decision.partition}")
    return ", ".join(part for part in parts if part)


def _time_words(limit: object) -> str:
    if limit is UNKNOWN:
        return ""
    return "no time limit" if limit is None else spell.minutes(limit)


def _named(found: route.Considered) -> List[str]:
    """The account and QOS that the user named, and where."""
    texts = []
    for option in ("account", "qos"):
        given = found.request.given(option)
        if given:
            origin = _ORIGINS.get(given.origin, given.origin)
            texts.append(f"{option} {given.value} {origin}")
    return texts


def rule_words(found: route.Considered, policy: Policy) -> List[str]:
    """The rule that matched, and for each before it the condition that failed."""
    decision = found.decision
    if not policy.rules or not decision.candidates:
        return []
    facts = _facts_of(found)
    texts: List[str] = []
    for rule in policy.rules:
        if rule.name == decision.rule:
            return [*texts, _rule(rule)]
        failed = why_not(rule.when, facts)
        texts.append(f"not {rule.name!r}: {failed}" if failed else f"not {rule.name!r}")
    return [*texts, "no rule matches, so any account, in the default order"]


def _facts_of(found: route.Considered) -> Dict[str, object]:
    # Not part of decide's interface, but there must be no second reading of a job.
    partitions = core._partitions(found.request, found.snapshot)
    return core._facts(found.request, found.decision.need, partitions, found.snapshot.user)


def _rule(rule: Rule) -> str:
    tests = ", ".join(f"{name} {test.text}" for name, test in rule.when.items()) or "any job"
    order = f"; order {', '.join(rule.order)}" if rule.order else ""
    return f"{rule.name!r} ({tests}{order})"


def _usage(
    found: route.Considered, policy: Policy, environ: Mapping[bytes, bytes], now: float
) -> str:
    """Where the numbers come from, and why not from where the policy says."""
    snapshot = found.snapshot
    text = f"from {snapshot.source}, {max(0, round(now - snapshot.taken_at))} s old"
    if policy.source == PYSLURM != snapshot.source:
        choice, _, _ = choose(environ, PYSLURM, TIMEOUT)
        if choice.source != PYSLURM:
            text += f"; the policy asks for pyslurm: {choice.why}"
    return text


def _next(found: route.Considered) -> List[str]:
    decision = found.decision
    if decision.action == "refuse" and decision.exit_code == 77:
        return ["ask for less; SBATCH_ROUTER=off sbatch ... submits it as it is"]
    if decision.action == "refuse":
        full = [c.account for c in decision.candidates if c.verdict == core.WAITS_OTHERS]
        look = f"squeue -A {','.join(dict.fromkeys(full))}" if full else "squeue --me"
        return [f"{look}; `when_full: queue` in the policy queues such jobs"]
    if decision.action == "pass" and found.snapshot.troubles:
        return ["sbatch-router doctor"]
    return []


# -- limits --------------------------------------------------------------------------------------


def limit_rows(candidate: Candidate, decision: Decision) -> List[Row]:
    """One row for each TRES that is limited: the limit with the least room; and what holds it."""
    held = holding(candidate)
    best: Dict[str, Check] = {}
    for check in candidate.checks:
        if check.stage != START or not check.requested or check.minimum:
            continue
        if not _has_use(check) and not check.never():
            continue
        key = check.tres or check.kind
        if key not in best or _room(check) < _room(best[key]):
            best[key] = check
    if held is not None:
        best[held.tres or held.kind] = held
    return [_row(check, check is held, candidate) for check in _in_order(best, decision)]


def _has_use(check: Check) -> bool:
    """Whether running jobs count against it (a limit on one job has no use)."""
    return (
        check.kind.startswith("Grp") or check.kind[-2:] in ("PU", "PA") or check.kind == "MaxJobs"
    )


def _room(check: Check) -> float:
    return check.room() / check.requested


def _in_order(best: Mapping[str, Check], decision: Decision) -> List[Check]:
    """As the job asks for them, then counts."""
    wanted = list(decision.need.tres) if decision.need is not None else []
    places = {name: number for number, name in enumerate(wanted)}
    return sorted(best.values(), key=lambda c: places.get(c.tres, len(places)))


def _row(check: Check, short: bool, candidate: Candidate) -> Row:
    name = check.tres or check.kind
    if check.tres and check.kind != "GrpTRES":
        name = f"{check.tres} {check.kind}"
    return Row(
        name,
        check.limit,
        check.used,
        check.mine,
        check.promised,
        _last(check, short, candidate),
        check.tres,
        check.kind,
        short,
    )


def _last(check: Check, short: bool, candidate: Candidate) -> str:
    asked = check.requested
    if short and candidate.verdict != core.FITS:
        if check.minimum:
            return f"wants {spell.amount(check.tres, check.limit, check.kind)}"
        missing = _missing(check, candidate)
        if missing is not None:
            return f"lacks {spell.amount(check.tres, missing, check.kind)}"
    return f"asks {spell.amount(check.tres, asked, check.kind)}"


def _missing(check: Check, candidate: Candidate) -> Optional[int]:
    """By how much the request does not fit."""
    if endless(check.kind, check.requested):
        return None
    if candidate.verdict == core.NEVER:
        return check.requested - check.limit
    used = check.used if isinstance(check.used, int) else 0
    over = used + check.promised + check.requested - check.limit
    return over if over > 0 else None
