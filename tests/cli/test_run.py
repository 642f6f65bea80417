"""run: what becomes of a Snakemake command line, of signals and of exit codes."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from sbatch_router.launch import arguments_at, compose

from .conftest import Cli, until

LIVE = '[{"name": "m"}]'
OURS = "live_accounts=" + LIVE

#: Stands for Snakemake: says what it was called with, and which signals it gets.
FAKE = """\
#!/usr/bin/python3
import json, os, signal, sys, time
told = open(os.environ["TOLD"], "a", buffering=1)
print("argv", json.dumps(sys.argv[1:]), file=told)
print("live", os.environ.get("SBATCH_ROUTER_LIVE_ACCOUNTS"), file=told)
ends = {"INT": 41}
def got(number, frame):
    name = signal.Signals(number).name[3:]
    print("signal", name, file=told)
    if name in os.environ.get("ENDS", "").split(","):
        sys.exit(ends[name])
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
    signal.signal(number, got)
print("blocked", [int(n) for n in signal.pthread_sigmask(signal.SIG_BLOCK, [])], file=told)
print("ready", file=told)
print("its own output")
if os.environ.get("WAIT"):
    time.sleep(float(os.environ["WAIT"]))
sys.exit(int(os.environ.get("RC", "0")))
"""


def line(
    *argv: str, jobs: int = 12, env: dict[str, str] | None = None, cwd: Path | None = None
) -> Any:
    return compose(
        argv, LIVE, jobs, {"HOME": "/nonexistent", **(env or {})}, cwd or Path("/nonexistent")
    )


E = ("-e", "cluster-generic")
J = ("-j", "12")


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ((), (*J, "--config", OURS)),
        (("all",), ("all", *J, "--config", OURS)),
        (("-n", "-p"), ("-n", "-p", *J, "--config", OURS)),
        # -j is there already, in any of its forms.
        (("-j", "3"), ("-j", "3", "--config", OURS)),
        (("-j3",), ("-j3", "--config", OURS)),
        (("-pkj3",), ("-pkj3", "--config", OURS)),
        (("--jobs=3",), ("--jobs=3", "--config", OURS)),
        (("--jobs", "unlimited"), ("--jobs", "unlimited", "--config", OURS)),
        # --cores says how many run on this machine, not how many in Slurm.
        (("--cores", "1"), ("--cores", "1", *J, "--config", OURS)),
        # The user's own config, merged: the last one is what Snakemake reads.
        (("--config", "aa=1", "bb=2", "-p"), ("--config", "aa=1", "bb=2", OURS, "-p", *J)),
        (("-C", "aa=1"), ("--config", "aa=1", OURS, *J)),
        (("--config=aa=1", "-p"), ("--config", "aa=1", OURS, "-p", *J)),
        (("-npC", "aa=1"), ("-np", "--config", "aa=1", OURS, *J)),
        (("-C", "x1=1", "--config", "aa=1"), ("-C", "x1=1", "--config", "aa=1", OURS, *J)),
        (("--config", "-p"), ("--config", OURS, "-p", *J)),
        # A --configfile is something else, and so is a target of that name behind --.
        (("--configfile", "c.yaml"), ("--configfile", "c.yaml", *J, "--config", OURS)),
        (("--", "all", "--config"), (*J, "--config", OURS, "--", "all", "--config")),
        (("--config", "aa=1", "--", "all"), ("--config", "aa=1", OURS, *J, "--", "all")),
        # The user's own live accounts win.
        (("--config", "live_accounts=[]"), ("--config", "live_accounts=[]", *J)),
    ],
)  # fmt: skip
def test_command_lines(argv: tuple[str, ...], expected: tuple[str, ...]) -> None:
    found = line("snakemake", *E, *argv)
    assert found.argv == ("snakemake", *E, *expected)
    assert not found.local


@pytest.mark.parametrize(
    ("argv", "at"),
    [
        (["snakemake", "x"], 1),
        (["/opt/env/bin/snakemake"], 1),
        (["python3.11", "-m", "snakemake", "x"], 3),
        (["conda", "run", "-n", "env", "snakemake", "x"], 5),
        (["env", "A=1", "/usr/bin/python", "-m", "snakemake"], 5),
        (["pixi", "run", "snakemake"], 3),
        (["nextflow", "run", "snakemake"], None),
        (["./run.sh", "snakemake"], None),
        (["python3", "tool.py", "-m"], None),
        (["bash", "-c", "snakemake -n"], None),
    ],
)
def test_which_program(argv: list[str], at: int | None) -> None:
    assert arguments_at(argv) == at


def test_another_programs_arguments_are_untouched() -> None:
    argv = ("nextflow", "run", "main.nf", "--config", "x", "-j")
    found = line(*argv)
    assert (found.argv, found.snakemake, found.jobs) == (argv, False, 0)


def test_no_executor_means_this_machine() -> None:
    found = line("snakemake", jobs=9999)
    assert found.local
    assert found.jobs == len(os.sched_getaffinity(0))
    assert line("snakemake", "-c2").jobs == 0
    assert line("snakemake", "-n").dry
    assert line("snakemake", *E, jobs=9999).jobs == 9999
    assert line("snakemake", *E, jobs=0).jobs == 1


def profile(place: Path, text: str, name: str = "config.yaml") -> Path:
    place.mkdir(parents=True, exist_ok=True)
    (place / name).write_text(text)
    return place


def test_profiles(tmp_path: Path) -> None:
    """A --config on the command line replaces a profile's: ours must bring it along."""
    mine = profile(tmp_path / "mine", "executor: slurm\nconfig: {aa: 1, bb: '2', cc: x}\njobs: 7\n")
    found = line("snakemake", "--profile", str(mine))
    tail = ("--config", "aa=1", "bb='2'", "cc=x", OURS)
    assert found.argv == ("snakemake", "--profile", str(mine), *tail)
    assert (found.jobs, found.local) == (0, False)
    # A later profile, and the workflow's own, override key by key.
    other = profile(tmp_path / "other", "config: ['dd=4']\n")
    both = ("snakemake", "--profile", str(mine), "--profile", str(other))
    assert line(*both).argv[-2:] == ("dd=4", OURS)
    profile(tmp_path / "profiles" / "default", "config: {ee: 5}\n", "config.v8+.yaml")
    assert line(*both, cwd=tmp_path).argv[-2:] == ("ee=5", OURS)
    assert line(*both, "--workflow-profile", "none", cwd=tmp_path).argv[-2:] == ("dd=4", OURS)
    # A command line's own config replaces them all, as ever.
    assert line(*both, "--config", "xx=1").argv[-3:] == ("--config", "xx=1", OURS)


