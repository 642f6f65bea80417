"""``sbatch-router init``: a commented policy from what Slurm knows of the user."""

from __future__ import annotations

import datetime
import os
import re
from typing import Dict, List, Mapping, NamedTuple, Optional, Tuple

import click

from ..core import spell
from ..core.policy import Blocked
from ..core.snapshot import Assoc, Config, Qos, Scope, Site, Snapshot
from ..policy_yaml.values import name as valid_name
from ..slurm.patience import explain
from . import _policy as policies
from . import _pools
from ._render import many

#: A QOS is taken for an account's burst QOS if each of its limits is so many times larger.
BURST_FACTOR = 4
_BURST_NAME = re.compile(r"(?:[-_.])(?:b|burst)$")
#: What YAML and our own words leave alone.
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+@-]*\Z")
_WIDTH = 96


@click.command("init", short_help="Write a policy from your Slurm accounts.")
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    metavar="FILE",
    help="Write this file instead; - is standard output.",
)
def command(output: Optional[str]) -> None:
    """Write a policy from your Slurm associations.

    Asks Slurm which accounts and QOS you may use, what limits they have and which account is
    your default, and writes a policy with comments that is ready to be used and to be edited.
    It asks you nothing.

    The file is where sbatch will find it. A file that is there is never overwritten.

    A QOS named like ACCOUNT-b, or with much larger limits than the default QOS, is taken for
    the account's burst QOS: listed after it, and used only for jobs that find no room in the
    first QOS of any account (`order: [primary, ...]`).

    \b
    Examples:
      sbatch-router init
      sbatch-router init --output - | less

    \b
    Files:
      $SBATCH_ROUTER_POLICY, else ~/.config/sbatch-router/policy.yaml

    \b
    Exit status:
      0  the policy was written
      1  Slurm did not answer, you have no account, or the file is there
    """
    if output == "":
        raise click.UsageError("--output is empty; expected a file, or - for standard output")
    path = output or policies.user_policy_path()
    if path != "-" and os.path.lexists(path):
        raise click.ClickException(
            f"{path} is there already, and is left alone; remove it, or name another file with "
            "--output"
        )
    site = _pools.ask_site()
    found = _accounts(site)
    if not isinstance(site.config, Config):
        policies.warn([f"limits are as slurmdbd has them: {explain(site.troubles)}"])
    names = [account.name for account in found]
    wanted = [qos for account in found for qos in account.every]
    text = policy_text(found, site, _pools.ask_live(site, names, wanted), _site_blocks())
    if path == "-":
        click.echo(text, nl=False)
        return
    _write(path, text)
    click.echo(f"wrote {path}: {many(len(found), 'account')}, your default first", err=True)
    click.echo("next: sbatch-router check --live; sbatch-router install-shim ~/bin", err=True)


class Found(NamedTuple):
    """One account the user may submit with."""

    name: str
    #: The QOS of a job that names none.
    default: str
    burst: Tuple[str, ...]
    #: Allowed, and neither of those.
    others: Tuple[str, ...]
    #: Where the association is for some partitions only.
    partitions: Tuple[str, ...]
    is_default: bool

    @property
    def every(self) -> Tuple[str, ...]:
        return tuple(name for name in (self.default, *self.burst, *self.others) if name)


def _accounts(site: Site) -> List[Found]:
    """The user's accounts, the default one first. Raises `click.ClickException`."""
    if not isinstance(site.assocs, dict):
        raise click.ClickException(
            f"your Slurm accounts are not known: {explain(site.troubles)}; see "
            "`sbatch-router doctor`"
        )
    own: Dict[str, List[Assoc]] = {}
    for (account, user, _), assoc in site.assocs.items():
        if user == site.user:
            own.setdefault(account, []).append(assoc)
    found = [_found(name, assocs, site) for name, assocs in own.items()]
    if not any(_nameable(account.name) for account in found):
        raise click.ClickException(f"{site.user} has no account that a policy can name")
    # Burst comes last among equals, for a rule that takes them as listed.
    found.sort(key=lambda account: (not account.is_default, bool(account.burst), account.name))
    return found


