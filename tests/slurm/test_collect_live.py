"""Collecting from a real cluster: the numbers, what it costs, what is hidden, what is broken."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from convert import oneline

from sbatch_router.core import snapshot as values
from sbatch_router.core.snapshot import Site, Snapshot
from sbatch_router.core.tres import UNKNOWN, Limit

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parents[2]
FAKES = ROOT / "tests" / "fakes" / "faults"
REAL = str(Path(shutil.which("scontrol") or "/usr/bin/scontrol").parent)
PYTHON = shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable

#: Run as a user, in a process of its own, as the shim does it.
PROGRAM = """
import json, os, sys, time
sys.path.insert(0, {package!r})
from sbatch_router.slurm.collect import collect_live, collect_site
ask = json.loads(sys.argv[1])
start = time.monotonic()
site = collect_site(ask["user"], ask["timeout"], ask["sacctmgr"], time.time())
middle = time.monotonic()
for _ in range(ask["between"]):
    sys.stdout.write("ready\\n"); sys.stdout.flush(); sys.stdin.readline()
    middle = time.monotonic()
live = collect_live(site, ask["accounts"], ask["qos"], ask["user"], os.getuid(), ask["timeout"],
                    time.time(), **ask["options"])
end = time.monotonic()
print(repr((site, live, middle - start, end - middle)))
"""


@pytest.fixture(scope="module")
def cluster():
    """A cluster of this module's own, as its configuration is changed here."""
    sys.path.insert(0, str(ROOT / "containers"))
    from cluster import Cluster

    with Cluster.start(ROOT / "containers" / "specs" / "seed.json") as started:
        yield started


@pytest.fixture(scope="module")
def package(cluster):
    """The package where every user may read it."""
    place = cluster.directory / "package"
    shutil.copytree(ROOT / "sbatch_router", place / "sbatch_router", dirs_exist_ok=True)
    return place


@pytest.fixture(autouse=True)
def quiet(cluster):
    """Every test starts without jobs, and leaves the cluster as it found it."""
    cluster.scancel_all()
    yield
    cluster.resume_controller()
    cluster.scancel_all()


@pytest.fixture
def ask(cluster, package):
    """Collect as a user: (site, live, seconds of site, seconds of live)."""

    def run(
        *accounts,
        user="alice",
        qos=(),
        timeout=2.0,
        sacctmgr=5.0,
        env=None,
        between=None,
        **options,
    ):
        request = {
            "user": user,
            "accounts": accounts or ["clive", "maigan"],
            "qos": list(qos),
            "timeout": timeout,
            "sacctmgr": sacctmgr,
            "between": int(between is not None),
            "options": options,
        }
        argv = [PYTHON, "-c", PROGRAM.format(package=str(package)), json.dumps(request)]
        process = cluster.popen_as(user, argv, env=env, stdin=-1, stdout=-1, stderr=-1)
        if between is not None:
            assert process.stdout.readline() == b"ready\n"
            between()
        out, err = process.communicate(b"\n", timeout=60)
        assert err == b""
        assert process.returncode == 0
        names = {**vars(values), "UNKNOWN": UNKNOWN, "Limit": Limit}
        return eval(out.decode(), names)

    return run


def submit(cluster, user, account, *options):
    done = cluster.run_as(
        user, ["sbatch", "--parsable", "-A", account, *options, "--wrap", "sleep 600"]
    )
    return done.stdout.strip()


def wait_running(cluster, *jobs):
    def look():
        out = cluster.run("squeue", "-h", "-O", "JobArrayID:0|,State:0").stdout
        return all(f"{job}|RUNNING" in out.splitlines() for job in jobs)

    cluster.wait_until(look, what="jobs run")


def used(scope, kind, tres):
    return scope.tres[kind][tres].used


