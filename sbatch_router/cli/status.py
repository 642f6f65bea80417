"""``sbatch-router status``: every pool of the policy, as it is now."""

from __future__ import annotations

import json
import time
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import click
from rich.text import Text

from ..core import spell
from ..core.policy import Policy
from ..core.snapshot import Config, Site, Snapshot
from ..slurm.patience import begin, explain
from . import _policy as policies
from . import _pools
from . import _render as render
from ._pools import Bound, Pool
from ._render import BAD, GOOD, Row, Screen, known

#: Users named for one pool.
_NAMED = 3
#: How the reasons begin that a limit gives (core/reasons.py).
_LIMIT_REASONS = ("QOS", "Assoc", "Max")
#: Seconds between two looks of --watch, and the least there may be: it is an RPC each time.
WATCH_SECONDS, LEAST_SECONDS = 10.0, 2.0
NOTHING_BINDS = "no limit binds here (AccountingStorageEnforce)"
#: Seconds for which --watch keeps what only sacctmgr tells.
_SITE_SECONDS = 600.0


@click.command("status", short_help="Show how full the accounts are, and who fills them.")
@click.option("--json", "as_data", is_flag=True, help="Print one JSON object instead.")
@click.option(
    "--watch",
    type=click.FloatRange(LEAST_SECONDS, 86400),
    is_flag=False,
    flag_value=f"{WATCH_SECONDS:g}",
    metavar="[SECONDS]",
    help=f"Show it again every SECONDS ({WATCH_SECONDS:g}), until Ctrl-C.",
)
@render.ascii_option
def command(as_data: bool, watch: Optional[float], plain: bool) -> None:
    """Show how full the accounts of your policy are, and who fills them.

    For each account and QOS: every limit with what is used of it by all users, how much of
    that is yours, what your pending jobs and fresh submissions will add, who holds most, and
    why your pending jobs wait. Blocked accounts are shown with the reason; a block whose
    review date has come is a warning on standard error.

    With --json: {"user", "cluster", "time", "policy": {"files"}, "snapshot": {"source",
    "age_seconds", "troubles"}, "pools": [{"account", "qos", "partition", "state", "why",
    "limits": [{"tres", "kind", "where", "limit", "used", "mine", "pending"}], "per_job",
    "running_jobs", "pending_jobs", "pending_reasons", "users": [{"user", "tres"}]}],
    "blocked": [{"account", "reason", "since", "review", "overdue", "file"}]}. Numbers are
    integers, memory is MiB, null is unlimited (or not said), "unknown" is what Slurm did not
    tell. State is open, blocked, not_allowed or unknown.

    \b
    Examples:
      sbatch-router status
      sbatch-router status --watch 30
      sbatch-router status --json | jq '.pools[] | select(.state == "open")'

    \b
    Exit status:
      0  it was shown
      1  there is no policy, or Slurm did not answer
    """
    environ = policies.environment()
    policy = policies.in_use(environ)
    if watch is not None:
        _watch(policy, environ, watch, plain, as_data)
        return
    look = _look(policy, environ, _pools.ask_site())
    if as_data:
        click.echo(json.dumps(as_json(look), indent=2))
    else:
        screen = Screen(plain)
        screen.lines(page(look, screen))
    if not isinstance(look.snapshot.assocs, dict) or not isinstance(look.snapshot.qos, dict):
        raise click.ClickException(f"{explain(look.snapshot.troubles)}; see `sbatch-router doctor`")


class Look(NamedTuple):
    """One look at the pools."""

    policy: Policy
    site: Site
    snapshot: Snapshot
    pools: Sequence[Pool]
    #: Seconds since the epoch.
    at: float


def _look(policy: Policy, environ: Mapping[bytes, bytes], site: Site) -> Look:
    ledger = _pools.promises(environ)
    snapshot = _pools.ask_live(site, *_pools.names_of(policy))
    found = _pools.pools(policy, snapshot, ledger)
    found += _pools.partition_pools(snapshot, ledger)
    if not _binds(snapshot):
        found = [_unlimited(pool) for pool in found if not pool.partition]
    return Look(policy, site, snapshot, found, time.time())


def _binds(snapshot: Snapshot) -> bool:
    """Whether any limit counts on this cluster."""
    config = snapshot.config
    return not isinstance(config, Config) or bool(config.enforce & {"limits", "safe"})


def _unlimited(pool: Pool) -> Pool:
    """Without its limits: slurmctld shows them, and counts nothing against them."""
    why = NOTHING_BINDS if pool.state == "open" else pool.why
    return pool._replace(bounds=(), per_job=(), why=why)


