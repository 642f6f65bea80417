"""``sbatch-router doctor``: is everything in place, and what to run where it is not."""

from __future__ import annotations

import datetime
import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import click

from .. import policyfile, shim, shimfile, state, statedir
from ..core.snapshot import Config, Site, Snapshot
from ..decisionlog import log_path
from ..environ import policy_paths, switched_off
from ..host import TIMEOUT
from ..policycache import PolicyTrouble, find_policy
from ..slurm.patience import conf_trouble, explain, left
from ..slurm.pyslurm_source import AUTO, PYSLURM, choose_source, collect_pyslurm, probe_pyslurm
from ..slurm.run import run_all
from . import _policy as policies
from . import _pools
from . import _render as render
from ._decisions import ROTATE_BYTES
from ._render import BAD, GOOD, NOTE, Screen

OK, WARN, FAIL, SKIP = "ok", "warning", "failed", "skipped"

#: Milliseconds from which slurmctld's answer is called slow: the shim waits for 2 s at most.
SLOW_MS = 500.0
#: File systems on which a lock may be late, lost or slow.
_NETWORK = frozenset(
    ("nfs", "nfs4", "lustre", "gpfs", "beegfs", "cifs", "smb3", "ceph", "glusterfs", "9p", "afs")
)
_COMMANDS = ("scontrol", "squeue", "sacctmgr", "sacct", "scancel")
#: Those without which nothing can be decided.
_NEEDED = frozenset(("scontrol", "squeue", "sacctmgr"))


class Finding(NamedTuple):
    """One check: what was found, and what to do about it."""

    name: str
    status: str
    detail: str
    #: The command to run next; empty when all is well.
    next: str = ""
    milliseconds: Optional[float] = None


@click.command("doctor", short_help="Check that jobs can be routed here.")
@click.option("--json", "as_data", is_flag=True, help="Print one JSON object instead.")
@render.ascii_option
def command(as_data: bool, plain: bool) -> None:
    """Check that jobs can be routed here, and say what to run where they cannot.

    Looks at Slurm's commands, slurmctld and slurmdbd and how fast they answer, whether limits
    are enforced, your associations, where usage is read from, the installed sbatch, the
    policy, the state directory and the log. Nothing is submitted or changed.

    With --json: {"ok", "checks": [{"name", "status", "detail", "next", "milliseconds"}]},
    where status is ok, warning, failed or skipped.

    \b
    Examples:
      sbatch-router doctor
      sbatch-router doctor --json | jq '.checks[].next | select(. != "")'

    \b
    Exit status:
      0  nothing is broken (there may be warnings)
      1  something is
    """
    found = Doctor().examine()
    broken = any(one.status == FAIL for one in found)
    if as_data:
        checks = [
            {**one._asdict(), "milliseconds": _rounded(one.milliseconds)} for one in found
        ]  # fmt: skip
        click.echo(json.dumps({"ok": not broken, "checks": checks}, indent=2))
    else:
        _show(found, Screen(plain))
    sys.exit(1 if broken else 0)


def _rounded(milliseconds: Optional[float]) -> Optional[float]:
    return None if milliseconds is None else round(milliseconds, 1)


def _show(found: Sequence[Finding], screen: Screen) -> None:
    styles = {OK: GOOD, WARN: "bold yellow", FAIL: BAD, SKIP: NOTE}
    width = max(len(one.name) for one in found)
    for one in found:
        took = "" if one.milliseconds is None else f" ({_time(one.milliseconds)})"
        label = f"{one.status:<8} {one.name:<{width}}  "
        lines = render.paragraph(label, _at_home(one.detail) + took, screen.width)
        lines[0].stylize(styles[one.status], 0, len(one.status))
        screen.lines(lines)
        if one.next:
            # Not broken, however long: it is there to be copied.
            screen.line(" " * len(label), (f"next: {_at_home(one.next)}", "cyan"))
    counts = {status: sum(one.status == status for one in found) for status in (FAIL, WARN)}
    screen.line()
    if counts[FAIL]:
        screen.line((f"{render.many(counts[FAIL], 'check')} failed", BAD))
    elif counts[WARN]:
        screen.line((f"nothing is broken; {render.many(counts[WARN], 'warning')}", "bold yellow"))
    else:
        screen.line(("all is well", GOOD))


def _at_home(text: str) -> str:
    """`text` with ``~`` for the user's home."""
    home = os.environ.get("HOME", "").rstrip("/")
    return text.replace(home + "/", "~/") if len(home) > 1 else text