def test_the_converter_of_the_recordings_is_right(cluster):
    submit(cluster, "alice", "maigan", "--mem=1000")
    both = [cluster.run("scontrol", *option, "show", "assoc_mgr").stdout for option in ([], ["-o"])]
    assert oneline(both[0]) == both[1]


def test_what_is_used(cluster, ask):
    first = submit(cluster, "alice", "maigan", "--mem=1000", "-c", "4", "--gres=gpu:a100:1")
    second = submit(cluster, "bob", "maigan", "--mem=3000", "-c", "2")
    third = submit(cluster, "bob", "clive", "--mem=5000")
    wait_running(cluster, first, second, third)
    waiting = submit(cluster, "alice", "clive", "--mem=319000")
    assert cluster.wait_reason(waiting)[1] == "QOSGrpMemLimit"
    site, live, _, _ = ask(qos=["Maigan-B"])
    assert site.troubles == live.troubles == ()
    assert (live.user, live.source, live.default_account) == ("alice", "scontrol", "clive")
    assert site.default_account == "clive"
    assert abs(live.taken_at - time.time()) < 10
    assert set(live.qos) == {"clive", "maigan", "maigan-b"}
    maigan = live.qos["maigan"]
    assert maigan.limits.tres["GrpTRES"]["cpu"] == Limit(160, 6)
    assert maigan.limits.tres["GrpTRES"]["mem"] == Limit(640000, 4000)
    assert maigan.limits.tres["GrpTRES"]["gres/gpu"] == Limit(4, 1)
    assert maigan.limits.tres["GrpTRES"]["gres/gpu:a100"] == Limit(None, 1)
    assert maigan.limits.counts["GrpJobs"] == Limit(None, 2)
    assert used(maigan.users["alice"], "MaxTRESPU", "cpu") == 4
    assert used(maigan.accounts["maigan"], "MaxTRESPA", "cpu") == 6
    assert maigan.flags == frozenset()
    assert maigan.limit_factor is None
    assert live.qos["maigan-b"].flags == {"denyonlimit"}
    assert live.qos["maigan-b"].limits.tres["GrpTRES"]["cpu"] == Limit(1440, 0)
    assert live.qos["clive"].limits.tres["GrpTRES"]["mem"] == Limit(320000, 5000)
    assert live.qos["clive"].limits.counts["GrpSubmitJobs"] == Limit(None, 2)
    # Ancestors, and my other accounts, are there; other users are not.
    assert set(live.assocs) == {
        (account, user, "")
        for account, users in {
            "root": [""],
            "dept": [""],
            "clive": ["", "alice"],
            "maigan": ["", "alice"],
            "brusko": ["", "alice"],
        }.items()
        for user in users
    }
    assert used(live.assocs["dept", "", ""].limits, "GrpTRES", "cpu") == 7
    assert used(live.assocs["maigan", "alice", ""].limits, "GrpTRES", "cpu") == 4
    assert live.assocs["maigan", "alice", ""].qos == ("maigan", "maigan-b")
    assert live.assocs["maigan", "alice", ""].default_qos == "maigan"
    assert live.assocs["dept", "", ""].parent == "root"
    assert {job.id: (job.state, job.account, job.reason) for job in live.jobs} == {
        first: ("RUNNING", "maigan", "None"),
        waiting: ("PENDING", "clive", "QOSGrpMemLimit"),
    }
    [pending] = [job for job in live.jobs if job.id == waiting]
    assert pending.tres == {"cpu": 1, "mem": 319000, "node": 1, "billing": 1}
    assert pending.time_limit == 60
    assert live.config.enforce == {"associations", "limits", "qos"}
    assert live.config.def_mem_per_cpu == 4000
    assert live.partitions["main"].default
    assert live.partitions["main"].node_cpus == 256
    assert live.partitions["main"].node_memory == 4194304