def _watch(
    policy: Policy, environ: Mapping[bytes, bytes], every: float, plain: bool, as_data: bool
) -> None:
    """Until Ctrl-C: one live page; with --json, or not on a terminal, one after the other."""
    from rich.live import Live

    screen = Screen(plain)
    site = _pools.ask_site()
    on_terminal = screen.console.is_terminal and not as_data
    live = (
        Live(console=screen.console, auto_refresh=False, transient=False) if on_terminal else None
    )
    try:
        if live is not None:
            live.start()
        while True:
            begin()
            if time.time() - site.taken_at > _SITE_SECONDS or site.troubles:
                site = _pools.ask_site()
            look = _look(policy, environ, site)
            if live is not None:
                screen = Screen(plain)
                live.update(Text("\n").join(_fitting(page(look, screen), screen)), refresh=True)
            elif as_data:
                click.echo(json.dumps(as_json(look)))
            else:
                screen.lines([*page(look, screen), Text("")])
            time.sleep(every)
    except KeyboardInterrupt:
        return
    finally:
        if live is not None:
            live.stop()


def _fitting(lines: List[Text], screen: Screen) -> List[Text]:
    """As many lines as the terminal has, with a word on the rest."""
    height = screen.console.height - 1
    if len(lines) <= height or height < 3:
        return lines
    rest = len(lines) - height + 1
    return [*lines[: height - 1], Text(f"... {rest} more lines: make the terminal taller")]


# -- for people ----------------------------------------------------------------------------------


def page(look: Look, screen: Screen) -> List[Text]:
    """The lines of one page."""
    snapshot = look.snapshot
    cluster = snapshot.config.cluster if isinstance(snapshot.config, Config) else ""
    on = f" on cluster {cluster}" if cluster else ""
    clock = time.strftime("%H:%M:%S", time.localtime(snapshot.taken_at))
    lines = render.paragraph(
        "", f"pools of {snapshot.user}{on} at {clock}, from {snapshot.source}", screen.width, "bold"
    )
    if not _binds(snapshot):
        words = f"{NOTHING_BINDS}: every job is passed through"
        lines += render.paragraph("", words, screen.width, "yellow")
    for trouble in snapshot.troubles:
        lines += render.paragraph("trouble: ", trouble, screen.width, BAD)
    rows = {index: [_row(b, pool) for b in pool.bounds] for index, pool in enumerate(look.pools)}
    every = [row for some in rows.values() for row in some]
    width = max((len(_title(pool)) for pool in look.pools), default=0)
    for index, pool in enumerate(look.pools):
        lines.append(Text(""))
        lines += _head(pool, width, look, screen)
        lines += render.table(rows[index], screen, every)
        lines += _notes(pool, screen)
    if every:
        lines += [Text(""), render.legend(screen.signs)]
    return lines


def _title(pool: Pool) -> str:
    if not pool.account:
        return f"partition {pool.partition}"
    return f"{pool.account}/{pool.qos}" if pool.qos else pool.account


def _head(pool: Pool, width: int, look: Look, screen: Screen) -> List[Text]:
    text, style = _state(pool, look)
    label = f"{_title(pool):<{width}}  "
    if len(label) > screen.width // 2:
        return [
            render.styled((label.rstrip(), "bold")),
            *render.paragraph("", text, screen.width, style, 4),
        ]
    rows = render.paragraph(label, text, screen.width, style)
    rows[0].stylize("bold", 0, len(label))
    return rows


def _state(pool: Pool, look: Look) -> Tuple[str, str]:
    """The pool in a word, and what is said of it."""
    default = " (your default account)" if pool.account == look.snapshot.default_account else ""
    if pool.state == "blocked":
        entry = next(b for b in look.policy.blocked if b.account == pool.account)
        return f"blocked: {policies.block_words(entry)}", "magenta"
    if pool.state == "not_allowed":
        return f"not allowed: {pool.why}", BAD
    if pool.state == "unknown":
        # Said once, above, if it is every pool's.
        why = "" if pool.why in look.snapshot.troubles else f": {pool.why}"
        return f"not known{why}", "yellow"
    full = [b for b in pool.bounds if _is_full(b)]
    if full:
        names = ", ".join(dict.fromkeys(b.tres or b.kind for b in full))
        return f"full: {names}{default}", BAD
    waiting = [reason for reason in pool.reasons if reason.startswith(_LIMIT_REASONS)]
    if waiting:
        return f"your jobs wait: {', '.join(waiting)}{default}", "yellow"
    if not pool.bounds:
        return f"nothing is limited here{default}", GOOD
    if pool.partition:
        return f"QOS {pool.qos}, counted for every job there", ""
    nearly = [b for b in pool.bounds if _is_nearly_full(b)]
    if nearly:
        names = ", ".join(dict.fromkeys(b.tres or b.kind for b in nearly))
        return f"nearly full: {names}{default}", "yellow"
    return f"has room{default}", GOOD


