"""Ask Slurm: what changes rarely (`collect_site`), and what is used now (`collect_live`).

What Slurm did not tell, or told in a form we do not know, is UNKNOWN in the result, with one
clause in `troubles`; nothing here raises for it. An empty answer is no answer: sacctmgr and
scontrol may print nothing and exit 0 when the accounting database is busy.
"""

from __future__ import annotations

from time import monotonic

from ..core.snapshot import Assoc, Qos, Scope, Site, Snapshot
from ..core.tres import UNKNOWN, Unknown
from .run import first_line, run_all
from .text import SQUEUE_FORMAT, ParseError, parse_jobs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, Iterable, List, Optional, Sequence, Tuple, TypeVar, Union

    from ..core.snapshot import Job, Partition
    from .run import Env, Outcome
    from .text_assoc import AssocKey

    T = TypeVar("T")

#: In a federation squeue shows all its clusters' jobs: ours only. Of hidden partitions as well.
_SQUEUE = ("squeue", "--me", "--local", "-a", "-O", SQUEUE_FORMAT)

#: The account at the top of the tree, and the QOS of last resort; slurmdbd makes both.
ROOT = "root"
NORMAL = "normal"


def collect_site(
    user: str,
    timeout: float,
    sacctmgr_timeout: float,
    now: float,
    *,
    path: Optional[str] = None,
    env: Optional[Env] = None,
) -> Site:
    """Ask for everything in a `Site`, all at once. `now` is the time since the epoch.

    Seconds: `timeout` for scontrol, `sacctmgr_timeout` for sacctmgr, counted from the call; one
    more scontrol, for the nodes' sizes, follows where slurmctld has answered the first.
    `path` and `env` are as in `run_all`. Never raises; what fails is UNKNOWN.
    """
    from . import text_site as parse

    commands = [
        ["scontrol", "show", "config"],
        ["scontrol", "-a", "-o", "show", "partition"],
        ["sacctmgr", "-P", "show", "assoc", f"user={user}", f"format={parse.ASSOC_COLUMNS}"],
        # No user: the accounts' own records.
        ["sacctmgr", "-P", "show", "assoc", "user=", f"format={parse.ASSOC_COLUMNS}"],
        ["sacctmgr", "-P", "show", "qos", f"format={parse.QOS_COLUMNS}"],
        ["sacctmgr", "-P", "show", "user", user, "withassoc", f"format={parse.USER_COLUMNS}"],
    ]
    timeouts = [timeout] * 2 + [sacctmgr_timeout] * 4
    answers = run_all(commands, timeout, timeouts=timeouts, path=path, env=env)
    if answers[4].rc == 1 and b"Unknown field" in answers[4].err:
        # A release without one of the columns: take those it prints by itself.
        again = [["sacctmgr", "-P", "show", "qos"]]
        answers[4] = run_all(again, sacctmgr_timeout, path=path, env=env)[0]
    troubles: List[str] = []
    config = _read(answers[0], parse.parse_config, troubles)
    cluster = None if isinstance(config, Unknown) else config.cluster
    mine = _read(answers[2], lambda data: parse.parse_assoc_table(data, cluster), troubles)
    accounts = _read(answers[3], lambda data: parse.parse_assoc_table(data, cluster), troubles)
    return Site(
        taken_at=now,
        user=user,
        config=config,
        partitions=_add_nodes(
            _read(answers[1], parse.parse_partitions, troubles), timeout, path, env, troubles
        ),
        assocs=_site_assocs(user, mine, accounts, troubles),
        qos=_read(answers[4], parse.parse_qos_table, troubles),
        default_account=_read(
            answers[5], lambda data: parse.parse_default_account(data, cluster), troubles
        ),
        troubles=tuple(dict.fromkeys(troubles)),
    )