def test_everyone(cluster, ask):
    wait_running(cluster, submit(cluster, "bob", "clive", "--mem=5000"))
    _, live, _, _ = ask(everyone=True)
    assert ("clive", "bob", "") in live.assocs
    shown = {"bob", str(cluster.uid("bob"))}
    assert set(live.qos["clive"].users) & shown
    _, live, _, _ = ask()
    assert not set(live.qos["clive"].users) & shown
    assert ("clive", "bob", "") not in live.assocs


def test_pending_arrays(cluster, ask):
    """B64: a row stands for many tasks; long lists of them are not cut."""
    plain = submit(cluster, "alice", "maigan", "--array=0-9%2", "--begin=now+1hour", "--mem=10")
    scattered = ",".join(str(n) for n in range(0, 400, 3) if n % 7)
    odd = submit(cluster, "alice", "maigan", f"--array={scattered}", "--begin=now+1hour")
    step = submit(cluster, "alice", "maigan", "--array=0-30:2%4", "--begin=now+1hour")
    submit(cluster, "alice", "maigan", "--array=1-3", "--hold")
    _, live, _, _ = ask()
    counted = {job.id.partition("_")[0]: (job.tasks, job.tasks_at_once) for job in live.jobs}
    assert counted[plain] == (10, 2)
    assert counted[odd] == (scattered.count(",") + 1, None)
    assert counted[step] == (16, 4)
    assert sum(job.tasks for job in live.jobs) == 10 + scattered.count(",") + 1 + 16 + 3
    submitted = live.assocs["maigan", "alice", ""].limits.counts["GrpSubmitJobs"].used
    assert submitted == sum(job.tasks for job in live.jobs)


def test_variables_that_change_the_answers(cluster, ask):
    job = submit(cluster, "alice", "clive", "--mem=1000")
    wait_running(cluster, job)
    hostile = {
        "SQUEUE_FORMAT": "%i",
        "SQUEUE_FORMAT2": "JobID",
        "SQUEUE_STATES": "PENDING",
        "SQUEUE_ACCOUNT": "nobody",
        "SQUEUE_PARTITION": "none",
        "SQUEUE_QOS": "none",
        "SQUEUE_USERS": "bob",
        "SQUEUE_NAMES": "x",
        "SQUEUE_ARRAY": "1",
        "SQUEUE_PRIORITY": "1",
        "SQUEUE_SORT": "zz",
        "SCONTROL_FUTURE": "1",
        "SLURM_CLUSTERS": "elsewhere",
        "SLURM_TIME_FORMAT": "relative",
        "SLURM_BITSTR_LEN": "8",
        "LC_ALL": "C.UTF-8",
    }
    plain, changed = ask()[:2], ask(env=hostile)[:2]
    assert plain[0]._replace(taken_at=0) == changed[0]._replace(taken_at=0)
    assert changed[1].jobs == plain[1].jobs
    assert [j.id for j in changed[1].jobs] == [job]
    assert changed[1].troubles == ()


# -- what it costs ----------------------------------------------------------------------------


def counted_rpcs(cluster, act):
    cluster.run("sdiag", "--reset")
    act()
    by_type = cluster.run("sdiag").stdout.partition("by message type")[2].partition("by user")[0]
    found = dict(re.findall(r"(\w+) +\( *\d+\) +count:(\d+)", by_type))
    return {name: int(count) for name, count in found.items() if name != "REQUEST_STATS_INFO"}


def test_rpcs(cluster, ask):
    submit(cluster, "alice", "clive", "--mem=1000", "--hold")
    counts = {}

    def between():
        cluster.run("sdiag", "--reset")

    def live(**options):
        ask(between=between, **options)
        text = cluster.run("sdiag").stdout.partition("by message type")[2].partition("by user")[0]
        found = dict(re.findall(r"(\w+) +\( *\d+\) +count:(\d+)", text))
        found.pop("REQUEST_STATS_INFO", None)
        return {name: int(count) for name, count in found.items() if "NODE_REG" not in name}

    counts["jobs"] = live()
    counts["jobs, look first"] = live(look_first=True)
    cluster.scancel_all()
    counts["none, look first"] = live(look_first=True)
    whole = {
        "REQUEST_ASSOC_MGR_INFO": 1,
        "REQUEST_JOB_USER_INFO": 1,
        # squeue's own, whatever it is asked.
        "REQUEST_PARTITION_INFO": 1,
    }
    assert counts == {
        "jobs": whole,
        "jobs, look first": whole,
        "none, look first": {"REQUEST_ASSOC_MGR_INFO": 1},
    }


