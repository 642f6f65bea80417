"""A `Snapshot` from pyslurm, and the choice between pyslurm and scontrol.

pyslurm has no call for slurmctld's association manager, so what is used is counted here, as
slurmctld does: the sum over the allocated jobs of everybody. What cannot be counted so (the
minutes of GrpTRESMins, GrpTRESRunMins and GrpWall) has UNKNOWN use; a kind of limit that
pyslurm does not tell comes from the `Site` (sacctmgr), else it is absent. docs/sources.md.

Nothing here imports pyslurm: it runs in a child process (pyslurm_child.py), under our timeout.
"""

from __future__ import annotations

import marshal
import posix
import sys

from ..core.record import Record
from ..core.snapshot import Assoc, Job, Qos, Scope, Site, Snapshot
from ..core.tres import UNKNOWN, Limit, Unknown
from .collect import ROOT, _my_accounts, _names, _pools
from .pyslurm_child import MAGIC
from .run import first_line, query_environment, run_all
from .text import ParseError, _tasks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, List, Optional, Set, Tuple, Union

    from ..core.tres import Amount, LimitMap
    from .run import Env
    from .text_assoc import AssocKey

SCONTROL = "scontrol"
PYSLURM = "pyslurm"
AUTO = "auto"

#: What the child runs: our package first, and beside it what is installed there (pyslurm in a
#: virtual environment; the shim's own Python is the base one and looks nowhere).
_CODE = (
    "import site,sys;p=sys.argv[1];sys.path.insert(0,p);site.addsitedir(p);"
    "from sbatch_router.slurm.pyslurm_child import main;main(sys.argv[2:])"
)

#: Limit kinds whose use pyslurm lets us count, and those whose use it does not.
_COUNTED_TRES = frozenset(("GrpTRES", "MaxTRESPU", "MaxTRESPA"))
_UNCOUNTED = frozenset(
    ("GrpTRESMins", "GrpTRESRunMins", "MaxTRESRunMinsPU", "MaxTRESRunMinsPA", "GrpWall")
)
_JOBS = frozenset(("GrpJobs", "MaxJobs", "MaxJobsPU", "MaxJobsPA"))
_SUBMITTED = frozenset(("GrpSubmitJobs", "MaxSubmitJobs", "MaxSubmitJobsPU", "MaxSubmitJobsPA"))


class Probe(Record):
    """What importing pyslurm in a child showed. `trouble`: why it cannot be used, else empty."""

    trouble: str
    pyslurm: str = ""
    #: libslurm's release, as pyslurm reports it.
    slurm: str = ""
    #: The words of PrivateData; None: not known.
    hidden: Optional[Tuple[str, ...]] = None


class Choice(Record):
    """The source to ask, and the reason in one clause."""

    source: str
    why: str


def probe_pyslurm(
    timeout: float, *, env: Optional[Env] = None, python: Optional[str] = None
) -> Probe:
    """Import pyslurm in a child and ask what it is. Never raises; worth keeping for hours."""
    found = _ask(("probe",), timeout, env, python)
    if isinstance(found, str):
        return Probe(found)
    version, slurm = str(found.get("pyslurm", "")), str(found.get("slurm", ""))
    hidden = found.get("hidden")
    trouble = ""
    if not version or not slurm:
        trouble = "pyslurm does not tell its version and libslurm's"
    elif _release(version) != _release(slurm):
        trouble = f"pyslurm {version} is not made for Slurm {slurm}"
    elif hidden is not None and "jobs" in hidden and posix.getuid():
        trouble = "PrivateData=jobs hides from pyslurm what others use"
    return Probe(trouble, version, slurm, hidden)


def _release(version: str) -> Tuple[str, ...]:
    """``25.5`` of ``25.05.4`` and of ``25.5.0+local``."""
    parts = version.partition("+")[0].split(".")
    return tuple(part.lstrip("0") or "0" for part in parts[:2])


