"""The cases of two examples on a real cluster: slurmctld itself has the pools they imagine.

Each case's pools are filled with real jobs and `explain` must decide as the case expects. Then
the call is submitted through the shim, and every other candidate is put to the proof as well: a
job there must start, wait for the reason given, or be refused, as it was judged.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sbatch_router import cases, policyfile, shimfile
from sbatch_router.cases_snapshot import Pool
from sbatch_router.core.candidates import (
    BLOCKED,
    FITS,
    NOT_ALLOWED,
    UNKNOWN_VERDICT,
    WAITS_MINE,
    Candidate,
)
from sbatch_router.core.decide import Decision
from sbatch_router.core.tres import format_tres
from sbatch_router.policy_yaml.findings import Report
from sbatch_router.slurm.options import parse

pytestmark = pytest.mark.cluster

POLICIES = Path(__file__).resolve().parents[2] / "policies"
PROGRAM = Path(sys.executable).parent / "sbatch-router"
EXAMPLES = ("two-investments", "burst")
#: As `cases_snapshot` imagines a node; two of them hold all that these cases run.
NODES = {"count": 2, "cpus": 128, "memory": 2**20, "gpus": {"a100": 4}}
SLEEP = "sleep 300\n"


def read(name: str) -> cases.Cases:
    report = Report(name)
    found = cases.read_cases(policyfile.read(str(POLICIES / f"{name}.cases.yaml")), report)
    assert report.errors == []
    return found


EVERY = [(name, case) for name in EXAMPLES for case in read(name).cases]


def spec(found: cases.Cases) -> dict[str, Any]:
    """A cluster with the accounts, QOS and limits of all cases of a file."""
    pools: dict[tuple[str, str], Pool] = {}
    for case in found.cases:
        for pool in case.pools:
            known = pools.setdefault((pool.account, pool.qos), pool)
            assert known.limits == pool.limits, "one cluster has one set of limits"
            assert pool == Pool(pool.account, pool.qos, *pool[2:6])
    accounts: dict[str, Any] = {}
    for account, qos in pools:
        accounts.setdefault(account, []).append(qos)
    first = next(iter(accounts))
    return {
        "nodes": NODES,
        "partitions": {name: {"DefaultTime": "1:00:00"} for name in found.partitions},
        "slurm_conf": {"DefMemPerCPU": 4096},
        "users": {user: {"default_account": first} for user in ("alice", "bob")},
        "qos": {qos: {"GrpTRES": format_tres(pool.limits)} for (_, qos), pool in pools.items()},
        "accounts": {
            account: {"qos": names, "default_qos": names[0], "users": ["alice", "bob"]}
            for account, names in accounts.items()
        },
    }


class Bed:
    """One example's cluster, with the example as everybody's policy."""

    def __init__(self, name: str, cluster: Any) -> None:
        self.cluster = cluster
        self.policy = cluster.directory / "policy.yaml"
        self.policy.write_text((POLICIES / f"{name}.yaml").read_text())
        self.policy.chmod(0o644)
        self.shim = cluster.directory / "shim"
        shimfile.install(self.shim)
        #: Plain sbatch.
        self.real = shutil.which("sbatch", path=cluster.env["PATH"]) or ""
        self.number = 0
        self.pending: list[Any] = []

    def fresh(self) -> None:
        """Nothing runs, and the next call knows nothing of the last case."""
        self.cluster.scancel_all()
        self.number += 1
        self.run_dir = self.cluster.directory / f"run{self.number}"
        self.run_dir.mkdir(mode=0o700)
        os.chown(self.run_dir, self.cluster.uid("alice"), -1)

    def fill(self, pools: tuple[Pool, ...]) -> None:
        """Real jobs for what the case says is used and pending."""
        for pool in pools:
            for user, tres in (("bob", pool.others), ("alice", pool.mine)):
                if tres:
                    self.cluster.hold(user, *place(pool), *sizes(tres))
        pending = [(pool, tres) for pool in pools for tres in pool.pending]
        self.pending.clear()
        if pending:
            # Whether or not the limits have room for them: there is no node.
            self.nodes("drain", "reason=test")
            for pool, tres in pending:
                self.pending.append(self.bare(*place(pool), *sizes(tres)))

    def let_start(self) -> None:
        """Give the pending jobs their nodes; they start before any that comes later."""
        if self.pending:
            self.nodes("resume")
            wanted = {done.stdout.split()[-1] for done in self.pending}
            running = ("squeue", "-h", "-t", "R", "-o", "%A")
            self.cluster.wait_until(
                lambda: wanted <= set(self.cluster.run(*running).stdout.split())
            )

    def nodes(self, state: str, *more: str) -> None:
        self.cluster.run("scontrol", "update", "nodename=ALL", f"state={state}", *more)

    def env(self, case: cases.Case) -> dict[str, str]:
        return {
            "PATH": f"{self.shim}:{PROGRAM.parent}:{self.cluster.env['PATH']}",
            "XDG_RUNTIME_DIR": str(self.run_dir),
            "SBATCH_ROUTER_POLICY": str(self.policy),
            **case.env,
        }

    def call(self, case: cases.Case, *argv: str) -> Any:
        """``ARGV... SBATCH-ARGUMENTS`` as alice, in a directory with the case's script."""
        if case.script is not None:
            for word in case.argv:
                if word.endswith(".sh"):
                    script = self.cluster.home("alice") / word
                    script.write_bytes(case.script + SLEEP.encode())
                    script.chmod(0o755)
        return self.cluster.run_as("alice", [*argv, *case.argv], env=self.env(case), check=False)

    def bare(self, *options: str, script: str = f"#!/bin/sh\n{SLEEP}") -> Any:
        """Plain sbatch as alice."""
        return self.cluster.run_as("alice", ["sbatch", *options], input=script, check=False)

    def fate(self, done: Any) -> str:
        """What became of a submission: the reason it waits for, empty when it runs."""
        found = re.fullmatch(r"Submitted batch job (\d+)\n", done.stdout)
        assert found, done
        state, reason = self.cluster.wait_reason(found[1], ignore=("None", "", "Priority"))
        assert state in ("RUNNING", "PENDING")
        return "" if state == "RUNNING" else reason

    def where(self, done: Any) -> tuple[str, str]:
        """Account and QOS of what was submitted."""
        job = done.stdout.split()[-1]
        text = self.cluster.run("scontrol", "-o", "show", "job", job).stdout
        found = dict(re.findall(r"(Account|QOS)=(\S+)", text))
        return found["Account"], found["QOS"]

    def submit(self, case: cases.Case, decision: Decision) -> tuple[str, str]:
        """Submit through the shim, which must do as `explain` said; where the job is."""
        done = self.call(case, "sbatch")
        if decision.action == "refuse":
            assert (done.returncode, done.stdout) == (decision.exit_code, "")
            return "", ""
        if decision.action == "pass":
            alone = self.call(case, self.real)
            assert alone.returncode
            assert done.stderr.endswith(alone.stderr)
            assert (done.returncode, done.stdout) == (alone.returncode, alone.stdout)
            return "", ""
        where = self.where(done)
        assert where[0] == decision.account
        if decision.qos:
            assert where[1] == decision.qos
        chosen = next(c for c in decision.candidates if (c.account, c.qos) == where)
        assert self.fate(done) == chosen.reason
        return where

    def prove(self, case: cases.Case, candidate: Candidate) -> None:
        """What was judged of an account that was not chosen is what becomes of a job there."""
        if candidate.verdict in (BLOCKED, NOT_ALLOWED, UNKNOWN_VERDICT):
            return
        at = parse(case.argv).insert
        chosen = (f"--account={candidate.account}", f"--qos={candidate.qos}")
        moved = case._replace(argv=(*case.argv[:at], *chosen, *case.argv[at:]))
        done = self.call(moved, self.real)
        if candidate.refused:
            assert done.returncode
            return
        fate = self.fate(done)
        if candidate.verdict == WAITS_MINE and not candidate.reason:
            # What runs leaves room; my pending jobs, which started first, do not.
            assert fate
        else:
            assert fate == candidate.reason
            assert (fate == "") == (candidate.verdict == FITS)