def _add_nodes(
    partitions: Union[Dict[str, Partition], Unknown],
    timeout: float,
    path: Optional[str],
    env: Optional[Env],
    troubles: List[str],
) -> Union[Dict[str, Partition], Unknown]:
    """What each partition's first node has, which one more command tells."""
    from .text_site import first_node, parse_nodes

    if isinstance(partitions, Unknown):
        return UNKNOWN
    first = {name: first_node(p.other.get("Nodes", "")) for name, p in partitions.items()}
    wanted = ",".join(dict.fromkeys(node for node in first.values() if node))
    if not wanted:
        return partitions
    command = ["scontrol", "-a", "-o", "show", "node", wanted]
    answer = run_all([command], timeout, path=path, env=env)[0]
    if b"permission denied" in answer.err:
        # PrivateData=nodes: no trouble, as it is meant so and asking again would not help.
        return partitions
    nodes = _read(answer, parse_nodes, troubles)
    if isinstance(nodes, Unknown):
        return partitions
    found = {}
    for name, partition in partitions.items():
        node = nodes.get(first[name])
        found[name] = partition
        if node is not None:
            found[name] = partition._replace(
                node_memory=node.memory,
                node_cpus=node.cpus,
                threads_per_core=node.threads,
                node_gres=node.gres,
            )
    return found


def _site_assocs(
    user: str,
    mine: Union[Dict[AssocKey, Assoc], Unknown],
    accounts: Union[Dict[AssocKey, Assoc], Unknown],
    troubles: List[str],
) -> Union[Dict[AssocKey, Assoc], Unknown]:
    """Both tables in one. Without a row of the user's own there is no answer."""
    from .text_site import effective_default_qos

    if isinstance(mine, Unknown):
        return UNKNOWN
    own = {key: assoc for key, assoc in mine.items() if assoc.user}
    if not own:
        troubles.append(f"sacctmgr shows no association of user {user} on this cluster")
        return UNKNOWN
    found: Dict[AssocKey, Assoc] = {}
    if not isinstance(accounts, Unknown):
        found.update((key, assoc) for key, assoc in accounts.items() if not assoc.user)
    root = found.get((ROOT, "", ""))
    for key, assoc in own.items():
        found[key] = assoc._replace(default_qos=effective_default_qos(assoc, root))
    return found


def collect_live(
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
    look_first: bool = False,
    without_jobs: bool = False,
    path: Optional[str] = None,
    env: Optional[Env] = None,
    meanwhile: Optional[Callable[[], None]] = None,
) -> Snapshot:
    """What is used now of the pools behind `accounts` and `qos`, as one `Snapshot`.

    Two commands at once: ``scontrol show assoc_mgr`` for the accounts, my other accounts, all
    their ancestors, the QOS, my default QOS there and the QOS of `partitions` (None: of all);
    and ``squeue --me``. That is one RPC, and two: squeue always asks for the partitions too
    (_part_state_load in src/squeue/print.c). With `look_first` squeue is run afterwards, and
    only if the first answer shows that I have jobs; `without_jobs` leaves it out, and `jobs`
    UNKNOWN.

    `timeout` is in seconds for all of it, `now` the time since the epoch; `path`, `env` and
    `meanwhile` are as in `run_all`. `everyone` keeps other users' rows as well.

    Never raises for what Slurm does. With PrivateData=usage slurmctld hides the records of
    accounts from plain users: theirs are then sacctmgr's limits, and what is used is unknown.
    """
    wanted = _names(accounts)
    kept = tuple(dict.fromkeys(wanted + _my_accounts(site, user)))
    pools = _pools(site, user, wanted, _names(qos), partitions)
    start = monotonic()
    ask = _assoc_mgr_command(user, _with_ancestors(site, kept), pools, everyone)
    commands: List[Sequence[str]] = [ask] if look_first or without_jobs else [ask, _SQUEUE]
    answers = run_all(commands, timeout, path=path, env=env, meanwhile=meanwhile)
    # Only now: it is loaded while Slurm is at work.
    from .text_assoc import parse_assoc_mgr

    troubles: List[str] = []
    answer = _read(
        answers[0],
        lambda data: parse_assoc_mgr(data, user, uid, frozenset(kept), everyone),
        troubles,
    )
    jobs: Union[Tuple[Job, ...], Unknown] = UNKNOWN
    if without_jobs:
        pass
    elif not look_first:
        jobs = _read(answers[1], parse_jobs, troubles)
    elif not isinstance(answer, Unknown):
        if _submitted(site, answer.assocs, user) == 0:
            jobs = ()
        else:
            left = max(0.0, timeout - (monotonic() - start))
            jobs = _read(run_all([_SQUEUE], left, path=path, env=env)[0], parse_jobs, troubles)
    return Snapshot(
        taken_at=now,
        source="scontrol",
        user=user,
        qos=UNKNOWN
        if isinstance(answer, Unknown)
        else _merge_qos(site, answer.qos, pools, troubles),
        assocs=UNKNOWN
        if isinstance(answer, Unknown)
        else _merge_assocs(site, answer.assocs, kept, troubles),
        partitions=site.partitions,
        config=site.config,
        jobs=jobs,
        default_account=site.default_account
        if isinstance(answer, Unknown) or isinstance(answer.default_account, Unknown)
        else answer.default_account,
        troubles=tuple(dict.fromkeys(list(site.troubles) + troubles)),
    )