@pytest.mark.slow
def test_look_first_tells_the_same(cluster, ask):
    assert ask(look_first=True)[1].jobs == ()
    submit(cluster, "alice", "brusko", "--hold")
    [job] = ask("clive", look_first=True)[1].jobs
    assert job.account == "brusko"
    cluster.reconfigure(restart=True, AccountingStorageEnforce="associations,qos")
    try:
        # Without limits slurmctld counts no jobs: then squeue must be asked.
        assert len(ask(look_first=True)[1].jobs) == 1
    finally:
        cluster.reconfigure(restart=True, AccountingStorageEnforce=None)


# -- what is there, and what is hidden --------------------------------------------------------


def test_associations_and_qos_of_every_kind(cluster, ask):
    cluster.apply(
        {
            "qos": {
                "pq": {"GrpTRES": "gres/gpu=3"},
                "lim": {
                    "MaxTRESPerUser": "cpu=8",
                    "MaxJobsPerUser": "3",
                    "MaxSubmitJobsPerUser": "9",
                    "MaxTRESPerAccount": "cpu=16",
                    "MaxWall": "1-00:00:00",
                    "GrpWall": "100",
                    "MinTRESPerJob": "gres/gpu=1",
                    "MaxTRESPerJob": "cpu=4",
                    "GrpTRESMins": "cpu=1000",
                    "GrpTRESRunMins": "cpu=600",
                    "LimitFactor": "2",
                    "Flags": "OverPartQOS,NoReserve",
                    "Priority": "70",
                },
            },
            "accounts": {
                "deep": {"parent": "dept", "qos": ["lim", "clive"], "users": ["alice"]},
                "deeper": {"parent": "deep", "qos": ["lim"], "users": ["alice"]},
            },
        }
    )
    cluster.reconfigure(partitions={"gpu": {"QOS": "pq", "AllowQos": "lim,clive"}})
    try:
        site, live, _, _ = ask("DEEPER", "deep")
        _check_every_kind(cluster, ask, site, live)
    finally:
        cluster.reconfigure(partitions={"gpu": {"QOS": None, "AllowQos": None}})


