"""A shim installed for the users of the test cluster, and ways to call it and bare sbatch."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sbatch_router import shim as shim_module
from sbatch_router import shimfile

ROOT = Path(__file__).resolve().parents[2]
FAKES = ROOT / "tests" / "fakes"

#: Builds the file beside the shim from the package that will run.
BUILD_HOT = """\
import sys
sys.dont_write_bytecode = True
sys.path[:0] = sys.argv[1:2]
from sbatch_router import hotbuild
with open(sys.argv[2], "wb") as file:
    file.write(hotbuild.build())
"""

#: The seed's lab and no more: two accounts with a limit each.
SEED = """\
version: 1
accounts:
  - {name: clive, qos: [clive]}
  - {name: maigan, qos: [maigan]}
blocked:
  - {account: brusko, reason: throttled since March}
cache: 0
"""

#: Accounts, QOS and users beside the seed's.
EXTRA: dict[str, Any] = {
    "users": {
        "alice": {"default_account": "clive"},
        "tess": {"default_account": "lab-a"},
        "una": {"default_account": "other"},
    },
    "qos": {
        "roomy": {},
        "nogpu": {"GrpTRES": "gres/gpu=0"},
        "submit5": {"MaxSubmitJobsPerUser": 5},
        "typed": {"GrpTRES": "gres/gpu:a100=1"},
        "mem100": {"GrpTRES": "mem=102400"},
        "runmins": {"GrpTRESRunMins": "cpu=1000"},
        "onejob": {"GrpJobs": 1},
        "mingpu": {"MinTRESPerJob": "gres/gpu=1"},
        "wall60": {"MaxWall": "1:00:00"},
        "job4cpu": {"MaxTRESPerJob": "cpu=4"},
        "billing8": {"GrpTRES": "billing=8"},
        "deny4": {"GrpTRES": "cpu=4", "Flags": "DenyOnLimit"},
    },
    "accounts": {
        "other": {"qos": ["roomy"], "default_qos": "roomy", "users": ["alice", "una"]},
        "lab-a": {
            "qos": [
                "nogpu", "submit5", "typed", "mem100", "runmins", "onejob", "mingpu", "wall60",
                "job4cpu", "billing8", "deny4", "roomy",
            ],
            "default_qos": "roomy",
            "users": ["tess", "bob"],
        },
        "lab-b": {"qos": ["roomy", "mem100"], "default_qos": "roomy", "users": ["tess"]},
    },
}  # fmt: skip


class Result(NamedTuple):
    """What a call left: exit status (negative: the signal that ended it) and its output."""

    rc: int
    out: bytes
    err: bytes

    @property
    def job(self) -> str:
        """The job's id, from sbatch's own words."""
        assert self.rc == 0, self
        found = re.fullmatch(rb"Submitted batch job (\d+)\n", self.out)
        assert found, self
        return found[1].decode()

    @property
    def plain(self) -> Result:
        """With job ids replaced, to compare two submissions."""
        return Result(self.rc, _no_ids(self.out), _no_ids(self.err))

    @property
    def lines(self) -> list[str]:
        """Standard error, line by line."""
        return self.err.decode("utf-8", "surrogateescape").splitlines()


def _no_ids(text: bytes) -> bytes:
    text = re.sub(rb"([Jj]ob )\d+", rb"\1N", text)
    text = re.sub(rb"(?m)^\d+(;|$)", rb"N\1", text)
    return re.sub(rb"at \d{4}-\d\d-\d\dT[\d:]+", b"at T", text)


class Bed:
    """The cluster with a shim. Everything is where the cluster's users can read it."""

    def __init__(self, cluster: Any, place: Path) -> None:
        self.cluster = cluster
        self.place = place
        self.python = self._usable_python()
        self.lib = place / "lib"
        self.bin = place / "bin"
        self.fakes = place / "fakes" / "bin"
        self.policies = place / "policies"
        self.scripts = place / "scripts"
        for path in (self.lib, self.bin, self.policies, self.scripts):
            path.mkdir()
        shutil.copytree(FAKES, place / "fakes")
        for path in (place / "fakes").rglob("*"):
            path.chmod(0o755)
        self.make_package(self.lib)
        self.make_shim(self.bin)
        (place / "run").mkdir()
        for user in ("alice", "bob", "carol", "tess", "una"):
            self.private(f"run/{user}", user)
        self.script = self.write_script("job.sh", "#!/bin/sh\nsleep 300\n")

    def _usable_python(self) -> str:
        """An interpreter that the cluster's users can run."""
        for python in (shimfile.python_for_shim(), "/usr/bin/python3"):
            argv = [python, "-IS", "-c", "import sys; sys.exit(sys.version_info < (3, 9))"]
            try:
                done = self.cluster.run_as("alice", argv, check=False)
            except OSError:
                continue
            if done.returncode == 0:
                return python
        pytest.skip("no Python that other users can run; install python3")

    def make_package(self, lib: Path) -> None:
        """Put the package under test and PyYAML into `lib`, compiled."""
        import yaml

        import sbatch_router

        ignore = shutil.ignore_patterns("__pycache__", "*.so")
        for module in (sbatch_router, yaml):
            source = Path(module.__file__).parent
            shutil.copytree(source, lib / source.name, ignore=ignore)
        compileall = [self.python, "-m", "compileall", "-q", str(lib)]
        subprocess.run(compileall, check=True, stdin=subprocess.DEVNULL, cwd="/")

    def make_shim(self, directory: Path, real: str = "", lib: Path | None = None) -> Path:
        """Write a shim as `install-shim` does; `real` is the sbatch that it remembers."""
        directory.mkdir(exist_ok=True, parents=True)
        target, hot, lib = directory / "sbatch", directory / shimfile.HOT, lib or self.lib
        argv = [self.python, "-IS", "-c", BUILD_HOT, str(lib), str(hot)]
        # None of a package that is broken.
        built = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, cwd="/")
        assert built.returncode == 0 or lib != self.lib, built.stderr
        target.write_text(shimfile.text(self.python, [str(lib)], real, str(hot)))
        target.chmod(0o755)
        return target

    def faulty(self, fault: str, *commands: str) -> str:
        """A PATH with the shim in which `commands` fail as tests/fakes/faults/FAULT does."""
        place = self.place / "faulty" / f"{fault}-{'-'.join(commands)}"
        if not place.exists():
            place.mkdir(parents=True)
            for command in commands:
                (place / command).symlink_to(self.place / "fakes" / "faults" / fault)
        return f"{place}:{self.bin}:{self.cluster.env['PATH']}"

    def private(self, name: str, user: str, mode: int = 0o700) -> Path:
        """A directory of a user's own."""
        path = self.place / name
        path.mkdir(exist_ok=True, parents=True)
        path.chmod(mode)
        os.chown(path, self.cluster.uid(user), -1)
        return path

    def write_script(self, name: str, content: str | bytes, mode: int = 0o755) -> Path:
        """A batch script that every user can read."""
        path = self.scripts / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        path.chmod(mode)
        return path

    def policy(self, text: str, name: str = "") -> Path:
        """A policy file that every user can read; the same text is the same file."""
        path = self.policies / (name or f"{abs(hash(text)):x}.yaml")
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
        path.chmod(0o644)
        return path

    def environ(
        self,
        user: str = "alice",
        policy: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        shim: bool = True,
    ) -> dict[str, str]:
        """The variables of one call."""
        found = {"PATH": self.cluster.env["PATH"], "XDG_RUNTIME_DIR": f"{self.place}/run/{user}"}
        if shim:
            found["PATH"] = f"{self.bin}:{found['PATH']}"
        if policy is not None:
            path = self.policy(policy) if isinstance(policy, str) else policy
            found["SBATCH_ROUTER_POLICY"] = str(path)
        found.update(env or {})
        return found

    def popen(
        self,
        argv: Sequence[str | bytes | os.PathLike[str]],
        *,
        user: str = "alice",
        policy: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        shim: bool = True,
        cwd: Path | None = None,
        **options: Any,
    ) -> subprocess.Popen[bytes]:
        """Start any command as a user, with the shim in PATH (or not)."""
        options = {"stdin": subprocess.DEVNULL, "stdout": -1, "stderr": -1, **options}
        return self.cluster.popen_as(
            user, argv, env=self.environ(user, policy, env, shim), cwd=cwd, **options
        )

    def call(
        self,
        argv: Sequence[str | bytes | os.PathLike[str]],
        *,
        input: bytes | None = None,
        timeout: float = 60,
        **options: Any,
    ) -> Result:
        """Run any command to its end, as `popen` starts it."""
        if input is not None:
            options["stdin"] = subprocess.PIPE
        process = self.popen(argv, **options)
        try:
            out, err = process.communicate(input, timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            out, err = process.communicate()
            pytest.fail(f"{argv}: still running after {timeout} s; printed {out!r} {err!r}")
        return Result(process.returncode, out, err)

    def sbatch(self, *args: str | bytes | os.PathLike[str], **options: Any) -> Result:
        """``sbatch ARGS`` through the shim, or bare with ``shim=False``."""
        return self.call(["sbatch", *args], **options)

    def explain(self, *args: str, user: str = "alice", policy: str = SEED, **options: Any) -> Any:
        """What ``explain --json`` says of ``sbatch ARGS``, as that user."""
        code = "import sys; sys.path[:0] = sys.argv.pop(1).split(':'); "
        code += "from sbatch_router.cli import main; main(prog_name='sbatch-router')"
        libraries = f"{self.lib}:{_libraries()}"
        argv = [self.python, "-IS", "-c", code, libraries, "explain", "--json", "--", *args]
        done = self.call(argv, user=user, policy=policy, **options)
        assert done.rc == 0, done
        return json.loads(done.out)

    def show(self, job: str) -> dict[str, str]:
        """The fields of ``scontrol show job``."""
        text = self.cluster.run("scontrol", "-o", "show", "job", job).stdout.splitlines()[0]
        return dict(re.findall(r"(\w[\w:/]*)=(.*?)(?= \w[\w:/]*=|\s*$)", text))

    def where(self, job: str) -> str:
        """``account/qos`` of a job, as slurmctld has it."""
        job_fields = self.show(job)
        return f"{job_fields['Account']}/{job_fields['QOS']}"

    def queue(self) -> list[str]:
        """Every job of everybody: ``id account state``."""
        done = self.cluster.run("squeue", "-h", "-a", "-r", "-o", "%A %a %T", "-S", "i")
        return done.stdout.splitlines()

    def wait_running(self, *jobs: str, timeout: float = 20) -> None:
        """Until every job runs."""
        wanted = set(jobs)

        def running() -> bool:
            done = self.cluster.run("squeue", "-h", "-t", "R", "-o", "%A")
            return wanted <= set(done.stdout.split())

        self.cluster.wait_until(running, timeout, f"jobs {jobs} run: {self.queue()}")

    def state_dir(self, user: str = "alice") -> Path:
        """Where a user's state is."""
        return self.place / "run" / user / "sbatch-router"

    def log(self, user: str = "alice") -> Path:
        """A user's decisions.jsonl."""
        home: Path = self.cluster.home(user)
        return home / ".local" / "state" / "sbatch-router" / "decisions.jsonl"


def _libraries() -> str:
    """Where click lives, for `explain`."""
    import click

    return str(Path(click.__file__).parent.parent)


@pytest.fixture(scope="package")
def bed(cluster: Any) -> Iterator[Bed]:
    """The session's cluster with this directory's accounts and a shim."""
    cluster.apply(EXTRA)
    place = Path(tempfile.mkdtemp(prefix="shimbed-", dir="/tmp"))
    place.chmod(0o755)
    try:
        yield Bed(cluster, place)
    finally:
        shutil.rmtree(place, ignore_errors=True)
        # What alice may use decides what `init` writes for her in other tests.
        cluster.sacctmgr("delete", "user", "alice", "account=other")


@pytest.fixture(autouse=True)
def _no_jobs_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test that uses the cluster begins and ends without jobs."""
    yield
    if "bed" in request.fixturenames:
        bed = request.getfixturevalue("bed")
        bed.cluster.resume_controller()
        if bed.queue():
            bed.cluster.scancel_all()


def until(what: Any, timeout: float = 10.0) -> None:
    """Wait until `what()` is true."""
    deadline = time.monotonic() + timeout
    while not what():
        assert time.monotonic() < deadline, f"not so after {timeout} s"
        time.sleep(0.01)


__all__ = ["FAKES", "SEED", "Bed", "Result", "shim_module", "until"]