def choose_source(wanted: str, probe: Probe) -> Choice:
    """Which source a policy's ``source:`` means here. docs/decisions/0004-sources.md."""
    if wanted == SCONTROL:
        return Choice(SCONTROL, "the policy asks for it")
    if wanted != PYSLURM:
        return Choice(SCONTROL, "it costs less than pyslurm and knows more (docs/sources.md)")
    if probe.trouble:
        return Choice(SCONTROL, probe.trouble)
    return Choice(PYSLURM, "the policy asks for it")


def collect_pyslurm(
    site: Site,
    accounts: Iterable[str],
    qos: Iterable[str],
    user: str,
    uid: int,
    timeout: float,
    now: float,
    *,
    partitions: Optional[Iterable[str]] = None,
    everyone: bool = False,
    env: Optional[Env] = None,
    python: Optional[str] = None,
) -> Snapshot:
    """What `collect_live` tells, from pyslurm in a child process. Never raises.

    When the child fails, QOS, associations and jobs are UNKNOWN and `troubles` says why.
    """
    found = _ask(("read", str(uid)), timeout, env, python)
    if isinstance(found, str):
        return _nothing(site, user, now, found)
    try:
        return snapshot_of(found, site, accounts, qos, user, uid, now, partitions, everyone)
    except (KeyError, TypeError, ValueError, AttributeError, ParseError) as error:
        text = f"pyslurm's answer is not understood: {type(error).__name__}: {error}"
        return _nothing(site, user, now, text[:200])


def _nothing(site: Site, user: str, now: float, trouble: str) -> Snapshot:
    return Snapshot(
        taken_at=now,
        source=PYSLURM,
        user=user,
        qos=UNKNOWN,
        assocs=UNKNOWN,
        partitions=site.partitions,
        config=site.config,
        jobs=UNKNOWN,
        default_account=site.default_account,
        troubles=(*site.troubles, trouble),
    )


def _ask(
    words: Tuple[str, ...], timeout: float, env: Optional[Env], python: Optional[str]
) -> Union[Dict[str, Any], str]:
    """The child's answer, or one clause about why there is none."""
    package = __file__.rpartition("/sbatch_router/")[0] or "."
    executable = python or sys.executable
    if not executable:
        return "pyslurm: there is no Python to run it with"
    command = [executable, "-I", "-c", _CODE, package, *words]
    environment = query_environment(posix.environ) if env is None else env
    outcome = run_all([command], timeout, env=environment)[0]
    if outcome.trouble:
        # Python's own last line tells more than the first: "ModuleNotFoundError: ...".
        said = [line for line in outcome.err.split(b"\n") if line.strip()]
        last = first_line(said[-1]) if said else ""
        what = f"ended with status {outcome.rc}" if (outcome.rc or 0) > 0 else outcome.trouble
        return f"pyslurm: {what} ({last})" if last else f"pyslurm: {what}"
    if not outcome.out.startswith(MAGIC):
        return "pyslurm: its process ended without an answer"
    try:
        found = marshal.loads(outcome.out[len(MAGIC) :])
    except (EOFError, ValueError, TypeError):
        found = None
    return found if isinstance(found, dict) else "pyslurm: its answer was cut off"


class _Use:
    """What one scope's jobs use. `sure` is False where its submitted jobs cannot be counted."""

    __slots__ = ("jobs", "nodes", "submitted", "sure", "tres")

    def __init__(self) -> None:
        self.jobs = 0
        self.submitted = 0
        self.sure = True
        self.tres: Dict[str, int] = {}
        self.nodes: Set[str] = set()

    def add(self, group: Dict[str, Any]) -> None:
        self.jobs += group["jobs"]
        self.submitted += group["submitted"]
        self.nodes.update(group["nodes"])
        for name, amount in group["tres"].items():
            self.tres[name] = self.tres.get(name, 0) + amount

    def of(self, tres: str) -> int:
        """Nodes count once, however many jobs share them."""
        return len(self.nodes) if tres == "node" else self.tres.get(tres, 0)


_NO_USE = _Use()


