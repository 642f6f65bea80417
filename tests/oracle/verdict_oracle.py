#!/usr/bin/env python3
"""Random limits, jobs and requests, judged by a real slurmctld: our verdicts are its verdicts.

A cluster is divided into islands that share nothing but the nodes: each has its own accounts,
QOS and partition with random limits, other users' running jobs and alice's own. Every round
asks one request of one candidate on each island: we judge it from a real snapshot taken as
alice, then the real sbatch submits it as alice, alone, and the job is read back. Compared are
the TRES, whether sbatch refused it (and with which limit), and squeue's reason, which is empty
when the job starts. In the last round alice's jobs are taken away first: what we called
`waits_mine` has to start then, and what we called `waits_others` must not.

A verdict `unknown` is no disagreement; they are counted, by their reason. Nodes are large
enough for all of it, so only limits hold jobs.

    verdict_oracle.py --seed 1 --count 2000
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import pwd
import random
import re
import shlex
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Callable, Optional

ROOT = Path(__file__).resolve().parents[2]
for part in (str(ROOT), str(ROOT / "containers")):
    if part not in sys.path:
        sys.path.insert(0, part)

from cluster import BedError, Cluster, CommandFailed  # noqa: E402

from sbatch_router.core.candidates import SUBMIT_COUNTS  # noqa: E402
from sbatch_router.core.decide import Candidate, decide  # noqa: E402
from sbatch_router.core.policy import Account, Policy  # noqa: E402
from sbatch_router.core.snapshot import Site, Snapshot, binding  # noqa: E402
from sbatch_router.core.tres import parse_tres  # noqa: E402
from sbatch_router.slurm.collect import collect_live, collect_site  # noqa: E402
from sbatch_router.slurm.request import read_request  # noqa: E402
from sbatch_router.slurm.run import query_environment  # noqa: E402
from sbatch_router.state import load, store  # noqa: E402

ISLANDS = 16
ROUNDS = 9
GPUS = {"a100": 64, "l4": 64}
TRES = ("cpu", "mem", "node", "billing", "gres/gpu", "gres/gpu:a100", "license/lic")
#: Said in whole sentences, with names and lists of names.
CLOSED = {
    "Job's QOS not permitted": "QOSNotAllowed",
    "Job's account not permitted": "AccountNotAllowed",
}
#: Reasons of nodes and of a scheduler that is late.
TROUBLE = ("Nodes required", "Resources", "Priority", "None")
WAITING = ("None", "", "Priority", "Resources")

#: Partition options that shut nobody out.
OPEN = {
    "AllowAccounts": "ALL", "AllowQos": "ALL", "DenyAccounts": "", "DenyQos": "",
    "MaxTime": "UNLIMITED", "MaxNodes": "UNLIMITED",
}  # fmt: skip

#: What an island has: entity -> (sacctmgr's kind, name pattern). `{}` is the island's number.
ENTITIES = {
    "q": ("qos", "q{}"),
    "r": ("qos", "r{}"),
    "p": ("qos", "p{}"),
    "top": ("account", "top{}"),
    "a": ("account", "a{}"),
    "b": ("account", "b{}"),
    "alice/a": ("user", "alice"),
    "alice/b": ("user", "alice"),
}


@dataclass(frozen=True)
class Job:
    """A job on an island: who, on which account and QOS, with which options."""

    user: str
    account: str
    qos: str
    options: tuple[str, ...]

    def argv(self, island: int) -> list[str]:
        """The options of sbatch or salloc."""
        place = [f"--account={self.account}{island}", f"--qos={self.qos}{island}"]
        return [*place, f"--partition=part{island}", *self.options]


@dataclass(frozen=True)
class State:
    """One island: limits (entity, option, value), partition options, running and queued jobs."""

    limits: tuple[tuple[str, str, str], ...] = ()
    partition: tuple[tuple[str, str], ...] = ()
    running: tuple[Job, ...] = ()
    queued: tuple[Job, ...] = ()

    def text(self) -> str:
        """For people."""
        lines = [f"  limit: {entity} {option}={value}" for entity, option, value in self.limits]
        lines += [f"  partition: {key}={value}" for key, value in self.partition]
        for name, jobs in (("runs", self.running), ("queued", self.queued)):
            lines += [f"  {name}: {j.user} {shlex.join(j.argv(0))}" for j in jobs]
        return "\n".join(lines)


@dataclass
class Result:
    """One question: what we said, and what slurmctld did."""

    island: int
    state: State
    ask: Job
    ours: dict[str, Any]
    job: Optional[int] = None
    message: str = ""
    reason: str = ""
    running: int = 0
    tres: dict[str, int] = field(default_factory=dict)
    #: Alice's other jobs had been cancelled after we judged.
    alone: bool = False
    wrong: str = ""

    def text(self) -> str:
        """For people."""
        ours = {k: v for k, v in self.ours.items() if k not in ("checks",)}
        checks = "\n".join(f"    {c}" for c in self.ours["checks"])
        return (
            f"{self.wrong}\n{self.state.text()}\n  asked: alice {shlex.join(self.ask.argv(0))}\n"
            f"  alone: {self.alone}; slurmctld: job={self.job} running={self.running} "
            f"reason={self.reason!r} message={self.message!r} tres={self.tres}\n"
            f"  ours: {ours}\n{checks}"
        )


# -- generating ----------------------------------------------------------------------------------


def _tres_value(rng: random.Random, minutes: bool = False) -> str:
    """One or two TRES with small limits, now and then zero."""
    names = rng.sample(TRES, rng.choice((1, 1, 2)))
    parts = []
    for name in names:
        most = {"cpu": 24, "mem": 3000, "node": 4, "billing": 40}.get(name, 6)
        value = rng.choice((0, rng.randint(1, most), rng.randint(1, most)))
        if minutes:
            value *= rng.choice((10, 30, 60))
        parts.append(f"{name}={value}")
    return ",".join(parts)


def _minutes(rng: random.Random) -> str:
    return _tres_value(rng, minutes=True)


def _jobs(rng: random.Random) -> str:
    return str(rng.randint(0, 4))


def _submit(rng: random.Random) -> str:
    return str(rng.randint(0, 8))


def _wall(rng: random.Random) -> str:
    return str(rng.choice((0, 1, 15, 30, 45, 60, 90)))


def _minimum(rng: random.Random) -> str:
    name = rng.choice(TRES)
    return f"{name}={rng.choice((1, 2, 4)) * (100 if name == 'mem' else 1)}"


FLAGS = ("DenyOnLimit", "OverPartQOS", "NoReserve", "PartitionTimeLimit", "UsageFactorSafe",
         "PartitionMaxNodes", "RequiresReservation")  # fmt: skip


def _flags(rng: random.Random) -> str:
    return ",".join(sorted(set(rng.sample((*FLAGS, FLAGS[0]), rng.choice((1, 1, 2))))))


def _factor(rng: random.Random) -> str:
    return rng.choice(("0.5", "1.5", "2"))


Make = Callable[[random.Random], str]
_BOTH: dict[str, Make] = {
    "GrpTRES": _tres_value, "GrpTRESMins": _minutes, "GrpTRESRunMins": _minutes,
    "GrpJobs": _jobs, "GrpSubmitJobs": _submit, "GrpWall": _wall,
    "MaxTRESPerJob": _tres_value, "MaxTRESPerNode": _tres_value, "MaxTRESMinsPerJob": _minutes,
    "MaxWallDurationPerJob": _wall,
}  # fmt: skip
_QOS: dict[str, Make] = {
    **_BOTH,
    "MaxTRESPerUser": _tres_value, "MaxTRESPerAccount": _tres_value,
    "MaxTRESRunMinsPU": _minutes, "MaxTRESRunMinsPA": _minutes,
    "MaxJobsPerUser": _jobs, "MaxJobsPerAccount": _jobs,
    "MaxSubmitJobsPerUser": _submit, "MaxSubmitJobsPerAccount": _submit,
    "MinTRESPerJob": _minimum, "MinPrioThres": _jobs,
    "Flags": _flags, "LimitFactor": _factor, "UsageFactor": _factor,
}  # fmt: skip
#: What the kinds are called in a snapshot.
ASSOC_KINDS = ("GrpTRES", "GrpTRESMins", "GrpTRESRunMins", "GrpJobs", "GrpSubmitJobs", "GrpWall",
               "MaxTRESPJ", "MaxTRESPN", "MaxTRESMinsPJ", "MaxWallPJ", "MaxJobs",
               "MaxSubmitJobs")  # fmt: skip
QOS_KINDS = (*ASSOC_KINDS[:-2], "MaxTRESPU", "MaxTRESPA", "MinTRESPJ", "MaxJobsPU", "MaxJobsPA",
             "MaxSubmitJobsPU", "MaxSubmitJobsPA")  # fmt: skip
_ASSOC: dict[str, Make] = {**_BOTH, "MaxJobs": _jobs, "MaxSubmitJobs": _submit}


def kinds(entities: str) -> list[tuple[str, str]]:
    """All (entity, option) of some entities."""
    found = []
    for entity in entities.split():
        table = _QOS if ENTITIES[entity][0] == "qos" else _ASSOC
        found += [(entity, option) for option in sorted(table)]
    return found


class Deck:
    """Deals limit kinds so that each comes once before any comes again."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._left: dict[str, list[tuple[str, str]]] = {}

    def deal(self, entities: str) -> tuple[str, str]:
        """An (entity, option)."""
        left = self._left.setdefault(entities, [])
        if not left:
            left += kinds(entities)
            self._rng.shuffle(left)
        return left.pop()