def _is_nearly_full(bound: Bound) -> bool:
    """Whether a twentieth or less is left: most jobs find no room in that."""
    return isinstance(bound.used, int) and bound.limit > 0 and bound.used * 20 >= bound.limit * 19


def _is_full(bound: Bound) -> bool:
    return isinstance(bound.used, int) and bound.limit > 0 and bound.used >= bound.limit


def _row(bound: Bound, pool: Pool) -> Row:
    name = bound.tres or bound.kind
    if bound.tres and bound.kind != "GrpTRES":
        name = f"{bound.tres} {bound.kind}"
    # What everybody expects (the pool's own QOS) needs no word.
    where = "" if bound.where == f"qos {pool.qos}" else _short(bound, pool)
    return Row(
        name,
        bound.limit,
        bound.used,
        bound.mine,
        bound.pending,
        where,
        bound.tres,
        bound.kind,
        _is_full(bound),
    )


def _short(bound: Bound, pool: Pool) -> str:
    if bound.where.startswith("user "):
        return "for you"
    return bound.where.replace(f" in qos {pool.qos}", "")


def _notes(pool: Pool, screen: Screen) -> List[Text]:
    indent = 2 if screen.width < render.NARROW else 4
    lines: List[Text] = []
    if pool.users:
        lines += render.paragraph("held by ", users_words(pool), screen.width, "", indent)
    if pool.pending:
        reasons = ", ".join(f"{reason} {n}" for reason, n in pool.reasons.items())
        text = f"{render.many(pool.pending, 'job')} of yours: {reasons}"
        lines += render.paragraph("pending ", text, screen.width, "", indent)
    if pool.per_job:
        text = ", ".join(pool.per_job)
        lines += render.paragraph("a job   ", text, screen.width, "", indent)
    return lines


def users_words(pool: Pool) -> str:
    """``bob (mem 250G, cpu 1), carol (gres/gpu 1), 3 more``."""
    parts = []
    for user, held in pool.users[:_NAMED]:
        amounts = ", ".join(f"{tres} {spell.amount(tres, n)}" for tres, n in held.items())
        parts.append(f"{user} ({amounts})")
    more = len(pool.users) - _NAMED
    if more > 0:
        parts.append(f"{more} more")
    return ", ".join(parts)


# -- for programs --------------------------------------------------------------------------------


def as_json(look: Look) -> Dict[str, object]:
    """The object of ``status --json`` (see the command's help)."""
    snapshot, policy = look.snapshot, look.policy
    config = snapshot.config
    late = {entry.account for entry in policies.overdue(policy)}
    return {
        "user": snapshot.user,
        "cluster": config.cluster if isinstance(config, Config) else "unknown",
        "time": round(snapshot.taken_at),
        "policy": {"files": list(policy.files)},
        "snapshot": {
            "source": snapshot.source,
            "age_seconds": max(0, round(look.at - snapshot.taken_at)),
            "troubles": list(snapshot.troubles),
        },
        "pools": [_pool_json(pool) for pool in look.pools],
        "blocked": [
            {
                "account": entry.account,
                "reason": entry.reason,
                "since": entry.since,
                "review": entry.review,
                "overdue": entry.account in late,
                "file": entry.file,
            }
            for entry in policy.blocked
        ],
    }


def _pool_json(pool: Pool) -> Dict[str, object]:
    return {
        "account": pool.account,
        "qos": pool.qos,
        "partition": pool.partition,
        "state": pool.state,
        "why": pool.why,
        "limits": [
            {
                "tres": bound.tres or bound.kind,
                "kind": bound.kind,
                "where": bound.where,
                "limit": bound.limit,
                "used": known(bound.used),
                "mine": known(bound.mine),
                "pending": bound.pending,
            }
            for bound in pool.bounds
        ],
        "per_job": list(pool.per_job),
        "running_jobs": pool.running,
        "pending_jobs": pool.pending,
        "pending_reasons": dict(pool.reasons),
        "users": [{"user": user, "tres": dict(held)} for user, held in pool.users],
    }