def _found(name: str, assocs: List[Assoc], site: Site) -> Found:
    allowed = list(
        dict.fromkeys(qos for a in assocs if isinstance(a.qos, tuple) for qos in a.qos)
    )  # fmt: skip
    defaults = [a.default_qos for a in assocs if isinstance(a.default_qos, str)]
    default = next((qos for qos in defaults if _nameable(qos)), "")
    records = site.qos if isinstance(site.qos, dict) else {}
    rest = [qos for qos in allowed if qos != default and _nameable(qos)]
    # Without a QOS to come before it, nothing is a burst QOS: it would be the only one listed.
    burst = [qos for qos in rest if default and is_burst(qos, name, default, records)]
    partitions = tuple(a.partition for a in assocs) if all(a.partition for a in assocs) else ()
    others = tuple(qos for qos in rest if qos not in burst)
    return Found(name, default, tuple(burst), others, partitions, name == site.default_account)


def is_burst(qos: str, account: str, default: str, records: Mapping[str, Qos]) -> bool:
    """Whether a QOS is the larger, weaker twin of an account's default QOS."""
    stem = _BURST_NAME.sub("", qos)
    if stem != qos and stem in (account, default):
        return True
    mine, other = _group_limits(records.get(default)), _group_limits(records.get(qos))
    shared = [tres for tres in ("cpu", "mem") if tres in mine and tres in other]
    return bool(shared) and all(other[tres] >= BURST_FACTOR * mine[tres] for tres in shared)


def _group_limits(qos: Optional[Qos]) -> Dict[str, int]:
    return _limited(qos.limits, "GrpTRES") if qos is not None else {}


def _limited(scope: Scope, kind: str) -> Dict[str, int]:
    limits = scope.tres.get(kind, {})
    return {tres: x.limit for tres, x in limits.items() if isinstance(x.limit, int)}


def _site_blocks() -> Tuple[Blocked, ...]:
    """The blocks of the site's own policy, which will bind."""
    from ..policyfile import PolicyErrors, load

    try:
        return load("/etc/sbatch-router/policy.yaml").blocked
    except PolicyErrors:
        return ()


# -- the text ------------------------------------------------------------------------------------


def policy_text(
    found: List[Found], site: Site, live: Snapshot, site_blocks: Tuple[Blocked, ...] = ()
) -> str:
    """The policy, as YAML with comments."""
    blocked = {entry.account: entry for entry in site_blocks}
    named = [account for account in found if _nameable(account.name)]
    usable = [account for account in named if account.name not in blocked] or named
    limits = _Limits(site, live)
    lines = _heading(site, limits)
    lines += ["version: 1", "", "# In order of preference when all else is equal.", "accounts:"]
    for account in usable:
        lines += _account_lines(account, limits)
    for account in found:
        entry = blocked.get(account.name)
        if account not in usable and entry is not None:
            lines += _comment(f"{account.name} is blocked by {entry.file}: {entry.reason}", 2)
        elif account not in usable:
            lines += _comment(f"{account.name} is left out: a policy cannot name it", 2)
    lines += ["", *_BLOCKED, *_rules(usable), *_REST]
    return "\n".join(lines) + "\n"


class _Limits:
    """Limits in words: slurmctld's own where it told, else sacctmgr's."""

    def __init__(self, site: Site, live: Snapshot) -> None:
        self.qos: Dict[str, Qos] = {}
        for records in (site.qos, live.qos):
            if isinstance(records, dict):
                self.qos.update(records)
        config = site.config
        self.cluster = config.cluster if isinstance(config, Config) else ""

    def words(self, name: str) -> str:
        """``cpu 80, mem 312.5G, gres/gpu 1; at most 4d a job``."""
        qos = self.qos.get(name)
        if qos is None:
            return "limits not known"
        text = _amounts(_limited(qos.limits, "GrpTRES")) or "no group limit"
        scope = qos.defaults if isinstance(qos.defaults, Scope) else Scope({}, {})
        each = _amounts(_limited(scope, "MaxTRESPU"))
        if each:
            text += f"; a user {each}"
        wall = qos.limits.counts.get("MaxWallPJ")
        if wall is not None and isinstance(wall.limit, int):
            text += f"; a job {spell.minutes(wall.limit)}"
        return text