def test_profile_by_environment_and_name(tmp_path: Path) -> None:
    profile(tmp_path / ".config/snakemake/site", "executor: slurm\nconfig: {aa: 1}\n")
    found = line("snakemake", env={"HOME": str(tmp_path), "SNAKEMAKE_PROFILE": "site"})
    assert found.argv == ("snakemake", *J, "--config", "aa=1", OURS)
    broken = profile(tmp_path / "broken", "a: [\n")
    assert "cannot be read" in line("snakemake", "--profile", str(broken)).notes[0]


# -- on a cluster -------------------------------------------------------------------------------


class Fake:
    """alice's `snakemake`, and what it was told."""

    def __init__(self, cli: Cli) -> None:
        self.cli = cli
        self.directory = cli.cluster.directory / "fake"
        self.directory.mkdir(exist_ok=True)
        (self.directory / "snakemake").write_text(FAKE)
        (self.directory / "snakemake").chmod(0o755)
        self.told = cli.cluster.home("alice") / "told"
        self.told.unlink(missing_ok=True)

    def env(self, **more: str) -> dict[str, str]:
        path = f"{self.directory}:{self.cli.env('alice')['PATH']}"
        return {"PATH": path, "TOLD": str(self.told), **more}

    def run(self, *argv: str, **more: str) -> Any:
        return self.cli.run("run", *argv, env=self.env(**more))

    def start(self, *argv: str, **more: str) -> subprocess.Popen[bytes]:
        env = self.cli.env("alice", self.env(**more))
        found: subprocess.Popen[bytes] = self.cli.cluster.popen_as(
            "alice",
            ["sbatch-router", "run", *argv] if not argv[0].startswith("/") else list(argv),
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        until(lambda: self.told.exists() and "ready" in self.told.read_text())
        return found

    def lines(self, kind: str) -> list[str]:
        rows = self.told.read_text().splitlines() if self.told.exists() else []
        return [row.partition(" ")[2] for row in rows if row.startswith(kind + " ")]


@pytest.fixture
def fake(cli: Cli) -> Fake:
    cli.policy()
    return Fake(cli)


JAM = [
    {"name": "clive", "gpu_avail": 1, "cpu_avail": 72, "mem_avail_gb": 56.5},
    {"name": "maigan", "gpu_avail": 4, "cpu_avail": 160, "mem_avail_gb": 625},
]


def test_dry_run_prints_the_line(fake: Fake) -> None:
    fake.cli.cluster.hold("bob", "-A", "clive", "--mem=256G", "-c8")
    done = fake.run("--dry-run", "--", "snakemake", *E, "--config", "my=1", "all's")
    assert done.rc == 0
    words = shlex.split(done.out)
    assert words[:5] == ["snakemake", *E, "--config", "my=1"]
    # 72 CPUs, but the memory of 14 jobs of one CPU (4000 MB each); and 160 on maigan.
    assert words[-2:] == ["-j", "174"]
    (live,) = [word for word in words if word.startswith("live_accounts=")]
    assert json.loads(live[14:]) == JAM
    assert not fake.told.exists()


def test_it_runs_with_what_was_printed(fake: Fake) -> None:
    fake.cli.cluster.hold("bob", "-A", "clive", "--mem=256G", "-c8")
    done = fake.run("--", "snakemake", *E, "-n", RC="3")
    assert (done.rc, done.out) == (3, "its own output\n")
    (argv,) = (json.loads(text) for text in fake.lines("argv"))
    assert argv[:3] == [*E, "-n"]
    assert argv[-2] == "--config"
    assert json.loads(argv[-1][14:]) == JAM
    assert fake.lines("blocked") == ["[]"]
    assert "free now: clive 1 GPU, 72 CPU, 56.5 GB, maigan 4 GPU" in done.err
    assert f"running: snakemake {' '.join(E)} -n" in done.err


def test_slots_of_a_size(fake: Fake) -> None:
    fake.cli.cluster.hold("bob", "-A", "clive", "--mem=256G", "-c8")
    done = fake.run("--dry-run", "--mem=125G", "--gpus=1", "--", "snakemake", *E)
    # Four GPUs on maigan; clive's GPU has no 125 GB beside it.
    assert " -j 4 " in done.out


def test_nothing_available_is_a_hard_failure(fake: Fake) -> None:
    fake.cli.cluster.hold("bob", "-A", "clive", "--mem=200000M", "-c8")
    fake.cli.cluster.hold("alice", "-A", "clive", "--mem=120000M", "-c2")
    fake.cli.cluster.hold("carol", "-A", "maigan", "--mem=640000M", "-c8")
    done = fake.run("--", "snakemake", *E)
    assert (done.rc, done.out) == (75, "")
    assert not fake.told.exists()
    assert "nothing is available: every account is full" in done.err
    rows = [text.split() for text in done.err.splitlines()]
    # account, QOS; TRES, limit, used by others, used by me, queued, free
    assert ["mem", "312.5G", "195.31G", "117.18G", "0", "0"] in [r[:6] for r in rows]
    assert ["mem", "625G", "625G", "0", "0", "0"] in [r[:6] for r in rows]
    assert "held by carol 625G" in done.err
    assert "[QOSGrpMemLimit]" in done.err
    assert "squeue -A clive,maigan" in done.err
    assert fake.run("--dry-run", "--", "snakemake", *E).rc == 75
    # All the same, if one insists.
    done = fake.run("--anyway", "--", "snakemake", *E, RC="4")
    assert done.rc == 4
    assert fake.lines("argv")


def test_a_size_that_fits_nowhere(fake: Fake) -> None:
    fake.cli.cluster.hold("carol", "-A", "maigan", "--mem=600000M", "-c8")
    done = fake.run("--mem=400G", "--", "snakemake", *E)
    assert done.rc == 75
    # clive can never run it.
    assert "GrpTRES mem 312.5G, asked 400G" in done.err


def test_my_own_jobs_fill_it(fake: Fake) -> None:
    fake.cli.cluster.hold("alice", "-A", "clive", "--mem=320000M", "-c2")
    fake.cli.cluster.hold("alice", "-A", "maigan", "--mem=640000M", "-c2")
    done = fake.run("--", "snakemake", *E)
    assert done.rc == 75
    assert "your own jobs hold every account" in done.err


def test_another_program(fake: Fake) -> None:
    done = fake.run(
        "--", "sh", "-c", 'echo "$1"; echo "$SBATCH_ROUTER_LIVE_ACCOUNTS"; exit 7', "-", "-j"
    )
    assert done.rc == 7
    first, second = done.out.splitlines()
    assert first == "-j"
    assert [entry["name"] for entry in json.loads(second)] == ["clive", "maigan"]


def test_programs_that_cannot_be_run(fake: Fake) -> None:
    done = fake.run("--", "nosuch")
    assert done.rc == 127
    assert "nosuch: not found in PATH" in done.err
    done = fake.run("--", "/etc/passwd")
    assert done.rc == 126
    assert fake.run().rc == 2


def test_slurm_is_silent(fake: Fake) -> None:
    """The policy says what then: start without live accounts, or not at all."""
    fake.cli.cluster.pause_controller()
    try:
        done = fake.run("--", "snakemake", *E, RC="5")
        assert done.rc == 5
        assert json.loads(fake.lines("argv")[0]) == list(E)
        assert "started without live accounts" in done.err
        fake.cli.policy("version: 1\naccounts: [clive]\nwhen_slurm_unreachable: refuse\n")
        assert fake.run("--", "snakemake", *E).rc == 69
    finally:
        fake.cli.cluster.resume_controller()


def test_signals(fake: Fake) -> None:
    """SIGINT is passed on once; SIGTERM becomes SIGINT; others as they are."""
    process = fake.start("--", "snakemake", *E, WAIT="20", ENDS="")
    for number in (signal.SIGUSR1, signal.SIGHUP, signal.SIGINT):
        before = len(fake.lines("signal"))
        os.kill(process.pid, number)
        until(lambda count=before: len(fake.lines("signal")) > count)  # type: ignore[misc]
    assert fake.lines("signal") == ["USR1", "HUP", "INT"]
    os.kill(process.pid, signal.SIGTERM)
    until(lambda: len(fake.lines("signal")) > 3)
    assert fake.lines("signal")[3] == "INT"
    # At once again: a supervisor's duplicate, not impatience.
    os.kill(process.pid, signal.SIGTERM)
    time.sleep(1.1)
    assert process.poll() is None
    os.kill(process.pid, signal.SIGTERM)
    _, err = process.communicate(timeout=10)
    assert process.returncode == 128 + signal.SIGKILL
    assert b"another one kills it" in err
    assert b"its jobs stay in Slurm" in err


def test_sigterm_ends_as_sigint_would(fake: Fake) -> None:
    process = fake.start("--", "snakemake", *E, WAIT="20", ENDS="INT")
    os.kill(process.pid, signal.SIGTERM)
    process.communicate(timeout=10)
    assert process.returncode == 41
    assert fake.lines("signal") == ["INT"]


def test_sigterm_is_sigterm_to_other_programs(fake: Fake) -> None:
    script = fake.directory / "other"
    script.write_text(FAKE)
    script.chmod(0o755)
    process = fake.start("--", str(script), WAIT="20")
    os.kill(process.pid, signal.SIGTERM)
    until(lambda: fake.lines("signal") == ["TERM"])
    os.kill(process.pid, signal.SIGTERM)
    os.kill(process.pid, signal.SIGINT)
    until(lambda: "INT" in fake.lines("signal"))
    script.unlink()
    children = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(process.pid)],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.split()
    for child in children:
        os.kill(int(child), signal.SIGKILL)
    process.communicate(timeout=10)
    assert process.returncode == 128 + signal.SIGKILL


def test_ctrl_c_at_a_terminal_reaches_it_once(fake: Fake) -> None:
    import pty

    leader, follower = pty.openpty()
    env = fake.cli.env("alice", fake.env(WAIT="20", ENDS=""))
    code = (
        "import fcntl, os, sys, termios; os.setsid() if os.getpid() != os.getsid(0) else None; "
        "fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
        f"os.execvp('sbatch-router', ['sbatch-router', 'run', '--', 'snakemake', *{E!r}])"
    )
    process = fake.cli.cluster.popen_as(
        "alice", ["/usr/bin/python3", "-c", code], env=env, stdin=follower, stdout=follower,
        stderr=follower,
    )  # fmt: skip
    os.close(follower)
    until(lambda: fake.told.exists() and "ready" in fake.told.read_text())
    os.write(leader, b"\x03")
    until(lambda: fake.lines("signal"))
    time.sleep(0.3)
    assert fake.lines("signal") == ["INT"]
    os.kill(process.pid, signal.SIGTERM)
    time.sleep(1.1)
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(10) == 128 + signal.SIGKILL
    os.close(leader)