def collect_jobs(timeout: float) -> Tuple[Union[Tuple[Job, ...], Unknown], str]:
    """My jobs now, and what is wrong if they are UNKNOWN. `timeout` in seconds."""
    troubles: List[str] = []
    jobs = _read(run_all([_SQUEUE], timeout)[0], parse_jobs, troubles)
    return jobs, "; ".join(troubles)


def _submitted(site: Site, assocs: Dict[AssocKey, Assoc], user: str) -> Optional[int]:
    """How many jobs of mine slurmctld counts on all my associations, or None if it may not.

    It counts them only where limits are enforced (_adjust_limit_usage in
    src/slurmctld/acct_policy.c).
    """
    if isinstance(site.config, Unknown) or isinstance(site.assocs, Unknown):
        return None
    if not site.config.enforce & {"limits", "safe"}:
        return None
    total = 0
    for key in site.assocs:
        if key[1] == user:
            used = assocs[key].limits.counts.get("GrpSubmitJobs") if key in assocs else None
            if used is None or not isinstance(used.used, int):
                return None
            total += used.used
    return total


def _my_accounts(site: Site, user: str) -> Tuple[str, ...]:
    if isinstance(site.assocs, Unknown):
        return ()
    return tuple(key[0] for key in site.assocs if key[1] == user)


def _read(outcome: Outcome, parse: Callable[[bytes], T], troubles: List[str]) -> Union[T, Unknown]:
    """What `parse` makes of an answer, or UNKNOWN and a clause in `troubles`."""
    trouble = outcome.trouble
    if not trouble:
        try:
            return parse(outcome.out)
        except ParseError as error:
            said = first_line(outcome.err)
            trouble = f"{error} ({said})" if said else str(error)
    troubles.append(trouble)
    return UNKNOWN


def _names(names: Iterable[str]) -> Tuple[str, ...]:
    return tuple(dict.fromkeys(name.lower() for name in names))


def _askable(names: Iterable[str]) -> List[str]:
    """Names that can stand in a list of scontrol's; no account or QOS has another.

    slurm_addto_char_list in src/common/slurmdb_defs.c gives these characters a meaning.
    """
    return [name for name in names if name and name.isprintable() and not set(name) & set(",\"'[]")]


def _with_ancestors(site: Site, accounts: Tuple[str, ...]) -> Optional[Tuple[str, ...]]:
    """`accounts` and all that is above them, or None when the tree is not known (ask for all)."""
    known = site.assocs
    if isinstance(known, Unknown) or (ROOT, "", "") not in known:
        return None
    found = dict.fromkeys(accounts)
    for account in accounts:
        record = known.get((account, "", ""))
        while record is not None and record.parent and record.parent not in found:
            found[record.parent] = None
            record = known.get((record.parent, "", ""))
    found[ROOT] = None
    return tuple(found)


def _pools(
    site: Site,
    user: str,
    accounts: Tuple[str, ...],
    qos: Tuple[str, ...],
    partitions: Optional[Iterable[str]],
) -> Tuple[str, ...]:
    """The QOS to ask for: those named, my defaults in `accounts`, the partitions' own."""
    found = dict.fromkeys(qos)
    if not isinstance(site.assocs, Unknown):
        for assoc in site.assocs.values():
            if assoc.user == user and assoc.account in accounts:
                default = assoc.default_qos
                if isinstance(default, str):
                    found[default] = None
    if not isinstance(site.partitions, Unknown):
        names = site.partitions if partitions is None else _names(partitions)
        for name in names:
            partition = site.partitions.get(name)
            if partition is not None and partition.qos:
                found[partition.qos] = None
    # An empty list would ask for all QOS.
    return tuple(found) or (NORMAL,)