def snapshot_of(
    found: Dict[str, Any],
    site: Site,
    accounts: Iterable[str],
    qos: Iterable[str],
    user: str,
    uid: int,
    now: float,
    partitions: Optional[Iterable[str]] = None,
    everyone: bool = False,
) -> Snapshot:
    """The Snapshot that an answer of pyslurm_child.read makes, together with a `Site`.

    Raises KeyError, TypeError, ValueError, AttributeError or ParseError for an answer of
    another form.
    """
    wanted = _names(accounts)
    kept = tuple(dict.fromkeys(wanted + _my_accounts(site, user)))
    pools = _pools(site, user, wanted, _names(qos), partitions)
    names = {uid: user}
    if everyone:
        names.update(_user_names({key[1] for key in found["groups"]} - {uid}))
    records = _records(found, site)
    reader = _Reader(found, site, names, kept, records)
    live = {name.lower(): record for name, record in found["qos"].items()}
    troubles = [f"pyslurm did not show QOS {name}" for name in pools if name not in live]
    return Snapshot(
        taken_at=now,
        source=PYSLURM,
        user=user,
        qos={name: reader.qos(name, live[name]) for name in pools if name in live} or UNKNOWN,
        assocs=reader.assocs(user, everyone) or UNKNOWN,
        partitions=site.partitions,
        config=site.config,
        jobs=tuple(_job(row) for row in found["jobs"]),
        default_account=site.default_account,
        troubles=tuple(dict.fromkeys([*site.troubles, *troubles])),
    )


def _lists(found: Dict[str, Any], site: Site) -> Dict[str, Set[str]]:
    """Account -> the QOS among which its jobs may have been submitted with ``--qos=a,b``.

    Such a job stays counted as submitted in the QOS that was settled at submission, also when
    it runs in another [24.11.5, 26.05.5], and nothing that pyslurm tells shows it. (A job of
    several partitions is counted anew when it starts.)
    """
    config = site.config
    if not isinstance(config, Unknown) and config.release[:2] < (24, 11):
        return {}
    allowed: Dict[str, Set[str]] = {}
    for raw in found["assocs"] or ():
        allowed.setdefault(raw["account"].lower(), set()).update(q.lower() for q in raw["qos"])
    if not isinstance(site.assocs, Unknown):
        for record in site.assocs.values():
            if isinstance(record.qos, tuple):
                allowed.setdefault(record.account, set()).update(record.qos)
    return {account: names for account, names in allowed.items() if len(names) > 1}


def _user_names(uids: Set[int]) -> Dict[int, str]:
    import pwd

    names = {}
    for uid in uids:
        try:
            names[uid] = pwd.getpwuid(uid).pw_name
        except KeyError:
            names[uid] = str(uid)
    return names


def _job(row: Tuple[Any, ...]) -> Job:
    ident, account, qos, partition, state, reason, tres, limit = row
    tasks, at_once = _tasks(ident, PYSLURM)
    minutes: Amount = UNKNOWN if limit is None else limit
    place = (account.lower(), qos.lower(), partition.lower())
    return Job(ident, *place, state.upper(), reason, tres, tasks, at_once, minutes)


def _records(found: Dict[str, Any], site: Site) -> Dict[AssocKey, Assoc]:
    """The associations: pyslurm's limits; of those that it does not show, sacctmgr's."""
    facts = {} if isinstance(site.assocs, Unknown) else site.assocs
    records = dict(facts)
    cluster = found["cluster"].lower()
    for raw in found["assocs"] or ():
        if raw["cluster"].lower() != cluster:
            continue
        account, user = raw["account"].lower(), raw["user"]
        key = (account, user, raw["partition"].lower())
        fact = facts.get(key)
        tres: Dict[str, LimitMap] = {
            kind: {name: Limit(amount, UNKNOWN) for name, amount in amounts.items()}
            for kind, amounts in raw["tres"].items()
        }
        if fact is not None and "GrpTRESRunMins" in fact.limits.tres:
            tres["GrpTRESRunMins"] = fact.limits.tres["GrpTRESRunMins"]
        counts = {kind: Limit(limit, UNKNOWN) for kind, limit in raw["counts"].items()}
        records[key] = Assoc(
            account=account,
            user=user,
            partition=key[2],
            parent=account if user else raw["parent"].lower(),
            limits=Scope(tres, counts),
            qos=UNKNOWN if fact is None else fact.qos,
            default_qos=UNKNOWN if fact is None else fact.default_qos,
        )
    return records