def _check_every_kind(cluster, ask, site, live):
    assert site.troubles == live.troubles == ()
    # No default of their own: the only QOS, or else (of two) root's default or "normal".
    assert live.assocs["deeper", "alice", ""].default_qos == "lim"
    assert live.assocs["deep", "alice", ""].default_qos == "normal"
    assert live.assocs["deep", "alice", ""].qos in (("lim", "clive"), ("clive", "lim"))
    assert set(live.qos) == {"lim", "normal", "pq"}
    chain = ["deeper", "deep", "dept", "root"]
    assert [live.assocs[name, "", ""].parent for name in chain] == [*chain[1:], ""]
    lim = live.qos["lim"]
    assert lim.flags == {"overpartqos", "noreserve"}
    assert (lim.limit_factor, lim.priority) == (2.0, 70)
    assert lim.users == {}
    assert lim.defaults.tres["MaxTRESPU"] == {"cpu": Limit(8, 0)}
    assert lim.defaults.tres["MaxTRESPA"] == {"cpu": Limit(16, 0)}
    assert lim.defaults.counts["MaxJobsPU"] == Limit(3, 0)
    assert lim.defaults.counts["MaxSubmitJobsPU"] == Limit(9, 0)
    assert lim.defaults.counts["MaxJobsPA"] == Limit(None, 0)
    assert lim.limits.counts["MaxWallPJ"] == Limit(1440, None)
    assert lim.limits.counts["GrpWall"] == Limit(100, 0)
    assert lim.limits.tres["MinTRESPJ"] == {"gres/gpu": Limit(1, None)}
    assert lim.limits.tres["MaxTRESPJ"] == {"cpu": Limit(4, None)}
    assert lim.limits.tres["GrpTRESMins"]["cpu"] == Limit(1000, 0)
    assert lim.limits.tres["GrpTRESRunMins"]["cpu"] == Limit(600, 0)
    # sacctmgr says the same of what does not change.
    for name in ("MinTRESPJ", "MaxTRESPJ"):
        assert site.qos["lim"].limits.tres[name].keys() == lim.limits.tres[name].keys()
    assert site.qos["lim"].limits.counts["MaxWallPJ"].limit == 1440
    assert live.partitions["gpu"].qos == "pq"
    assert live.partitions["gpu"].allow_qos == ("lim", "clive")
    assert live.qos["pq"].limits.tres["GrpTRES"]["gres/gpu"] == Limit(3, 0)
    # A job of mine gives me a row, with the same limits.
    job = submit(cluster, "alice", "deeper", "--gres=gpu:1", "-t", "10")
    wait_running(cluster, job)
    row = ask("deeper")[1].qos["lim"]
    assert row.users["alice"].tres["MaxTRESPU"]["cpu"] == Limit(8, 1)
    assert row.users["alice"].counts["MaxSubmitJobsPU"] == Limit(9, 1)
    assert row.accounts["deeper"].tres["MaxTRESPA"]["cpu"] == Limit(16, 1)
    # Only the partitions named: theirs are the QOS asked for.
    assert set(ask("clive", partitions=["MAIN"])[1].qos) == {"clive"}
    assert set(ask("clive", partitions=["gpu", "none"])[1].qos) == {"clive", "pq"}


def test_the_default_qos_is_what_slurmctld_takes(cluster, ask):
    cluster.apply(
        {
            "qos": {"one": {}, "two": {}},
            "accounts": {
                "only": {"qos": ["one"], "users": ["alice"]},
                "both": {"qos": ["one", "two", "normal"], "users": ["alice"]},
            },
        }
    )
    _, live, _, _ = ask("only", "both")
    for account in ("only", "both", "clive", "maigan"):
        job = submit(cluster, "alice", account, "--hold")
        taken = cluster.run("squeue", "-h", "-j", job, "-O", "QOS:0").stdout.strip()
        assert live.assocs[account, "alice", ""].default_qos == taken


def test_names_that_do_not_exist(cluster, ask):
    _, live, _, _ = ask("clive", "no-such", "a,b", "x y", "", qos=["none", "q[1-2]"])
    assert live.troubles == ()
    assert set(live.qos) == {"clive"}
    assert ("no-such", "", "") not in live.assocs
    assert ("clive", "alice", "") in live.assocs
    _, live, _, _ = ask("no-such", qos=["none"])
    assert live.qos is UNKNOWN
    assert "scontrol show assoc_mgr: no QOS in the answer" in live.troubles
    assert ("no-such", "alice", "") not in live.assocs


def test_a_user_without_the_account(cluster, ask):
    """Carol is in maigan only: no record of hers in clive, though the account's own is there."""
    _, live, _, _ = ask(user="carol")
    assert ("clive", "", "") in live.assocs
    assert ("clive", "carol", "") not in live.assocs
    assert ("maigan", "carol", "") in live.assocs
    assert live.default_account == "maigan"


def test_a_user_without_any_association(cluster, ask):
    site, live, _, _ = ask(user="nobody")
    assert site.assocs is UNKNOWN
    assert site.troubles == ("sacctmgr shows no association of user nobody on this cluster",)
    assert not [key for key in live.assocs if key[1]]