def _limits(rng: random.Random, deck: Deck, island: int) -> tuple[tuple[str, str, str], ...]:
    """One to five limits; QOS limits more often than others."""
    found: dict[tuple[str, str], str] = {}
    # The even islands' partitions have no QOS.
    first = deck.deal("p" if island % 4 == 1 else "q top a alice/a")
    others = [(rng.choice(("q", "q", "r", "p", "top", "a", "alice/a", "b")), "")
              for _ in range(rng.choice((0, 0, 1, 1, 2, 3, 4)))]  # fmt: skip
    for entity, option in (first, *others):
        table = _QOS if ENTITIES[entity][0] == "qos" else _ASSOC
        option = option or rng.choice(sorted(table))
        found[entity, option] = table[option](rng)
    if rng.random() < 0.15:
        found["q", "Flags"] = _flags(rng)
    return tuple((entity, option, value) for (entity, option), value in found.items())


def _partition(rng: random.Random) -> tuple[tuple[str, str], ...]:
    """Now and then the partition is closed to somebody, or has limits of its own."""
    if rng.random() > 0.3:
        return ()
    return (rng.choice((
        ("AllowAccounts", "a{}"), ("DenyAccounts", "a{}"), ("AllowQos", "q{}"),
        ("DenyQos", "q{}"), ("MaxTime", "45"), ("MaxTime", "90"), ("MaxNodes", "1"),
    )),)  # fmt: skip