def _amounts(tres: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {spell.amount(name, value)}" for name, value in tres.items())


def _heading(site: Site, limits: _Limits) -> List[str]:
    today = datetime.date.today().isoformat()
    on = f" on cluster {limits.cluster}" if limits.cluster else ""
    lines = _comment(f"Where the jobs of {site.user}{on} may go.")
    lines += ["#"]
    lines += _comment(
        f"Written by `sbatch-router init` on {today} from Slurm's associations; yours to edit. "
        "Limits in comments are of that day: `sbatch-router status` shows today's, "
        "`sbatch-router check --live` says what has changed since it was last run. Every key is "
        "explained in docs/policy.md of sbatch-router."
    )
    return lines


def _account_lines(account: Found, limits: _Limits) -> List[str]:
    lines = []
    if account.is_default:
        lines.append("  # your default account")
    if account.partitions:
        lines += _comment(f"only in partition {', '.join(account.partitions)}", 2)
    lines.append(f"  - name: {scalar(account.name)}")
    listed = [name for name in (account.default, *account.burst) if name]
    if listed:
        lines.append(f"    qos: [{', '.join(scalar(name) for name in listed)}]")
        lines += _comment(f"{account.default}: {limits.words(account.default)}", 4)
    for name in account.burst:
        lines += _comment(f"{name} (burst): {limits.words(name)}", 4)
    if account.others:
        lines += _comment(f"allowed as well: {', '.join(account.others)}", 4)
    return lines


_BLOCKED = [
    "# An account that is always full of other people's jobs is better left out. The reason is",
    "# required: it lets somebody lift the block later. `sbatch-router history` says which.",
    "# blocked:",
    "#   - account: NAME",
    "#     reason: full since March; the PI asked us to stay off",
    "#     review: 2027-01-31      # from this day on, every command reminds you",
    "",
]

_REST = [
    "",
    "# When every account is full: refuse (sbatch exits with 75 and says what is full), queue,",
    "# or {wait: 10m}.",
    "when_full: refuse",
    "# When only your own jobs are in the way: queue behind them, or refuse.",
    "own_backlog: queue",
]


def _rules(accounts: List[Found]) -> List[str]:
    """Most headroom first; where an account has a burst QOS, that comes last."""
    lines = ["# The first rule that matches decides.", "rules:"]
    primary = ""
    if any(account.burst for account in accounts):
        primary = "primary, "
        lines[0] += " `primary` puts every account's first QOS before any"
        lines[1:1] = [
            "# account's second: burst is taken last, for jobs that find no other room now. If it",
            "# is never to be used, take it out of `qos` above.",
        ]
    lines += ["  - name: gpu jobs", '    when: {gpus: ">0"}']
    lines += [f"    order: [{primary}gpu, mem]  # most free GPUs first, then most free memory"]
    lines += ["  - name: everything else", f"    order: [{primary}mem, cpu]"]
    return lines


def _comment(text: str, indent: int = 0) -> List[str]:
    import textwrap

    start = " " * indent + "# "
    words = " ".join(text.split())
    clean = "".join(c if c.isprintable() else "?" for c in words)
    return textwrap.wrap(
        clean, _WIDTH, initial_indent=start, subsequent_indent=start, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


def _nameable(name: str) -> bool:
    """Whether a policy can name it (Slurm takes blanks and the like, we do not)."""
    try:
        valid_name(name)
    except ValueError:
        return False
    return True


def scalar(text: str) -> str:
    """A name as YAML that our loader reads back as the same text."""
    if _PLAIN.match(text) and text.lower() != "null":
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _write(path: str, text: str) -> None:
    """Make the file, and its directory. Raises `click.ClickException`."""
    try:
        directory = os.path.dirname(path)
        if directory:
            os.makedirs(directory, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(path, flags, 0o644)
        with open(fd, "w", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise click.ClickException(f"{path} is there already, and is left alone") from None
    except OSError as error:
        place = error.filename or path
        raise click.ClickException(f"{place}: {error.strerror}; see --output") from None