def place(pool: Pool) -> tuple[str, ...]:
    return "-A", pool.account, "-q", pool.qos


def sizes(tres: dict[str, int]) -> tuple[str, ...]:
    """Options of a job that takes these TRES, and as little else as there is."""
    assert set(tres) <= {"cpu", "mem", "gres/gpu"}
    gpus = (f"--gres=gpu:{tres['gres/gpu']}",) if "gres/gpu" in tres else ()
    return "-N1", "-n1", f"-c{tres.get('cpu', 1)}", f"--mem={tres.get('mem', 1)}M", *gpus


@pytest.fixture(scope="module")
def bed_of() -> Iterator[Callable[[str], Bed]]:
    """Gives the cluster of an example; it is up until another's is asked for."""
    if os.geteuid() != 0:
        pytest.skip("a Slurm cluster needs root: run tests/run as root")
    from cluster import Cluster

    with contextlib.ExitStack() as up:
        beds: dict[str, Bed] = {}

        def get(name: str) -> Bed:
            if name not in beds:
                up.pop_all().close()
                beds.clear()
                beds[name] = Bed(name, up.enter_context(Cluster.start(spec(read(name)))))
            return beds[name]

        yield get


def explained(text: str) -> Decision:
    """The decision that ``explain --json`` printed."""
    data = json.loads(text)
    keys = ("account", "qos", "partition", "verdict", "reason", "why")
    return Decision(
        data["action"],
        data["why"],
        data["account"],
        data["qos"],
        rule=data["rule"],
        exit_code=data["exit_code"],
        notes=tuple(data["notes"]),
        candidates=tuple(
            Candidate(*(one[key] for key in keys), refused=one["refused"])
            for one in data["candidates"]
        ),
    )


@pytest.mark.parametrize(
    ("example", "case"), [pytest.param(n, case, id=f"{n}: {case.name}") for n, case in EVERY]
)
def test_slurmctld_agrees(bed_of: Callable[[str], Bed], example: str, case: cases.Case) -> None:
    bed = bed_of(example)
    bed.fresh()
    bed.fill(case.pools)
    if case.silent:
        bed.cluster.pause_controller()
    try:
        done = bed.call(case, "sbatch-router", "explain", "--json", "--")
    finally:
        bed.cluster.resume_controller()
    assert done.returncode == 0, done
    decision = explained(done.stdout)
    assert list(cases.unmet(decision, case.expect)) == [], done.stdout
    if case.silent:
        return
    bed.let_start()
    submitted = bed.submit(case, decision)
    for one in decision.candidates:
        if (one.account, one.qos) != submitted:
            bed.prove(case, one)