def _options(rng: random.Random, *, array: bool, nodes: int) -> tuple[str, ...]:
    """The options of a job that asks for little, on up to `nodes` nodes."""
    found = [f"-c{rng.choice((1, 1, 2, 3, 4, 8))}"]
    if rng.random() < 0.6:
        found.append(f"--mem={rng.choice((10, 100, 250, 500, 1000))}M")
    elif rng.random() < 0.3:
        found.append(f"--mem-per-cpu={rng.choice((10, 200))}M")
    if rng.random() < 0.8:
        found.append(f"--time={rng.choice((10, 30, 60, 60, 100, 0))}")
    if rng.random() < 0.4:
        found.append(rng.choice(("--gres=gpu:1", "--gres=gpu:2", "--gres=gpu:a100:1",
                                 "--gres=gpu:a100:2", "--gpus=2", "--gres=gpu:l4:1")))  # fmt: skip
    if rng.random() < 0.2:
        found.append(f"--licenses=lic:{rng.choice((1, 2))}")
    if rng.random() < 0.2:
        found.append(f"--nodes={rng.randint(1, nodes)}")
    if array and rng.random() < 0.15:
        found.append(rng.choice(("--array=0-1", "--array=0-3", "--array=0-3%2", "--array=1-9%1")))
    return tuple(found)


def generate(rng: random.Random, nodes: int, deck: Deck) -> list[State]:
    """Random islands."""
    return [_state(rng, nodes, deck, island) for island in range(ISLANDS)]


def _state(rng: random.Random, nodes: int, deck: Deck, island: int) -> State:
    running = []
    for user in ("alice", "bob", "carol"):
        for _ in range(rng.choice((0, 0, 1, 1, 2))):
            account = rng.choice("aab")
            options = _options(rng, array=False, nodes=nodes)
            running.append(Job(user, account, rng.choice("qqr"), options))
    queued = []
    if rng.random() < 0.3:
        queued.append(Job("alice", "a", "q", _options(rng, array=True, nodes=nodes)))
    return State(_limits(rng, deck, island), _partition(rng), tuple(running), tuple(queued))


def ask(rng: random.Random, nodes: int) -> Job:
    """A random question; now and then for more nodes than there are."""
    options = _options(rng, array=True, nodes=min(nodes + 1, 3))
    return Job("alice", rng.choice("aaab"), rng.choice("qqqr"), options)


# -- the cluster ---------------------------------------------------------------------------------