class _Reader:
    """Adds the groups of jobs up for every scope, and puts limits and use together."""

    def __init__(
        self,
        found: Dict[str, Any],
        site: Site,
        names: Dict[int, str],
        kept: Tuple[str, ...],
        records: Dict[AssocKey, Assoc],
    ) -> None:
        self._site = site
        self._tres: Tuple[str, ...] = found["tres"]
        self._kept = kept
        self._records = records
        self._lists = _lists(found, site)
        #: What each counts for: ("qos", name), ("user", qos, uid), ("account", qos, account),
        #: ("tree", account), ("assoc", key).
        self._use: Dict[Tuple[object, ...], _Use] = {}
        self._names = names
        self._users: Dict[str, Set[int]] = {}
        for key, group in found["groups"].items():
            self._count(key, group)

    def _count(self, key: Tuple[str, int, str, str], group: Dict[str, Any]) -> None:
        account, uid, qos_text, partition_text = key
        account = account.lower()
        partitions = partition_text.lower().split(",")
        one, sure = self._pools_of(qos_text.lower().split(","), partitions)
        for name in one:
            self._users.setdefault(name, set()).add(uid)
            for scope in (("qos", name), ("user", name, uid), ("account", name, account)):
                use = self._use.setdefault(scope, _Use())
                use.add(group)
                use.sure = use.sure and sure
        for name in self._lists.get(account, ()):
            for scope in (("qos", name), ("user", name, uid), ("account", name, account)):
                self._use.setdefault(scope, _Use()).sure = False
        user = self._names.get(uid)
        if user is not None:
            mine = (account, user, partitions[0])
            if mine not in self._records:
                mine = (account, user, "")
            self._use.setdefault(("assoc", mine), _Use()).add(group)
        above: Optional[str] = account
        seen: Set[str] = set()
        while above and above not in seen:
            seen.add(above)
            self._use.setdefault(("tree", above), _Use()).add(group)
            record = self._records.get((above, "", ""))
            above = record.parent if record is not None else None

    def _pools_of(self, qos: List[str], partitions: List[str]) -> Tuple[Set[str], bool]:
        """The QOS that jobs are charged to: their own and the partition's; whether for sure.

        Pending jobs may name several of each: which one their submission counts for is known
        only where that makes no difference.
        """
        known = {} if isinstance(self._site.partitions, Unknown) else self._site.partitions
        of_partitions = {known[name].qos if name in known else "" for name in partitions}
        sure = len(qos) == 1 and len(of_partitions) == 1
        return {*qos, *of_partitions} - {""}, sure

    def qos(self, name: str, raw: Dict[str, Any]) -> Qos:
        """One QOS, with the rows of the users and accounts that were asked for."""
        facts = {} if isinstance(self._site.qos, Unknown) else self._site.qos
        fact = facts.get(name)
        own, per_user = _split(raw)
        defaults = Scope(
            {kind: {n: Limit(v, 0) for n, v in lim.items()} for kind, lim in per_user.tres.items()},
            {kind: Limit(limit, 0) for kind, limit in per_user.counts.items()},
        )
        per_account = _Limits({}, {})
        if fact is not None:
            if not isinstance(fact.defaults, Unknown):
                site_row = fact.defaults
                per_account = _per_account(site_row)
                defaults = Scope(
                    {**site_row.tres, **defaults.tres}, {**site_row.counts, **defaults.counts}
                )
            if "MinPrioThresh" in fact.limits.counts:
                own.counts["MinPrioThresh"] = fact.limits.counts["MinPrioThresh"].limit
        users = {}
        for uid in {*self._users.get(name, ()), *self._names} & set(self._names):
            use = self._use.get(("user", name, uid), _NO_USE)
            users[self._names[uid]] = self._scope(per_user, use)
        rows = {
            account: self._scope(per_account, self._use.get(("account", name, account), _NO_USE))
            for account in self._kept
        }
        found = Qos(name, UNKNOWN_SCOPE, {}, {}) if fact is None else fact
        return found._replace(
            name=name,
            limits=self._scope(own, self._use.get(("qos", name), _NO_USE)),
            users=users,
            accounts=rows,
            defaults=defaults,
            priority=raw["priority"],
        )

    def assocs(self, user: str, everyone: bool) -> Dict[AssocKey, Assoc]:
        """The accounts' own records, what is above them, and the user's (everyone's)."""
        found: Dict[AssocKey, Assoc] = {}
        for account in (*self._kept, ROOT):
            record = self._records.get((account, "", ""))
            while record is not None and (record.account, "", "") not in found:
                found[record.account, "", ""] = self._with_use(record, ("tree", record.account))
                record = self._records.get((record.parent, "", ""))
        for key, record in self._records.items():
            if record.user and record.account in self._kept and (everyone or record.user == user):
                found[key] = self._with_use(record, ("assoc", key))
        return found

    def _with_use(self, record: Assoc, scope: Tuple[object, ...]) -> Assoc:
        limits = _Limits(
            {
                kind: {name: limit.limit for name, limit in limits.items()}
                for kind, limits in record.limits.tres.items()
            },
            {kind: limit.limit for kind, limit in record.limits.counts.items()},
        )
        return record._replace(limits=self._scope(limits, self._use.get(scope, _NO_USE)))

    def _scope(self, limits: _Limits, use: _Use) -> Scope:
        """Limits with their use: counted, UNKNOWN, or None for a limit on one job."""
        tres: Dict[str, LimitMap] = {}
        for kind, found in limits.tres.items():
            if kind in _COUNTED_TRES:
                names = dict.fromkeys((*self._tres, *found))
                tres[kind] = {name: Limit(found.get(name), use.of(name)) for name in names}
            else:
                used: Amount = UNKNOWN if kind in _UNCOUNTED else None
                tres[kind] = {name: Limit(limit, used) for name, limit in found.items()}
        counts = {
            kind: Limit(limit, _used(kind, limit, use)) for kind, limit in limits.counts.items()
        }
        return Scope(tres, counts)