@pytest.mark.parametrize(
    "data", ["jobs", "users", "accounts", "usage", "nodes", "events,reservations", "partitions"]
)
def test_private_data(cluster, ask, data):
    cluster.apply({"accounts": {"dept": {"GrpTRES": "cpu=200"}}})
    job = submit(cluster, "bob", "clive", "--mem=5000", "-c", "2")
    own = submit(cluster, "alice", "clive", "--mem=1000")
    wait_running(cluster, job, own)
    _, plain, _, _ = ask()
    cluster.reconfigure(PrivateData=data)
    try:
        site, live, _, _ = ask()
    finally:
        cluster.reconfigure(PrivateData=None)
        cluster.apply({"accounts": {"dept": {"GrpTRES": "cpu=-1"}}})
    # The pools' totals and my own jobs are never hidden.
    assert {n: q.limits.tres for n, q in live.qos.items()} == {
        n: q.limits.tres for n, q in plain.qos.items()
    }
    assert live.jobs == plain.jobs
    assert live.default_account == "clive"
    # The fair share moves by itself, with time.
    shown, before = (
        {key: one._replace(fairshare=None) for key, one in found.assocs.items()}
        for found in (live, plain)
    )
    assert shown["clive", "alice", ""] == before["clive", "alice", ""]
    assert shown.keys() == before.keys()
    if data == "usage":
        hidden = live.assocs["dept", "", ""]
        assert hidden.limits.tres["GrpTRES"] == {"cpu": Limit(200, UNKNOWN)}
        assert hidden.parent == "root"
        assert live.assocs["clive", "", ""].limits.tres["GrpTRES"] == {}
        assert live.troubles == ("slurmctld hides what account dept uses (PrivateData=usage)",)
    elif data == "partitions":
        assert live.partitions is UNKNOWN
        assert "Access/permission denied" in live.troubles[0]
    elif data == "nodes":
        assert live.partitions["main"].node_memory is None
        assert live.troubles == ()
    else:
        assert shown == before
        assert live.troubles == ()
    assert site.qos.keys() == live.qos.keys() | site.qos.keys()


# -- what is broken ---------------------------------------------------------------------------


def nothing_known(live):
    return live.qos is live.assocs is live.jobs is UNKNOWN


@pytest.mark.slow
def test_a_frozen_controller(cluster, ask):
    """B66: two seconds, not the ten that scontrol tries."""
    _, live, _, seconds = ask(between=cluster.pause_controller)
    assert 2.0 <= seconds <= 2.2
    assert nothing_known(live)
    assert live.troubles == (
        "scontrol did not answer within 2 s",
        "squeue did not answer within 2 s",
    )
    _, live, _, seconds = ask(between=cluster.pause_controller, look_first=True, timeout=0.5)
    assert 0.5 <= seconds <= 0.7
    assert live.jobs is UNKNOWN


def test_a_controller_that_is_gone(cluster, ask):
    cluster.stop_controller(kill=True)
    try:
        site, live, site_seconds, seconds = ask(timeout=1.0)
    finally:
        cluster.start_controller()
    assert seconds <= 1.2
    assert site_seconds <= 1.3
    assert nothing_known(live)
    assert site.config is site.partitions is UNKNOWN
    assert site.troubles[0] == "scontrol did not answer within 1 s"
    # slurmdbd is another daemon: what it knows is there.
    assert ("clive", "alice", "") in site.assocs


def test_slurmdbd_is_gone(cluster, ask):
    pids = [p for p in cluster.entry.pids() if _program(p) == "slurmdbd"]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        site, live, seconds, _ = ask(sacctmgr=0.5)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    assert pids
    assert seconds <= 1.0
    assert site.assocs is site.qos is site.default_account is UNKNOWN
    assert site.troubles == ("sacctmgr did not answer within 0.5 s",)
    # What slurmctld knows is there, the ancestors as well.
    assert {key for key in live.assocs if not key[1]} == {
        (name, "", "") for name in ("clive", "maigan", "dept", "root")
    }
    assert live.assocs["clive", "alice", ""].qos is UNKNOWN
    assert live.qos is UNKNOWN or all(q.flags is UNKNOWN for q in live.qos.values())
    assert live.default_account == "clive"