def spec(nodes: int, **slurm_conf: Any) -> dict[str, Any]:
    """A cluster with islands: half the partitions have a QOS and billing weights, half a default
    time.
    """
    numbers = range(ISLANDS)
    accounts: dict[str, Any] = {}
    for i in numbers:
        qos = {"qos": [f"q{i}", f"r{i}"], "default_qos": f"q{i}"}
        accounts[f"top{i}"] = {}
        accounts[f"a{i}"] = {"parent": f"top{i}", **qos, "users": ["alice", "bob", "carol"]}
        accounts[f"b{i}"] = {"parent": f"top{i}", **qos, "users": ["alice", "bob", "carol"]}
    partitions: dict[str, Any] = {}
    for i in numbers:
        partitions[f"part{i}"] = {"MaxTime": "UNLIMITED"}
        if i % 4 > 1:
            partitions[f"part{i}"]["DefaultTime"] = 20
        if i % 2:
            weights = "CPU=1.0,Mem=0.005,GRES/gpu=2.5"
            partitions[f"part{i}"].update(QOS=f"p{i}", TRESBillingWeights=weights)
    gpus = {kind: count // nodes for kind, count in GPUS.items()}
    return {
        "nodes": {"count": nodes, "cpus": 2048 // nodes, "memory": 4194304 // nodes, "gpus": gpus},
        "partitions": partitions,
        "slurm_conf": {
            "DefMemPerCPU": 100,
            "AccountingStorageTRES": [t for t in TRES if "/" in t],
            "Licenses": "lic:1000",
            # What is spent stays spent, and what runs keeps what it had left, for a batch.
            "PriorityCalcPeriod": "10:00",
            "PriorityDecayHalfLife": "365-0",
            "MaxJobCount": 20000,
            "MinJobAge": 2,
            **slurm_conf,
        },
        "users": {user: {"default_account": "a0"} for user in ("alice", "bob", "carol")},
        "qos": {f"{kind}{i}": {} for i in numbers for kind in "qrp"},
        "accounts": accounts,
    }


def _as_user(cluster: Cluster, user: str, function: Callable[[], Any]) -> Any:
    """The result (JSON) of a function that runs as another user, in a child process."""
    record = pwd.getpwnam(user)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(read)
            os.setgroups([])
            os.setgid(record.pw_gid)
            os.setuid(record.pw_uid)
            with os.fdopen(write, "w") as out:
                json.dump(function(), out)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(write)
    with os.fdopen(read) as source:
        text = source.read()
    if os.waitpid(child, 0)[1]:
        raise RuntimeError("the judge ended with an error")
    return json.loads(text)


def _candidate(found: Candidate, need: Any) -> dict[str, Any]:
    return {
        "verdict": found.verdict, "reason": found.reason, "why": found.why,
        "refused": found.refused, "starts": found.starts, "doubts": list(found.doubts),
        "tres": dict(need.tres) if need is not None else {},
        "at_start": dict(need.at_start or need.tres) if need is not None else {},
        "later": list(need.later) if need is not None else [],
        "checks": [
            [c.stage, c.reason, c.kind, c.tres, c.where, c.limit, repr(c.used), repr(c.mine),
             c.promised, c.requested, c.requested_all, c.held_by_running()]
            for c in found.checks
        ],
    }  # fmt: skip


class Bench:
    """A cluster with islands, and what we know of it."""

    def __init__(self, cluster: Cluster, nodes: int) -> None:
        self.cluster = cluster
        self.nodes = nodes
        self.env = query_environment({k.encode(): v.encode() for k, v in cluster.env.items()})
        self.set: list[dict[tuple[str, str], str]] = [{} for _ in range(ISLANDS)]
        self.partitions: list[dict[str, str]] = [{} for _ in range(ISLANDS)]
        self.marker = 0
        self.states: list[State] = [State()] * ISLANDS
        self._site = cluster.home("alice") / "site"

    # -- setting up ------------------------------------------------------------------------

    def prepare(self, states: list[State]) -> None:
        """Make the islands so: running jobs first, then the limits, then alice's queue."""
        self.cluster.scancel_all()
        self._clear()
        self._site.unlink(missing_ok=True)
        self.states = states + [State()] * (ISLANDS - len(states))
        jobs = [(i, job) for i, state in enumerate(states) for job in state.running]
        with ThreadPoolExecutor(3) as pool:
            held = list(pool.map(self._hold, jobs))
        for (i, job), ok in zip(jobs, held):
            if not ok:
                left = tuple(j for j in self.states[i].running if j is not job)
                self.states[i] = replace(self.states[i], running=left)
        self._apply(states)
        for i, state in enumerate(states):
            for job in state.queued:
                self._submit(i, job)
        if any(state.queued for state in states):
            self._settled(time.monotonic())

    def _hold(self, numbered: tuple[int, Job]) -> bool:
        """Whether the job runs; a few ask for what makes no sense, as two GPUs on three nodes."""
        island, job = numbered
        try:
            self.cluster.hold(job.user, *job.argv(island))
        except CommandFailed:
            return False
        return True

    def _clear(self) -> None:
        """No limits anywhere."""
        lines = []
        for island, known in enumerate(self.set):
            by_entity: dict[str, list[str]] = {}
            for (entity, option), value in known.items():
                by_entity.setdefault(entity, []).append(_cleared(option, value))
            lines += [self._modify(island, e, " ".join(words)) for e, words in by_entity.items()]
            known.clear()
        self._account(lines)
        for island, options in enumerate(self.partitions):
            if options:
                self._partition(island, {key: OPEN[key] for key in options})
                options.clear()

    def _partition(self, island: int, options: dict[str, str]) -> None:
        words = [f"{key}={value.format(island)}" for key, value in options.items()]
        self.cluster.run("scontrol", "update", f"PartitionName=part{island}", *words)

    def _apply(self, states: list[State]) -> None:
        lines = []
        for island, state in enumerate(states):
            by_entity: dict[str, list[str]] = {}
            for entity, option, value in state.limits:
                by_entity.setdefault(entity, []).append(f"{option}={value}")
                self.set[island][entity, option] = value
            lines += [self._modify(island, e, " ".join(words)) for e, words in by_entity.items()]
            if state.partition:
                self.partitions[island] = dict(state.partition)
                self._partition(island, self.partitions[island])
        self._account(lines)

    def _modify(self, island: int, entity: str, words: str) -> str:
        kind, name = ENTITIES[entity]
        where = f"name={name.format(island)}"
        if kind == "user":
            where += f" account={entity[-1]}{island}"
        return f"modify {kind} where {where} set {words}"

    def _account(self, lines: list[str]) -> None:
        """Give sacctmgr the commands, and wait until slurmctld has the last of them."""
        if not lines:
            return
        self.marker = self.marker % 1000 + 1
        last = f"modify qos where name=normal set GrpJobs={self.marker}"
        self.cluster._account([*lines, last])
        wanted = f" GrpJobs={self.marker}("

        def there() -> bool:
            ask = ("scontrol", "-o", "show", "assoc_mgr", "flags=qos", "qos=normal")
            return wanted in self._query(*ask)

        self.cluster.wait_until(there, what="slurmctld has the limits")

    # -- asking ----------------------------------------------------------------------------

    def judge(self, asks: list[Job], whole: bool) -> list[dict[str, Any]]:
        """What we say, from one snapshot taken as alice; `whole`: as Slurm told it."""
        uid = self.cluster.uid("alice")
        options: dict[str, Any] = {"path": self.cluster.env["PATH"], "env": self.env}

        def work() -> list[dict[str, Any]]:
            kept = load(str(self._site), None)
            site = kept if isinstance(kept, Site) else None
            if site is None:
                site = collect_site("alice", 10, 20, time.time(), **options)
                store(str(self._site), None, site)
            snapshot = _collect(site, uid, options)
            if not whole:
                snapshot = binding(snapshot)
            return [_judge(snapshot, i, job) for i, job in enumerate(asks)]

        answer: list[dict[str, Any]] = _as_user(self.cluster, "alice", work)
        return answer

    def snapshot(self) -> Snapshot:
        """What Slurm says now, asked for as root."""
        options: dict[str, Any] = {"path": self.cluster.env["PATH"], "env": self.env}
        site = collect_site("alice", 10, 20, time.time(), **options)
        return _collect(site, self.cluster.uid("alice"), options)

    def round(self, asks: list[Job], *, whole: bool = True, alone: bool = False) -> list[Result]:
        """Judge one request an island, then submit them all and read what became of them.

        With `alone` alice's own jobs are cancelled in between.
        """
        ours = self.judge(asks, whole)
        results = [
            Result(i, self.states[i], job, ours[i], alone=alone) for i, job in enumerate(asks)
        ]
        if alone:
            self.cluster.run("scancel", "-u", "alice")
            self.cluster.wait_until(lambda: not self._jobs("alice"), what="alice has no job")
        before = {job for job, *_ in self._jobs("alice")}
        for attempt in range(3):
            began = time.monotonic()
            with ThreadPoolExecutor(3) as pool:
                list(pool.map(self._answer, results))
            self._settled(began)
            self._read(results)
            trouble = [r for r in results if r.reason.startswith(TROUBLE)]
            if not trouble:
                break
            if attempt == 2:
                for result in trouble:
                    result.ours.update(verdict="unknown", why=f"trouble: {result.reason}")
                break
            # A machine under load lets slurmd be late, and a node goes down: not our question.
            self._cancel(results, before)
            names = self._query("sinfo", "-h", "-N", "-o", "%N").split()
            for name in names:
                self.cluster.run("scontrol", "update", f"NodeName={name}", "State=RESUME",
                                 check=False)  # fmt: skip
            time.sleep(2)
        for result in results:
            result.wrong = compare(result)
        if any(result.wrong for result in results):
            # Once more, later: what was read may have been a reason in passing.
            time.sleep(2.5)
            self._read(results)
            for result in results:
                result.wrong = compare(result)
            self._forgive(results, asks)
        self._cancel(results, before)
        return results

    def _has_run(self, result: Result) -> int:
        """1 for a job that is gone because it has ended already, of whatever."""
        argv = ("sacct", "-nXP", "-j", str(result.job), "-o", "Start,State,ExitCode")
        told = self._query(*argv).strip()
        result.message = f"ended: {told}"
        return int(told[:1].isdigit())

    def _forgive(self, results: list[Result], asks: list[Job]) -> None:
        """What ran when we judged may have ended since.

        slurmctld ends the jobs of an account whose GrpTRESMins or GrpWall is spent, now and then
        (acct_policy_job_time_out). Then the reason must be the one we would name now.
        """
        if not any(result.wrong for result in results):
            return
        now = self.judge(asks, True)
        for result in results:
            same = now[result.island]["reason"] == result.reason
            if result.wrong.startswith("reason") and not result.running and same:
                result.wrong = ""

    def _cancel(self, results: list[Result], before: set[str]) -> None:
        new = {str(r.job) for r in results if r.job is not None}
        if new:
            self.cluster.run("scancel", *sorted(new))
            self.cluster.wait_until(
                lambda: {job for job, *_ in self._jobs("alice")} <= before, what="jobs are gone"
            )

    def _submit(self, island: int, job: Job) -> tuple[Optional[int], str]:
        argv = ["sbatch", "--parsable", "-o/dev/null", *job.argv(island), "--wrap", "sleep 300"]
        done = self.cluster.run_as(job.user, argv, check=False)
        found = re.match(r"(\d+)", done.stdout)
        return (int(found[1]) if found else None), done.stderr.strip()

    def _answer(self, result: Result) -> None:
        result.job, result.message = self._submit(result.island, result.ask)

    def _query(self, *argv: str) -> str:
        """What a query prints; a busy slurmctld may break off a connection."""
        for _ in range(3):
            done = self.cluster.run(*argv, check=False)
            if done.returncode == 0:
                break
            time.sleep(0.5)
        else:
            raise CommandFailed(done.returncode, list(argv), done.stdout, done.stderr)
        return done.stdout

    def _jobs(self, user: str) -> list[tuple[str, str, str]]:
        """(array's or job's id, state, reason), a line an array task."""
        text = self._query("squeue", "-h", "-r", "-u", user, "-o", "%F|%T|%r")
        return [tuple(line.split("|", 2)) for line in text.splitlines()]  # type: ignore[misc]

    def _settled(self, began: float) -> None:
        """Wait until the scheduler has looked at every job of alice's, and a tick more."""

        def looked() -> bool:
            waiting = [r for _, state, r in self._jobs("alice") if state == "PENDING"]
            return not any(reason in WAITING for reason in waiting)

        try:
            self.cluster.wait_until(looked, 12, "every job has a reason")
        except BedError:
            return
        time.sleep(max(0.0, 1.3 - (time.monotonic() - began)))

    def _read(self, results: list[Result]) -> None:
        rows = self._jobs("alice")
        shown = self._query("scontrol", "-o", "show", "job")
        tres = {}
        for line in shown.splitlines():
            found = re.match(r"JobId=(\d+) (?:ArrayJobId=(\d+) )?", line)
            amounts = re.search(r" (?:ReqTRES|TRES)=(\S*)", line)
            if found and amounts and " JobState=PENDING" in line:
                tres[int(found[2] or found[1])] = parse_tres(amounts[1])
        for result in results:
            mine = [(state, reason) for job, state, reason in rows if job == str(result.job)]
            result.running = sum(state != "PENDING" for state, _ in mine)
            if result.job is not None and not mine:
                result.running = self._has_run(result)
            reasons = [reason for state, reason in mine if state == "PENDING"]
            said = reasons[0] if reasons and not result.running else ""
            short = [name for start, name in CLOSED.items() if said.startswith(start)]
            result.reason = short[0] if short else said
            result.tres = tres.get(result.job or 0, {})


def _collect(site: Site, uid: int, options: dict[str, Any]) -> Snapshot:
    snapshot = collect_live(
        site,
        [f"{name}{i}" for i in range(ISLANDS) for name in "ab"],
        [f"{name}{i}" for i in range(ISLANDS) for name in "qr"],
        "alice", uid, 10, time.time(), **options,
    )  # fmt: skip
    if snapshot.troubles:
        raise RuntimeError(f"snapshot: {snapshot.troubles}")
    return snapshot


def _cleared(option: str, value: str) -> str:
    if "TRES" in option:
        names = [part.partition("=")[0] for part in value.split(",")]
        return f"{option}=" + ",".join(f"{name}=-1" for name in names)
    return {"UsageFactor": "UsageFactor=1"}.get(option, f"{option}=-1")


def _judge(snapshot: Snapshot, island: int, job: Job) -> dict[str, Any]:
    wanted = (f"{job.account}{island}", f"{job.qos}{island}")
    policy = Policy((Account("b%d" % island), Account(wanted[0], (wanted[1],))))  # noqa: UP031
    argv = [f"--partition=part{island}", *job.options, "--wrap", "sleep 300"]
    decision = decide(read_request(argv, {}, None), snapshot, (), policy, time.time())
    found = next(c for c in reversed(decision.candidates) if (c.account, c.qos) == wanted)
    return _candidate(found, decision.need)


# -- comparing -----------------------------------------------------------------------------------


def compare(result: Result) -> str:
    """What we disagree in; empty when we agree or have a doubt."""
    ours = result.ours
    if ours["verdict"] == "unknown":
        return ""
    if ours["refused"] != (result.job is None):
        if result.alone and ours["refused"]:
            return ""
        if ours["why"].startswith("partition ") and "node configuration" in result.message:
            return ""  # more than the cluster has: later releases refuse it
        return f"refused: ours {ours['refused']}, sbatch's {result.message!r}"
    if result.job is None:
        if result.alone:
            return ""  # fewer of mine are submitted now: another limit may be the first
        named = re.search(r"\[(\w+)\]", ours["why"])
        if named and named[1] not in result.message:
            return f"refused by {named[1]}, says ours; sbatch says {result.message!r}"
        return ""
    if result.tres:
        wanted = {name: amount for name, amount in ours["tres"].items() if amount}
        if wanted != result.tres:
            return f"TRES: ours {wanted}, Slurm's {result.tres}"
    if result.alone:
        return _compare_alone(result)
    if ours["verdict"] == "not_allowed" or (ours["verdict"] == "never" and ours["doubts"]):
        # It waits for ever; the main and the backfill scheduler may call it differently.
        return "" if result.reason else "it should not have started"
    if ours["reason"] != result.reason:
        return f"reason: ours {ours['reason']!r}, squeue's {result.reason!r}"
    if not ours["reason"] and not result.running:
        return "it should have started"
    if ours["starts"] > result.running:
        return f"starts: ours {ours['starts']}, Slurm's {result.running}"
    return ""


def _compare_alone(result: Result) -> str:
    """Without my own jobs, `waits_mine` starts and `waits_others` does not."""
    verdict = result.ours["verdict"]
    if re.search("GrpWall|(?<!Run)Minutes", result.reason + result.ours["reason"]):
        return ""  # what I cancelled has just been charged
    if verdict in ("fits", "waits_mine") and not result.running:
        return f"{verdict}, but {result.reason} without my other jobs"
    if verdict in ("waits_others", "never") and result.running:
        return f"{verdict}, but it starts without my other jobs"
    return ""


def statistics_of(result: Result, counts: Counter[str]) -> None:
    """Count what was judged, by verdict, by limit kind, and by what decided."""
    ours = result.ours
    counts["verdict " + ours["verdict"]] += 1
    if ours["verdict"] == "unknown":
        why = re.sub(r"\b([a-z]+)\d+\b", r"\1N", ours["why"])
        counts["unknown: " + why[:90]] += 1
        return
    level = {"q": "qos", "r": "qos", "p": "partition qos"}
    for stage, _, kind, tres, where, *_, held in ours["checks"]:
        name = where.rpartition(" ")[2]
        what = level.get(name[0], "assoc") if "qos" in where else "assoc"
        if where.startswith("partition"):
            what = "partition"
        counts[f"{'held  ' if held else 'passed'} {what} {kind}"] += 1
        if tres:
            counts[f"tres {kind} {tres}"] += 1
        if stage == "submit" and kind not in SUBMIT_COUNTS:
            counts[f"strict {kind}"] += 1
    if ours["refused"]:
        named = re.search(r"\[(\w+)\]", ours["why"])
        counts[f"refused by {named[1] if named else ours['why'][:40]}"] += 1
    elif ours["reason"]:
        counts[f"reason {ours['reason']}"] += 1
    for entity, option, value in result.state.limits:
        if option == "Flags":
            for flag in value.split(","):
                counts[f"flag {flag}"] += 1
        elif option in ("LimitFactor", "UsageFactor", "MinPrioThres"):
            counts[f"set {option}"] += 1
        counts[f"set {ENTITIES[entity][0]} {option}"] += 1
    for key, _ in result.state.partition:
        counts[f"partition {key}"] += 1


# -- running -------------------------------------------------------------------------------------


def batch(
    bench: Bench, rng: random.Random, deck: Deck, counts: Counter[str], rounds: int = ROUNDS
) -> Iterator[Result]:
    """One set of islands, and `rounds` questions to each."""
    nodes = min(bench.nodes, 3)
    bench.prepare(generate(rng, nodes, deck))
    counts["states"] += ISLANDS
    for number in range(rounds):
        asks = [ask(rng, nodes) for _ in range(ISLANDS)]
        for result in bench.round(asks, whole=bool(number % 2), alone=number == rounds - 1):
            statistics_of(result, counts)
            yield result


def batches(
    bench: Bench, rng: random.Random, deck: Deck, count: int, counts: Counter[str]
) -> Iterator[Result]:
    """At least `count` judged questions, batch after batch; some go through the command line."""
    done = 0
    while done < count:
        for result in batch(bench, rng, deck, counts):
            done += result.ours["verdict"] != "unknown"
            yield result
        for island in rng.sample(range(ISLANDS), 2 if _has_cli() else 0):
            yield from through_explain(bench, island, ask(rng, 1), counts)


def _has_cli() -> bool:
    """Whether what the command line imports is installed here."""
    return all(importlib.util.find_spec(name) for name in ("click", "yaml", "structlog"))


def explain(cluster: Cluster, island: int, job: Job) -> dict[str, Any]:
    """What ``explain --json`` says of one candidate, run as alice; {} without the command."""
    policy = cluster.home("alice") / "policy.yaml"
    account, qos = f"{job.account}{island}", f"{job.qos}{island}"
    policy.write_text(f"version: 1\naccounts: [{{name: {account}, qos: [{qos}]}}]\ncache: 0\n")
    policy.chmod(0o644)
    # Anew each time: what changes rarely is kept for hours.
    home = Path(tempfile.mkdtemp(dir=cluster.home("alice")))
    os.chown(home, cluster.uid("alice"), -1)
    env = {
        "PYTHONPATH": f"{ROOT}{os.pathsep}{os.pathsep.join(p for p in sys.path if 'site' in p)}",
        "SBATCH_ROUTER_POLICY": str(policy),
        "XDG_RUNTIME_DIR": str(home),
        "XDG_CACHE_HOME": str(home),
    }
    argv = [
        sys.executable, "-c", "import sbatch_router.cli as c; c.main()", "explain", "--json", "--",
        f"--partition=part{island}", *job.options, "--wrap", "sleep 300",
    ]  # fmt: skip
    done = cluster.run_as("alice", argv, env=env, check=False)
    if not done.stdout:
        raise RuntimeError(f"explain: {done.stderr}")
    shown: dict[str, Any] = json.loads(done.stdout)
    return next(c for c in shown["candidates"] if (c["account"], c["qos"]) == (account, qos))


def through_explain(bench: Bench, island: int, job: Job, counts: Counter[str]) -> Iterator[Result]:
    """A disagreement, if the command line says anything else than we do in process."""
    ours = bench.judge([job] * (island + 1), True)[island]
    shown = explain(bench.cluster, island, job)
    counts["explain --json"] += 1
    differs = {k: (ours[k], shown[k]) for k in ("verdict", "reason", "why") if ours[k] != shown[k]}
    if differs:
        result = Result(island, bench.states[island], job, ours)
        result.wrong = f"in process, and explain: {differs}"
        yield result


def reproduce(bench: Bench, state: State, question: Job, island: int, alone: bool) -> Result:
    """One state on one island, one question."""
    states = [State()] * island + [state]
    bench.prepare(states)
    plain = Job("alice", "a", "q", ("-c1", "--mem=10M", "--time=10"))
    return bench.round([plain] * island + [question], alone=alone)[island]


def shrink(bench: Bench, result: Result) -> Result:
    """Drop whatever can be dropped with a disagreement left."""
    progress = True
    while progress:
        progress = False
        state, question = result.state, result.ask
        smaller = [(replace(state, **{name: _without(getattr(state, name), i)}), question)
                   for name in ("limits", "running", "queued", "partition")
                   for i in range(len(getattr(state, name)))]  # fmt: skip
        smaller += [(state, replace(question, options=_without(question.options, i)))
                    for i in range(len(question.options))]  # fmt: skip
        for one, asked in smaller:
            try:
                again = reproduce(bench, one, asked, result.island, result.alone)
            except (BedError, CommandFailed):
                continue
            if again.wrong:
                result, progress = again, True
                break
    return result


def _without(items: tuple[Any, ...], index: int) -> tuple[Any, ...]:
    return items[:index] + items[index + 1 :]


#: Name, nodes, slurm.conf settings, share of the questions.
CLUSTERS: tuple[tuple[str, int, dict[str, Any], float], ...] = (
    ("four nodes", 4, {}, 0.4),
    ("one node, safe", 1, {"AccountingStorageEnforce": "associations,limits,qos,safe"}, 0.35),
    ("two nodes, EnforcePartLimits", 2, {"EnforcePartLimits": "ALL"}, 0.25),
)


def run(
    seed: int, count: int, counts: Counter[str], shrinks: int = 2, only: Optional[int] = None
) -> list[Result]:
    """All clusters; returns the disagreements, the first of each cluster shrunk."""
    wrong: list[Result] = []
    deck = Deck(random.Random(f"{seed} deck"))
    for number, (name, nodes, settings, share) in enumerate(CLUSTERS):
        if only not in (None, number):
            continue
        rng = random.Random(f"{seed} {number}")
        with Cluster.start(spec(nodes, **settings)) as cluster:
            bench = Bench(cluster, nodes)
            found = []
            for result in batches(bench, rng, deck, int(count * share), counts):
                if result.wrong:
                    found.append(result)
                    print(f"-- {name}, seed {seed}: {result.text()}", flush=True)
            for result in found[:shrinks]:
                print(f"-- {name}, seed {seed}, shrunk: {shrink(bench, result).text()}", flush=True)
            wrong += found
    return wrong


def uncovered(counts: Counter[str]) -> list[str]:
    """Limit kinds, flags and partition options that no judged case had."""
    wanted = {f"set qos {option}" for option in _QOS}
    wanted |= {f"set {kind} {option}" for kind in ("account", "user") for option in _ASSOC}
    wanted |= {f"flag {flag}" for flag in FLAGS}
    wanted |= {f"partition {key}" for key in OPEN}
    wanted |= {f"tres GrpTRES {tres}" for tres in TRES}
    judged = {name.split(" ", 1)[1].strip() for name in counts if name[:5] in ("held ", "passe")}
    wanted |= {f"judged {level} {kind}" for level in ("qos", "partition qos") for kind in QOS_KINDS}
    wanted |= {f"judged assoc {kind}" for kind in ASSOC_KINDS}
    there = {name for name, number in counts.items() if number}
    return sorted(wanted - there - {f"judged {name}" for name in judged})


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--cluster", type=int, help="only this of the clusters, from 0")
    parser.add_argument("--shrinks", type=int, default=2, help="disagreements to shrink a cluster")
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    began = time.monotonic()
    wrong = run(options.seed, options.count, counts, options.shrinks, options.cluster)
    for name, number in sorted(counts.items()):
        print(f"{number:6} {name}")
    judged = sum(n for name, n in counts.items() if name.startswith("verdict "))
    missing = uncovered(counts)
    print(f"kinds without a case: {', '.join(missing) or 'none'}")
    print(
        f"{judged - counts['verdict unknown']} verdicts ({counts['verdict unknown']} more unknown)"
        f" over {counts['states']} states, seed {options.seed}, "
        f"{time.monotonic() - began:.0f} s: {len(wrong)} disagreements"
    )
    return bool(wrong or (missing and options.count >= 2000))


if __name__ == "__main__":
    sys.exit(main())