def _assoc_mgr_command(
    user: str, accounts: Optional[Tuple[str, ...]], qos: Tuple[str, ...], everyone: bool
) -> List[str]:
    """One RPC for users, associations and QOS; each list narrows one of them (scontrol(1)).

    With ``users=`` slurmctld sends of each account its own record and mine only, however many
    users it has. The QOS section, asked for always, shows that the answer is whole.
    """
    command = ["scontrol", "-o", "show", "assoc_mgr", "flags=users,assoc,qos"]
    if not everyone and _askable([user]):
        command.append(f"users={user}")
    if accounts is not None:
        command.append("accounts=" + ",".join(_askable(accounts)))
    command.append("qos=" + (",".join(_askable(qos)) or NORMAL))
    return command


def _merge_qos(
    site: Site, live: Dict[str, Qos], pools: Tuple[str, ...], troubles: List[str]
) -> Union[Dict[str, Qos], Unknown]:
    """Add what only sacctmgr tells: flags, LimitFactor, and the limits of users without a row."""
    facts = {} if isinstance(site.qos, Unknown) else site.qos
    for name in pools:
        if name in facts and name not in live:
            troubles.append(f"scontrol did not show QOS {name}")
    if not live:
        troubles.append("scontrol show assoc_mgr: no QOS in the answer")
        return UNKNOWN
    found = {}
    for name, qos in live.items():
        fact = facts.get(name)
        if fact is not None:
            qos = qos._replace(
                flags=fact.flags,
                limit_factor=fact.limit_factor,
                usage_factor=fact.usage_factor,
                defaults=_merge_defaults(qos.defaults, fact.defaults),
            )
        found[name] = qos
    return found


def _merge_defaults(
    live: Union[Scope, Unknown], site: Union[Scope, Unknown]
) -> Union[Scope, Unknown]:
    """slurmctld's own word where another's row gives it, else sacctmgr's."""
    if isinstance(live, Unknown):
        return site
    if isinstance(site, Unknown):
        return live
    return Scope({**site.tres, **live.tres}, {**site.counts, **live.counts})


def _merge_assocs(
    site: Site, live: Dict[AssocKey, Assoc], accounts: Tuple[str, ...], troubles: List[str]
) -> Union[Dict[AssocKey, Assoc], Unknown]:
    """Add the QOS lists that only sacctmgr tells, and the records that slurmctld hides."""
    if not live:
        troubles.append("scontrol show assoc_mgr: no associations in the answer")
        return UNKNOWN
    facts = {} if isinstance(site.assocs, Unknown) else site.assocs
    found = dict(live)
    if (ROOT, "", "") not in live:
        _add_hidden(facts, found, accounts, troubles)
    for key, assoc in live.items():
        fact = facts.get(key)
        if fact is not None:
            found[key] = assoc._replace(qos=fact.qos, default_qos=fact.default_qos)
        elif not assoc.user and assoc.parent and (assoc.parent, "", "") not in found:
            troubles.append(f"account {assoc.parent}, above {assoc.account}, was not asked for")
    return found


def _add_hidden(
    facts: Dict[AssocKey, Assoc],
    found: Dict[AssocKey, Assoc],
    accounts: Tuple[str, ...],
    troubles: List[str],
) -> None:
    """The accounts' records from sacctmgr, whose use is unknown.

    Root's record always exists, so where it is not shown PrivateData=usage is at work
    (assoc_mgr_info_get_pack_msg in src/common/assoc_mgr.c, since moved to src/interfaces).
    """
    limited = []
    for account in accounts:
        record = facts.get((account, "", ""))
        while record is not None and (record.account, "", "") not in found:
            found[record.account, "", ""] = record
            if _has_limits(record.limits):
                limited.append(record.account)
            record = facts.get((record.parent, "", ""))
    for account in limited:
        troubles.append(f"slurmctld hides what account {account} uses (PrivateData=usage)")


def _has_limits(scope: Scope) -> bool:
    counts = any(limit.limit is not None for limit in scope.counts.values())
    return counts or any(scope.tres.values())
