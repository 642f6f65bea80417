"""pyslurm as a source: what a broken one does to a submission (B34), and the choice of source.

The broken ones are fakes, since no real pyslurm can be made to fail at will. The real one is in
the 26.05 image: here it is asked for what it is, in tests/oracle/test_sources_agree.py for all
that it tells.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sbatch_router import shimfile
from sbatch_router.core.snapshot import Site
from sbatch_router.core.tres import UNKNOWN, Limit
from sbatch_router.slurm import pyslurm_child
from sbatch_router.slurm.pyslurm_source import (
    PYSLURM,
    SCONTROL,
    Probe,
    choose_source,
    collect_pyslurm,
    probe_pyslurm,
    snapshot_of,
)

POLICY = """\
version: 1
accounts: [maigan, clive]
rules:
  - {name: all, order: [listed]}
source: pyslurm
cache: 0
"""
SITE = Site(0.0, "alice", UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN)

#: What the module does when it is imported, and what is said of it.
BROKEN = {
    "exits": ("import os; os._exit(1)", "ended with status 1"),
    "exits well": ("import os; os._exit(0)", "ended without an answer"),
    "prints and exits": ("import os; os.write(1, b'x' * 99); os._exit(0)", "without an answer"),
    "raises": ("raise ImportError('libslurm.so.44: cannot open')", "libslurm.so.44: cannot open"),
    "sleeps": ("import time; time.sleep(60)", "did not answer within"),
    "ignores signals": (
        "import signal, time\nfor s in (15, 2, 1): signal.signal(s, 1)\ntime.sleep(60)",
        "did not answer within",
    ),
    "crashes": ("import os; os.kill(os.getpid(), 11)", "killed by signal 11"),
    "empty": ("", "AttributeError"),
    "another release": (
        """
