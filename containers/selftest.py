#!/usr/bin/env python3
"""Boot real clusters in every way they can end, and check that nothing of them is left.

Takes about 15 s once the packages are there; exits 0 when all is well.
"""

from __future__ import annotations

import functools
import os
import pwd
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from slurmbed import BedError, Cluster, procs, registry

CLI = Path(__file__).resolve().parent / "cluster.py"
SMALL: dict[str, Any] = {
    "nodes": {"count": 2, "cpus": 8, "memory": 8000, "gpus": {"a100": 1}},
    "slurm_conf": {"DefMemPerCPU": 100},
    "qos": {"small": {"GrpTRES": "cpu=2", "Flags": ["DenyOnLimit"]}},
    "accounts": {
        "lab": {
            "qos": ["small"],
            "default_qos": "small",
            "users": {"bedtest": {"MaxJobs": 5}, "nobody": {}},
        }
    },
}


def left(entry: registry.Entry) -> list[str]:
    """Return what is left of a cluster that has ended."""
    found = [f"process {pid}" for pid in entry.pids()]
    shown = subprocess.run(["ip", "addr"], capture_output=True, text=True, check=False).stdout
    if entry.address and f"{entry.address}/" in shown:
        found.append(f"address {entry.address}")
    if os.path.exists(entry.directory):
        found.append(entry.directory)
    if registry.find(entry.ident):
        found.append("registry entry")
    used = {name for other in registry.entries() for name in other.users}
    made = registry.made_users()
    names = {record.pw_name for record in pwd.getpwall()}
    found += [f"user {n}" for n in entry.users if n in made and n in names and n not in used]
    return found


def gone(entry: registry.Entry, timeout: float = 0) -> None:
    """Check that a cluster has gone without a trace, within `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while left(entry) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left(entry), left(entry)


def side_by_side() -> None:
    """Two clusters at once, a job of alice on each, and a held job's reason."""
    with Cluster.start() as one, Cluster.start() as two:
        print(f"Slurm {one.release}: booted in {one.boot_seconds:.2f} s, {two.boot_seconds:.2f} s")
        assert one.entry.address != two.entry.address
        for bed in (one, two):
            job = bed.run_as("alice", ["sbatch", "--parsable", "--wrap", "id -un"]).stdout.strip()
            output = bed.home("alice") / f"slurm-{job}.out"
            bed.wait_until(functools.partial(_says, output, "alice\n"))
            assert output.stat().st_uid == bed.uid("alice")
        one.hold("alice", "--account=clive", "--cpus-per-task=1", "--mem=200G")
        held = one.run_as("bob", ["sbatch", "--parsable", "--mem=200G", "--wrap", "true"]).stdout
        assert one.wait_reason(held.strip()) == ("PENDING", "QOSGrpMemLimit")
        told = one.describe()
        assert "QOSGrpMemLimit" in told.partition("--- sacct")[0], told
        assert "--- slurmctld.log\n" in told, told
        print(one.run("scontrol", "show", "assoc_mgr", "flags=qos", "qos=clive").stdout)
        one.scancel_all()
        assert not one.run("squeue", "-h").stdout
        entries = [one.entry, two.entry]
        began = time.monotonic()
    print(f"ended both in {time.monotonic() - began:.2f} s")
    for entry in entries:
        gone(entry)


def _says(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


def changes() -> None:
    """Two nodes; limits, users and slurm.conf changed at run time; the controller stopped."""
    with Cluster.start(SMALL) as bed:
        made = bed.run_as("bedtest", ["srun", "-N2", "-n2", "printenv", "SLURMD_NODENAME"]).stdout
        assert sorted(made.split()) == ["n1", "n2"], made
        refused = bed.run_as("bedtest", ["sbatch", "-c3", "--wrap", "true"], check=False)
        assert refused.returncode, refused
        bed.apply(
            {"qos": {"small": {"GrpTRES": "cpu=4"}}, "accounts": {"lab": {"users": ["news"]}}}
        )
        bed.run_as("bedtest", ["sbatch", "-c3", "--wrap", "true"])
        bed.run_as("news", ["sbatch", "--wrap", "true"])
        bed.pause_controller()
        bed.resume_controller()
        bed.stop_controller()
        assert not bed.controller_answers()
        bed.start_controller()
        bed.reconfigure(DefMemPerCPU=77)
        assert " 77\n" in bed.run("scontrol", "show", "config").stdout
        entry = bed.entry
    gone(entry)
    assert {"nobody", "news"} <= {record.pw_name for record in pwd.getpwall()}


def failed_boot() -> None:
    """A boot that fails names the reason and leaves nothing."""
    before = {entry.ident for entry in registry.entries()}
    words = ""
    try:
        Cluster.start({"slurm_conf": {"SelectType": "select/nonsense"}})
    except BedError as error:
        words = str(error)
    assert "nonsense" in words, words
    mine = {e.ident for e in registry.entries() if e.owner == os.getpid()}
    assert not mine - before


def _starter() -> tuple[subprocess.Popen[bytes], registry.Entry]:
    """Start `cluster.py run` with a command that stays, and return it with its cluster."""
    process = subprocess.Popen([sys.executable, str(CLI), "run", "--", "sleep", "1000"])
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for entry in registry.entries():
            if entry.owner == process.pid and any(map(_is_sleep, entry.pids())):
                return process, entry
        time.sleep(0.05)
    raise AssertionError("cluster.py run did not boot")


def _is_sleep(pid: int) -> bool:
    return procs.program(pid) == "sleep"


def killed_starters() -> None:
    """SIGTERM, Ctrl-C, SIGKILL, and SIGKILL of the guard as well."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
        process, entry = _starter()
        process.send_signal(number)
        process.wait()
        gone(entry, timeout=15)
    process, entry = _starter()
    for pid in entry.pids():
        if b"guard" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)
    process.kill()
    process.wait()
    assert left(entry)
    subprocess.run([sys.executable, str(CLI), "down", entry.directory], check=True)
    gone(entry)


def up_and_down() -> None:
    """`up` stays when its process has ended, `down` ends it."""
    done = subprocess.run([sys.executable, str(CLI), "up"], check=True, capture_output=True)
    script = f"{done.stdout.decode()}\nsinfo -h -o %T"
    shell = subprocess.run(["sh", "-c", script], check=True, capture_output=True, text=True)
    assert shell.stdout.strip() == "idle", shell
    directory = done.stdout.decode().rsplit(" ", 1)[1].strip()
    entry = next(e for e in registry.entries() if e.directory == directory)
    subprocess.run([sys.executable, str(CLI), "down", directory], check=True)
    gone(entry)


def main() -> int:
    """Run all checks."""
    for check in (side_by_side, changes, failed_boot, killed_starters, up_and_down):
        began = time.monotonic()
        check()
        print(f"ok {check.__name__} ({time.monotonic() - began:.1f} s)", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