def _time(milliseconds: float) -> str:
    return f"{milliseconds:.0f} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.1f} s"


class Doctor:
    """All checks, each of which sees what those before it found."""

    def __init__(self) -> None:
        self.environ = policies.environment()
        self.found: List[Finding] = []
        self.site: Optional[Site] = None
        self.live: Optional[Snapshot] = None
        self.missing: List[str] = []
        self.release = ""
        #: Why SLURM_CONF can be none.
        self.conf = ""

    def examine(self) -> List[Finding]:
        checks: Tuple[Tuple[str, Callable[[], None]], ...] = (
            ("Slurm's commands", self._commands),
            ("slurm.conf", self._conf),
            ("slurmctld", self._controller),
            ("slurmdbd", self._accounting),
            ("enforcement", self._enforcement),
            ("live usage", self._usage),
            ("pyslurm", self._pyslurm),
            ("sbatch", self._shim),
            ("policy", self._policy),
            ("state", self._state),
            ("log", self._log),
        )
        for name, check in checks:
            try:
                check()
            except Exception as error:
                # One broken check must not hide the others.
                text = f"the check itself broke: {type(error).__name__}: {error}"
                self._add(name, FAIL, text, "report this with `sbatch-router --version`")
        return self.found

    def _add(
        self, name: str, status: str, detail: str, next_: str = "", ms: Optional[float] = None
    ) -> None:
        self.found.append(Finding(name, status, detail, next_, ms))

    # -- Slurm ---------------------------------------------------------------------------------

    def _commands(self) -> None:
        where = {name: shutil.which(name) for name in _COMMANDS}
        self.missing = [name for name, path in where.items() if path is None]
        needed = [name for name in self.missing if name in _NEEDED]
        load = "load the Slurm module, or add its bin directory to PATH"
        if needed:
            self._add("Slurm's commands", FAIL, f"not in PATH: {', '.join(self.missing)}", load)
        elif self.missing:
            text = f"not in PATH: {', '.join(self.missing)}; `history` needs sacct"
            self._add("Slurm's commands", WARN, text, load)
        else:
            places = ", ".join(sorted({os.path.dirname(path) for path in where.values() if path}))
            self._add("Slurm's commands", OK, f"in {places}")

    def _conf(self) -> None:
        self.conf = conf_trouble()
        if self.conf:
            self._add("slurm.conf", FAIL, self.conf, "unset SLURM_CONF, or load the Slurm module")

    def _controller(self) -> None:
        if "scontrol" in self.missing or self.conf:
            why = "slurm.conf cannot be read" if self.conf else "scontrol is missing"
            self._add("slurmctld", SKIP, why)
            return
        began = time.monotonic()
        (ping,) = run_all([["scontrol", "ping"]], left())
        took = (time.monotonic() - began) * 1000
        text = ping.out.decode("utf-8", "replace")
        if ping.trouble or " UP" not in text:
            # What it prints says more than that it failed: "Slurmctld(primary) at n1 is DOWN".
            said = text.strip().splitlines()
            why = said[-1] if said else ping.trouble or "it does not answer"
            where = os.environ.get("SLURM_CONF")
            hint = f" (SLURM_CONF={where})" if where else ""
            self._add("slurmctld", FAIL, why + hint, "scontrol ping", took)
            return
        self.site = _pools.ask_site()
        config = self.site.config
        if not isinstance(config, Config):
            why = "; ".join(self.site.troubles) or "scontrol show config was not understood"
            self._add("slurmctld", FAIL, why, "scontrol show config", took)
            return
        self.release = ".".join(
            f"{n:02d}" if i == 1 else str(n) for i, n in enumerate(config.release)
        )
        text = f"cluster {config.cluster}, Slurm {self.release}, answers"
        slow = took > SLOW_MS
        self._add("slurmctld", WARN if slow else OK, text, "sdiag" if slow else "", took)

    def _accounting(self) -> None:
        if self.site is None:
            self._add("slurmdbd", SKIP, "slurmctld does not answer")
            return
        site = self.site
        if not isinstance(site.assocs, dict):
            why = explain(site.troubles)
            self._add("slurmdbd", FAIL, why, f"sacctmgr show assoc user={site.user}")
            return
        began = time.monotonic()
        run_all([["sacctmgr", "-nP", "show", "cluster", "format=cluster"]], left())
        took = (time.monotonic() - began) * 1000
        own = _own_accounts(site)
        text = f"{site.user} has {render.many(len(own), 'account')}: {', '.join(own)}"
        if len(own) < 2:
            text += "; with one account there is nothing to choose but its QOS"
        self._add("slurmdbd", OK if len(own) > 1 else WARN, text, "", took)

    def _enforcement(self) -> None:
        config = self.site.config if self.site is not None else None
        if not isinstance(config, Config):
            self._add("enforcement", SKIP, "the configuration is not known")
            return
        words = ",".join(sorted(config.enforce)) or "none"
        text = f"AccountingStorageEnforce={words}"
        if config.enforce & {"limits", "safe"}:
            self._add("enforcement", OK, text)
        else:
            why = f"{text}: no limit binds here, so every job is passed through"
            self._add("enforcement", WARN, why, "ask the site: scontrol show config | grep Enforce")

    def _usage(self) -> None:
        site = self.site
        if site is None or not isinstance(site.assocs, dict):
            self._add("live usage", SKIP, "the associations are not known")
            return
        own = _own_accounts(site)
        began = time.monotonic()
        live = self.live = _pools.ask_live(site, own, ())
        took = (time.monotonic() - began) * 1000
        new = [text for text in live.troubles if text not in site.troubles]
        if not isinstance(live.qos, dict):
            why = "; ".join(new) or "scontrol show assoc_mgr told nothing"
            self._add("live usage", FAIL, why, "scontrol show assoc_mgr flags=qos,assoc", took)
            return
        others = {user for qos in live.qos.values() for user in qos.users} - {site.user}
        text = f"{render.many(len(live.qos), 'QOS')} from {live.source}"
        text = text.replace("QOSs", "QOS")
        text += "" if others else "; no other user is shown (PrivateData, or none runs)"
        status = WARN if new else OK
        self._add("live usage", status, "; ".join([text, *new]), "", took)

    def _pyslurm(self) -> None:
        """What the policy's ``source:`` comes to here. Asked as the shim asks: in a child."""
        if self.conf:
            self._add("pyslurm", SKIP, "slurm.conf cannot be read")
            return
        wanted = self._wanted_source()
        began = time.monotonic()
        python = shimfile.python_for_shim()
        probe = probe_pyslurm(left(), python=python)
        took = (time.monotonic() - began) * 1000
        missing = "No module named 'pyslurm'" in probe.trouble
        what = f"{probe.pyslurm} matches Slurm {probe.slurm}"
        if wanted != PYSLURM:
            if probe.trouble:
                what = "not installed" if missing else f"cannot be used ({probe.trouble})"
            choice = choose_source(wanted, probe)
            text = f"{what}; {choice.source} is used: {choice.why}"
            self._add("pyslurm", OK, text, "", None if missing else took)
            return
        trouble = probe.trouble
        if not trouble and self.site is not None:
            began = time.monotonic()
            trouble = self._read_with_pyslurm(self.site, python)
            took = (time.monotonic() - began) * 1000
        if not trouble and took > TIMEOUT * 1000:
            trouble = f"slower than the {TIMEOUT:g} s that a submission gives it"
        if not trouble:
            text = f"{what}; pyslurm is used: the policy asks for it"
            self._add("pyslurm", OK, text, "", took)
            return
        next_ = "source: scontrol in the policy"
        if missing:
            next_ = "see docs/pyslurm.md"
        elif "is not made for" in trouble:
            next_ = f"pip install 'pyslurm=={_two_numbers(probe.slurm)}.*'"
        text = f"{trouble}; scontrol is used, though the policy asks for pyslurm"
        self._add("pyslurm", WARN, text, next_, took)

    def _wanted_source(self) -> str:
        """What the policy in use says; of one that is broken `_policy` tells."""
        try:
            return find_policy(policy_paths(self.environ), self.environ).source
        except (PolicyTrouble, IndexError):
            return AUTO

    def _read_with_pyslurm(self, site: Site, python: str) -> str:
        """Take a snapshot with it; why there is none, else empty."""
        own, uid = _own_accounts(site), os.geteuid()
        found = collect_pyslurm(site, own, (), site.user, uid, left(), time.time(), python=python)
        if isinstance(found.qos, dict):
            return ""
        return found.troubles[-1] if found.troubles else "pyslurm shows no QOS"

    # -- ours ----------------------------------------------------------------------------------

    def _shim(self) -> None:
        real = shim.find_sbatch(os.environ.get("PATH"))
        first = shutil.which("sbatch")
        if real is None:
            load = "load the Slurm module, or add its bin directory to PATH"
            self._add("real sbatch", FAIL, "not in PATH", load)
        elif self.conf:
            self._add("real sbatch", SKIP, f"{real} cannot run without slurm.conf")
            real = None
        else:
            began = time.monotonic()
            (done,) = run_all([[real, "--version"]], left())
            took = (time.monotonic() - began) * 1000
            if done.trouble:
                self._add("real sbatch", FAIL, f"{real}: {done.trouble}", f"{real} --version", took)
                real = None
            else:
                self._add("real sbatch", OK, f"{real}: {_first_line(done.out)}", "", took)
        if switched_off(self.environ):
            self._add("switch", WARN, "SBATCH_ROUTER=off: nothing is routed", "unset SBATCH_ROUTER")
        install = "sbatch-router install-shim ~/bin"
        if first is None or shim.is_real(first):
            inside = _shims_in_path()
            if inside:
                text = f"{inside[0]} comes after {first} in PATH: jobs are not routed"
                place = os.path.dirname(inside[0])
                self._add("shim", FAIL, text, f"export PATH={place}:$PATH")
            elif home := _shim_at_home():
                text = f"{home} is there, but its directory is not in PATH: jobs are not routed"
                self._add("shim", WARN, text, f"export PATH={os.path.dirname(home)}:$PATH")
            else:
                self._add("shim", WARN, "not installed: jobs are not routed", install)
            return
        self._installed(first, real)

    def _installed(self, path: str, real: Optional[str]) -> None:
        again = f"sbatch-router install-shim {os.path.dirname(path)}"
        try:
            text = Path(path).read_text("utf-8", "replace")
        except OSError as error:
            self._add("shim", FAIL, f"{path}: {error.strerror}", again)
            return
        python = text.partition("\n")[0][2:].partition(" ")[0]
        if not os.access(python, os.X_OK):
            why, next_ = "is gone", again
            try:
                os.stat(python)
            except PermissionError:
                why, next_ = "is where you may not look", "tell who installed it"
            except OSError:
                pass
            self._add("shim", FAIL, f"{path}: its Python {python} {why}", next_)
            return
        other = f"sys.path[:0] = {shimfile.import_paths()!r}" not in text
        words = f"{path} uses another installation of sbatch-router than this one"
        if real is None and other:
            self._add("shim", WARN, words, again)
            return
        if real is None:
            # Without a real sbatch that works there is nothing to compare with.
            self._add("shim", OK, f"{path} is first in PATH")
            return
        began = time.monotonic()
        (done,) = run_all([[path, "--version"]], left())
        took = (time.monotonic() - began) * 1000
        said = _first_line(done.err)
        if done.trouble or said:
            self._add("shim", FAIL, f"{path}: {said or done.trouble}", again, took)
        elif other:
            self._add("shim", WARN, words, again, took)
        elif python != shimfile.python_for_shim():
            self._add("shim", WARN, f"{path} runs with {python}, not this Python", again, took)
        elif not shimfile.is_fresh(Path(path)):
            self._add("shim", WARN, f"{path} is older than the package, so slower", again, took)
        else:
            self._add("shim", OK, f"{path} is first in PATH", "", took)

    def _policy(self) -> None:
        paths = policy_paths(self.environ)
        if not paths:
            self._add("policy", WARN, "none: every job is passed through", "sbatch-router init")
            return
        today = datetime.date.today().isoformat()
        for path in paths:
            try:
                checked = policyfile.examine(policyfile.read(path), path, today)
            except policyfile.PolicyErrors as errors:
                checked = policyfile.Checked(None, errors.errors, ())
            see = f"sbatch-router check {path}"
            if checked.policy is None:
                more = f" (and {len(checked.errors) - 1} more)" if len(checked.errors) > 1 else ""
                self._add("policy", FAIL, f"{_place(checked.errors[0])}{more}", see)
                continue
            names = ", ".join(account.name for account in checked.policy.accounts)
            self._add("policy", OK, f"{path}: {names or 'blocks only'}")
            for warning in checked.warnings:
                review = warning.key.endswith(".review")
                self._add("review" if review else "policy", WARN, _place(warning), see)
            if self.site is not None and checked.policy.accounts:
                self._live_policy(checked, see)

    def _live_policy(self, checked: policyfile.Checked, see: str) -> None:
        from .check_live import live_findings

        assert checked.policy is not None
        assert self.site is not None
        for finding in live_findings(checked.policy, checked.lines, self.site):
            if finding.key == "policy":
                continue  # enforcement, which has its own line
            status = WARN if finding.warning else FAIL
            self._add("policy", status, _place(finding), see.replace("check", "check --live", 1))

    def _state(self) -> None:
        try:
            place = statedir.directory(self.environ)
        except statedir.StateError as error:
            self._add("state", FAIL, str(error), "ls -ld that directory")
            return
        began = time.monotonic()
        with state.Lock(place) as lock:
            took = (time.monotonic() - began) * 1000
            if not lock.held:
                self._add(
                    "state", FAIL, lock.trouble, "set XDG_RUNTIME_DIR to a local directory", took
                )
                return
            try:
                state.store(f"{place}/doctor", None, ())
                os.unlink(f"{place}/doctor")
            except OSError as error:
                self._add("state", FAIL, f"{place}: {error.strerror}", f"df {place}", took)
                return
        kind = file_system(place)
        if kind in _NETWORK:
            text = f"{place} is on a network file system ({kind}): locks may be slow"
            self._add("state", WARN, text, "set XDG_RUNTIME_DIR to a local directory", took)
        else:
            self._add(
                "state", OK, f"{place} ({kind or 'file system not known'}), lock taken", "", took
            )

    def _log(self) -> None:
        path = log_path(self.environ)
        if not path:
            self._add("log", WARN, "HOME is not set: nothing is logged", "set HOME")
            return
        trouble, size = _log_trouble(path)
        if trouble:
            self._add("log", WARN, f"{trouble}: decisions are not logged", f"ls -l {path}")
        elif size > ROTATE_BYTES:
            text = f"{path} has {size >> 20} MiB"
            self._add("log", WARN, text, "sbatch-router history (sets it aside)")
        else:
            self._add("log", OK, f"{path} ({size >> 10} KiB)")