__version__ = "25.11.2"
class PyslurmError(Exception): pass
def slurm_api_version(): return (26, 5, 5)
""",
        "pyslurm 25.11.2 is not made for Slurm 26.5.5",
    ),
    "noisy": ("print('tres' * 999)\nraise RuntimeError('no')", "RuntimeError: no"),
}


def package_with(place, body):
    """A copy of our package with a pyslurm beside it; None: without one."""
    import yaml

    import sbatch_router

    lib = place / "lib"
    ignore = shutil.ignore_patterns("__pycache__", "*.so")
    for module in (sbatch_router, yaml):
        source = Path(module.__file__).parent
        shutil.copytree(source, lib / source.name, ignore=ignore)
    if body is not None:
        (lib / "pyslurm").mkdir()
        (lib / "pyslurm" / "__init__.py").write_text(body + "\n")
    return lib


def ask_copy(lib, code):
    """Run code with the copy, in a process of its own, as the shim does."""
    program = f"import sys; sys.path[:0] = [{str(lib)!r}]\n{code}"
    argv = [sys.executable, "-IS", "-c", program]
    return subprocess.run(argv, capture_output=True, text=True, timeout=30, check=True).stdout


@pytest.mark.parametrize("name", BROKEN)
def test_probe_says_what_is_wrong(tmp_path, name):
    body, said = BROKEN[name]
    lib = package_with(tmp_path, body)
    code = "from sbatch_router.slurm.pyslurm_source import probe_pyslurm\n"
    began = time.monotonic()
    trouble = ask_copy(lib, code + "print(probe_pyslurm(1.0).trouble)")
    assert said in trouble
    assert len(trouble) < 300
    assert time.monotonic() - began < 5


def test_without_pyslurm(tmp_path):
    lib = package_with(tmp_path, "raise ModuleNotFoundError(\"No module named 'pyslurm'\")")
    code = "from sbatch_router.slurm.pyslurm_source import probe_pyslurm\n"
    assert "No module named 'pyslurm'" in ask_copy(lib, code + "print(probe_pyslurm(5.0).trouble)")


def test_no_process_is_left(tmp_path):
    """A pyslurm that started something is killed with it."""
    body = (
        "import os, time\nif os.fork() == 0: os.execvp('sleep', ['sleep', '61.7'])\ntime.sleep(60)"
    )
    lib = package_with(tmp_path, body)
    code = "from sbatch_router.slurm.pyslurm_source import probe_pyslurm\n"
    ask_copy(lib, code + "probe_pyslurm(0.5)")
    time.sleep(0.1)
    found = subprocess.run(["ps", "-eo", "stat,args"], capture_output=True, text=True, check=True)
    lines = [line for line in found.stdout.splitlines() if line.endswith("sleep 61.7")]
    assert [line for line in lines if not line.startswith("Z")] == []


def test_unusable_answers_are_unknown(tmp_path):
    found = collect_pyslurm(SITE, ["a"], [], "alice", 1000, 5, 1.0, python="/bin/false")
    assert (found.qos, found.assocs, found.jobs) == (UNKNOWN, UNKNOWN, UNKNOWN)
    assert "ended with status 1" in found.troubles[-1]
    assert found.source == PYSLURM


GOOD = Probe("", "26.5.0", "26.5.5", ())


@pytest.mark.parametrize(
    ("wanted", "probe", "source", "why"),
    [
        ("auto", GOOD, SCONTROL, "costs less"),
        ("auto", Probe("broken"), SCONTROL, "costs less"),
        ("scontrol", GOOD, SCONTROL, "the policy asks"),
        ("pyslurm", GOOD, PYSLURM, "the policy asks"),
        ("pyslurm", Probe("pyslurm: gone"), SCONTROL, "pyslurm: gone"),
    ],
)
def test_choice(wanted, probe, source, why):
    choice = choose_source(wanted, probe)
    assert choice.source == source
    assert why in choice.why


@pytest.mark.parametrize(
    ("text", "count"), [("5", 1), ("5,7", 2), ("0-3", 4), ("0-20:5", 5), ("1,4-6%2", 4)]
)
def test_tasks(text, count):
    assert pyslurm_child._count_tasks(text) == count


def answer(groups, qos=None):
    """What the child tells of one account and QOS called lab."""
    none = {"tres": {}, "counts": {"GrpJobs": None}, "priority": 0}
    limits = {
        "tres": {"GrpTRES": {"cpu": 8}, "GrpTRESMins": {"cpu": 100}, "MaxTRESPU": {}},
        "counts": {"GrpJobs": 0, "GrpSubmitJobs": 9, "GrpWall": 5},
        "priority": 0,
    }
    account = {
        "cluster": "c",
        "account": "Lab",
        "user": "",
        "partition": "",
        "parent": "root",
        "qos": (),
        "tres": {"GrpTRES": {"cpu": 4}},
        "counts": {"GrpJobs": 3},
    }
    return {
        "cluster": "C",
        "tres": ("cpu", "mem", "node"),
        "qos": {"Lab": limits, "other": none},
        "assocs": [account, {**account, "cluster": "elsewhere", "counts": {"GrpJobs": 77}}],
        "groups": groups,
        "jobs": [],
    }


def group(jobs, submitted, nodes, **tres):
    return {"jobs": jobs, "submitted": submitted, "nodes": nodes, "tres": tres}


def test_use_is_the_sum_over_all_users():
    found = answer(
        {
            ("lab", 1000, "lab", "p"): group(2, 3, ("n1", "n2"), cpu=4, node=2),
            ("LAB", 1001, "Lab", "p"): group(1, 1, ("n2",), cpu=2, node=1),
            ("lab", 1001, "other", "p"): group(1, 1, ("n3",), cpu=1, node=1),
        }
    )
    snapshot = snapshot_of(found, SITE, ["lab"], ["lab"], "alice", 1000, 5.0)
    lab = snapshot.qos["lab"]
    assert lab.limits.tres["GrpTRES"]["cpu"] == Limit(8, 6)
    assert lab.limits.tres["GrpTRES"]["mem"] == Limit(None, 0)
    # Two jobs on one node use one node.
    assert lab.limits.tres["GrpTRES"]["node"] == Limit(None, 2)
    assert lab.limits.counts["GrpJobs"] == Limit(0, 3)
    assert lab.limits.counts["GrpSubmitJobs"] == Limit(9, 4)
    assert lab.users["alice"].tres["MaxTRESPU"]["cpu"] == Limit(None, 4)
    account = snapshot.assocs["lab", "", ""]
    assert account.limits.tres["GrpTRES"]["cpu"] == Limit(4, 7)
    assert account.limits.counts["GrpJobs"] == Limit(3, 4)
    assert snapshot.taken_at == 5.0


def test_what_cannot_be_counted_is_unknown_and_never_zero():
    snapshot = snapshot_of(answer({}), SITE, ["lab"], ["lab"], "alice", 1000, 5.0)
    limits = snapshot.qos["lab"].limits
    assert limits.tres["GrpTRESMins"]["cpu"] == Limit(100, UNKNOWN)
    assert limits.counts["GrpWall"] == Limit(5, UNKNOWN)
    # pyslurm tells nothing of these, and neither does this Site.
    assert "MinPrioThresh" not in limits.counts
    assert "MaxTRESPA" not in snapshot.qos["lab"].accounts["lab"].tres
    assert "GrpTRESRunMins" not in snapshot.assocs["lab", "", ""].limits.tres
    assert snapshot.qos["lab"].flags is UNKNOWN


def test_a_pending_job_with_several_qos_makes_their_submitted_jobs_unknown():
    found = answer({("lab", 1000, "lab,other", "p"): group(0, 1, ())})
    snapshot = snapshot_of(found, SITE, ["lab"], ["lab", "other"], "alice", 1000, 5.0)
    assert snapshot.qos["lab"].limits.counts["GrpSubmitJobs"] == Limit(9, UNKNOWN)
    assert snapshot.qos["lab"].limits.counts["GrpJobs"] == Limit(0, 0)


def test_where_qos_lists_are_possible_submitted_jobs_are_unknown():
    found = answer({("lab", 1000, "lab", "p"): group(1, 1, (), cpu=1)})
    found["assocs"][0]["qos"] = ("lab", "other")
    snapshot = snapshot_of(found, SITE, ["lab"], ["lab", "other"], "alice", 1000, 5.0)
    for name, jobs in (("lab", 1), ("other", 0)):
        counts = snapshot.qos[name].limits.counts
        assert counts["GrpJobs"].used == jobs
        if name == "lab":
            assert counts["GrpSubmitJobs"] == Limit(9, UNKNOWN)


def test_associations_that_pyslurm_cannot_read_are_unknown_without_a_site():
    found = {**answer({}), "assocs": None}
    snapshot = snapshot_of(found, SITE, ["lab"], ["lab"], "alice", 1000, 5.0)
    assert snapshot.assocs is UNKNOWN


# -- on a real cluster -------------------------------------------------------------------------


@pytest.fixture
def shim(cluster, clean, tmp_path_factory):
    """A function: submit as alice with a shim whose pyslurm is `body`; the seconds it took."""
    place = Path(str(cluster.directory)) / f"pyslurm{time.time_ns()}"
    place.mkdir(mode=0o755)
    run = place / "run"
    run.mkdir(mode=0o700)
    os.chown(run, cluster.uid("alice"), -1)
    policy = place / "policy.yaml"
    policy.write_text(POLICY)
    policy.chmod(0o644)

    def submit(body, *args):
        if body is not None:
            lib = package_with(place / "pkg", body)
            text = shimfile.text("/usr/bin/python3", [str(lib)], "")
            (place / "sbatch").write_text(text)
            (place / "sbatch").chmod(0o755)
        env = {"SBATCH_ROUTER_POLICY": str(policy), "XDG_RUNTIME_DIR": str(run)}
        began = time.monotonic()
        argv = [place / "sbatch", "--hold", "--output=/dev/null", "--wrap", "true", *args]
        done = cluster.run_as("alice", argv, env=env, check=False)
        return done, time.monotonic() - began

    yield submit
    shutil.rmtree(place)


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.parametrize("name", ["exits", "raises", "sleeps", "crashes", "another release"])
def test_B34_a_broken_pyslurm_never_harms_a_submission(cluster, shim, name):
    body, said = BROKEN[name]
    done, seconds = shim(body)
    assert done.returncode == 0, done.stderr
    job = done.stdout.split()[-1]
    # The answer is scontrol's: the job goes to the first account of the policy.
    shown = cluster.run("scontrol", "-o", "show", "job", job).stdout
    assert "Account=maigan" in shown
    lines = done.stderr.splitlines()
    assert [line for line in lines if said in line and "asked scontrol instead" in line]
    assert len(lines) <= 2
    # At worst one time-out of 2 s, and what a submission takes anyway on a busy machine.
    assert seconds < 8
    # It is not tried again with each submission.
    again, seconds = shim(None)
    assert again.returncode == 0
    assert "pyslurm" not in again.stderr
    assert seconds < 2.5


def need_pyslurm():
    """Skip unless it is installed; importing it here may end pytest."""
    try:
        importlib.metadata.version("pyslurm")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("pyslurm is not installed here: `containers/image test testing` has it")


@pytest.mark.cluster
def test_the_real_pyslurm_is_used_where_the_policy_asks_for_it(
    cluster, clean, policy_file, run_dir
):
    need_pyslurm()
    import sbatch_router

    package = str(Path(sbatch_router.__file__).parent.parent)
    code = "import sys; sys.path[:0] = [sys.argv.pop(1)]; "
    code += "from sbatch_router.cli import main; main(prog_name='sbatch-router')"
    env = {
        "SBATCH_ROUTER_POLICY": str(policy_file(POLICY)),
        "XDG_RUNTIME_DIR": str(run_dir("alice")),
    }
    argv = [sys.executable, "-I", "-c", code, package, "explain", "--json", "--", "--mem=1G", "x"]
    cluster.hold("bob", "--account=maigan", "--mem=100G", "--cpus-per-task=3")
    (cluster.home("alice") / "x").write_text("#!/bin/sh\n")
    told = json.loads(cluster.run_as("alice", argv, env=env).stdout)
    assert told["snapshot"]["source"] == "pyslurm", told
    used = {
        (limit["where"], limit["tres"]): limit["used"]
        for candidate in told["candidates"]
        for limit in candidate["limits"]
    }
    assert used["qos maigan", "mem"] == 102400
    assert used["qos maigan", "cpu"] == 3


@pytest.mark.cluster
def test_the_real_pyslurm_tells_what_it_is(cluster, tmp_path):
    need_pyslurm()
    env = {key.encode(): value.encode() for key, value in cluster.env.items()}
    probe = probe_pyslurm(20, env=env)
    assert probe.trouble == ""
    assert probe.hidden == ()
    assert probe.slurm == f"{cluster.release[0]}.{cluster.release[1]:02d}"
    # A slurm.conf that libslurm cannot read ends the process; for one that is not there it
    # waits a minute.
    conf = tmp_path / "slurm.conf"
    conf.write_text("NoSuchKey=1\n")
    env[b"SLURM_CONF"] = bytes(conf)
    assert "ended with status 1" in probe_pyslurm(20, env=env).trouble
    env[b"SLURM_CONF"] = b"/nonexistent/slurm.conf"
    assert "did not answer within 1 s" in probe_pyslurm(1, env=env).trouble