def _used(kind: str, limit: Amount, use: _Use) -> Amount:
    if kind in ("MaxJobs", "MaxSubmitJobs") and limit is None:
        return None  # as scontrol shows it
    if kind in _JOBS:
        return use.jobs
    if kind in _SUBMITTED:
        return use.submitted if use.sure else UNKNOWN
    return UNKNOWN if kind in _UNCOUNTED else None


class _Limits(Record):
    """Limits without their use."""

    tres: Dict[str, Dict[str, Amount]]
    counts: Dict[str, Amount]


UNKNOWN_SCOPE = Scope({}, {})


def _split(raw: Dict[str, Any]) -> Tuple[_Limits, _Limits]:
    """A QOS's limits on the group and on one job, and those on each user."""
    own, per_user = _Limits({}, {}), _Limits({}, {})
    for kind, amounts in raw["tres"].items():
        (per_user if kind.endswith("PU") else own).tres[kind] = dict(amounts)
    for kind, limit in raw["counts"].items():
        (per_user if kind.endswith("PU") else own).counts[kind] = limit
    return own, per_user


def _per_account(row: Scope) -> _Limits:
    return _Limits(
        {
            kind: {name: limit.limit for name, limit in limits.items()}
            for kind, limits in row.tres.items()
            if kind.endswith("PA")
        },
        {kind: limit.limit for kind, limit in row.counts.items() if kind.endswith("PA")},
    )


__all__ = [
    "AUTO",
    "PYSLURM",
    "SCONTROL",
    "Choice",
    "Probe",
    "choose_source",
    "collect_pyslurm",
    "probe_pyslurm",
    "snapshot_of",
]