def _two_numbers(release: str) -> str:
    """``26.5`` of ``26.05.3``: how pyslurm names Slurm's releases."""
    return ".".join(part.lstrip("0") for part in release.split(".")[:2])


def _own_accounts(site: Site) -> List[str]:
    """The user's accounts, as far as sacctmgr told."""
    assocs = site.assocs if isinstance(site.assocs, dict) else {}
    return sorted({a.account for a in assocs.values() if a.user == site.user})


def _place(finding: policyfile.Finding) -> str:
    return f"{finding.file}:{finding.line}: {finding.key}: {finding.message}"


def _first_line(text: bytes) -> str:
    return next(iter(text.decode("utf-8", "replace").strip().splitlines()), "")


def _log_trouble(path: str) -> Tuple[str, int]:
    """Why the log cannot be written (empty: it can), and its size."""
    try:
        found = os.lstat(path)
    except OSError:
        place = os.path.dirname(path)
        while place != "/" and not os.path.lexists(place):
            place = os.path.dirname(place)
        return ("" if os.access(place, os.W_OK | os.X_OK) else f"{place} cannot be written", 0)
    if not os.path.isfile(path) or os.path.islink(path):
        return f"{path} is not a regular file", 0
    return ("" if os.access(path, os.W_OK) else f"{path} cannot be written", found.st_size)


def _shims_in_path() -> List[str]:
    """Shims of ours anywhere in PATH."""
    found = []
    for place in os.environ.get("PATH", "").split(":"):
        path = f"{place or '.'}/sbatch"
        if os.path.isfile(path) and not shim.is_real(path):
            found.append(path)
    return found


def _shim_at_home() -> str:
    """A shim of ours in ``~/bin``, where the README puts it; empty if there is none."""
    path = os.path.expanduser("~/bin/sbatch")
    return path if os.path.isfile(path) and not shim.is_real(path) else ""


def file_system(path: str, mounts: str = "/proc/self/mounts") -> str:
    """The type of the file system that holds `path`; empty if it cannot be told."""
    real = os.path.realpath(path)
    best: Dict[str, str] = {}
    try:
        text = Path(mounts).read_text("utf-8", "surrogateescape")
    except OSError:
        return ""
    for line in text.splitlines():
        words = line.split(" ")
        if len(words) < 3:
            continue
        place = words[1].replace("\\040", " ")
        if place == "/" or real == place or real.startswith(place.rstrip("/") + "/"):
            best[place] = words[2]
    return best[max(best, key=len)] if best else ""