def _program(pid):
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


@pytest.fixture
def fake(cluster, tmp_path_factory):
    """A PATH whose `name` is one of the fakes; everything else is real."""

    def make(**fakes):
        place = cluster.directory / f"fakes-{len(list(cluster.directory.iterdir()))}"
        place.mkdir(mode=0o755)
        for name, behaviour in fakes.items():
            shutil.copy(FAKES / behaviour, place / name)
        return {"PATH": f"{place}:{cluster.env['PATH']}", "FAKE_REAL": REAL}

    return make


def test_silent_scontrol(ask, fake):
    """B01: nothing, with status 0, is no answer."""
    site, live, _, _ = ask(env=fake(scontrol="silent"))
    assert site.config is site.partitions is live.qos is live.assocs is UNKNOWN
    assert "scontrol show config: the answer was empty" in site.troubles
    assert "scontrol show assoc_mgr: the answer was empty" in live.troubles
    assert live.jobs == ()


def test_silent_sacctmgr(ask, fake):
    """B01."""
    site, live, _, _ = ask(env=fake(sacctmgr="silent"))
    assert site.assocs is site.qos is site.default_account is UNKNOWN
    assert "sacctmgr show assoc: the answer was empty" in live.troubles
    assert live.assocs["clive", "alice", ""].qos is UNKNOWN
    assert live.assocs["clive", "alice", ""].default_qos is UNKNOWN


def test_silent_squeue(ask, fake):
    _, live, _, _ = ask(env=fake(squeue="silent"))
    assert live.jobs is UNKNOWN
    assert live.troubles == ("squeue: the answer was empty",)
    assert isinstance(live.qos, dict)


@pytest.mark.parametrize("status", ["0", "1"])
def test_errors_with_and_without_a_status(ask, fake, status):
    """B66."""
    fakes = fake(scontrol="socket-timed-out", squeue="socket-timed-out")
    site, live, _, _ = ask(env={**fakes, "FAKE_STATUS": status})
    assert site.config is UNKNOWN
    assert nothing_known(live)
    said = "(slurm_load_jobs error: Socket timed out on send/recv operation)"
    assert all(said in trouble for trouble in live.troubles)


@pytest.mark.parametrize("size", ["20", "700", "3000"])
def test_half_an_answer_then_silence(ask, fake, size):
    """B66."""
    fakes = fake(scontrol="half-then-stall", squeue="half-then-stall")
    _, live, site_seconds, seconds = ask(env={**fakes, "FAKE_BYTES": size}, timeout=0.5)
    assert nothing_known(live)
    assert site_seconds <= 0.8
    assert seconds <= 0.7


def test_commands_that_are_not_there(cluster, ask):
    site, live, _, _ = ask(env={"PATH": "/nonexistent"})
    assert nothing_known(live)
    assert "scontrol was not found in PATH" in live.troubles
    assert "sacctmgr was not found in PATH" in site.troubles


def test_a_release_without_a_column(ask, fake):
    """B29: the columns a sacctmgr prints by itself are taken; what is not there is unknown."""
    site, live, _, _ = ask(env=fake(sacctmgr="unknown-field"))
    assert site.troubles == ()
    assert site.qos["maigan-b"].flags == {"denyonlimit"}
    assert live.qos["clive"].limit_factor is UNKNOWN
    assert live.qos["clive"].defaults.counts["MaxJobsPU"] == Limit(None, 0)


def test_types(ask):
    site, live, _, _ = ask()
    assert isinstance(site, Site)
    assert isinstance(live, Snapshot)
