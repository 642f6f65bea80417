"""The cluster itself: boot, use, change, end."""

from __future__ import annotations

import atexit
import contextlib
import os
import pwd
import re
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Callable, ClassVar, Union

from . import accounting, conf, guard, packages, procs, registry
from . import spec as specs
from .daemons import Daemons
from .errors import BedError, CommandFailed

Completed = subprocess.CompletedProcess[str]
Input = Union[str, bytes, None]


class Cluster:
    """A running Slurm cluster; start one with `Cluster.start`, end it with `stop` or `with`."""

    #: Those that this process has started and not stopped.
    running: ClassVar[list[Cluster]] = []

    def __init__(
        self,
        spec: specs.Spec,
        entry: registry.Entry,
        layout: conf.Layout,
        watch: subprocess.Popen[bytes],
    ) -> None:
        self.spec = spec
        self.entry = entry
        self.layout = layout
        self.release = packages.release()
        self.boot_seconds = 0.0
        self._overrides: specs.Options = {}
        self._daemons = Daemons(layout, entry.ident, timeout=60.0)
        self._guard = watch
        # 24.11's slurmctld now and then sleeps 5 s over a request when they come faster
        self._poll = 0.1 if (23, 11) <= self.release < (25, 11) else 0.02
        self._stopped = False

    # -- life ----------------------------------------------------------------------------------

    @classmethod
    def start(
        cls,
        spec: specs.SpecLike = None,
        directory: str | os.PathLike[str] | None = None,
        *,
        keep: bool = False,
        beside: Cluster | None = None,
    ) -> Cluster:
        """Boot a cluster and wait until it takes jobs; packages are installed when missing.

        `spec` is a dict, a JSON file or None for the seed's lab. `directory` must be empty or
        absent; its parents must let every user through. With `keep` the cluster outlives this
        process, else it ends with it. `beside` another one, under a name of its own, it shares
        that one's slurmdbd, so that each reaches the other with ``--clusters``; end it first.
        Raises BedError, with nothing left behind.
        """
        began = time.monotonic()
        checked = specs.parse(specs.load(spec))
        packages.ensure()
        if os.geteuid() != 0:
            raise BedError("a cluster needs root, since its jobs run as several unix users")
        registry.sweep()
        entry = _new_entry(directory)
        try:
            self = cls._prepare(checked, entry, beside.layout if beside else None)
            self._boot()
        except BaseException:
            registry.destroy(entry)
            raise
        if keep:
            entry.owner = 0
            registry.save(entry)
        else:
            atexit.register(self._stop_at_exit)
        self.boot_seconds = time.monotonic() - began
        cls.running.append(self)
        return self

    @classmethod
    def _prepare(
        cls, spec: specs.Spec, entry: registry.Entry, beside: conf.Layout | None
    ) -> Cluster:
        """Take what the cluster needs of the machine and write its files."""
        with registry.lock():
            registry.save(entry)
            watch = guard.start(entry)
            registry.take_network(entry, 2 + len(spec.node_names))
            registry.take_users(entry, list(spec.users))
        ctld, dbd, *nodes = entry.ports
        layout = conf.Layout(Path(entry.directory), entry.address, ctld, dbd, tuple(nodes), beside)
        self = cls(spec, entry, layout, watch)
        for name in ("etc", "log", "state", "spool", "home"):
            (layout.root / name).mkdir(mode=0o755)
        self._write_files()
        self._make_homes(spec.users)
        return self

    def _write_files(self) -> None:
        etc = self.layout.etc
        secret = etc / "slurmdbd.conf"
        secret.touch(mode=0o600)
        secret.write_text(conf.slurmdbd_conf(self.layout), encoding="utf-8")
        self._write_conf()
        (etc / "gres.conf").write_text(conf.gres_conf(self.layout, self.spec), encoding="utf-8")
        cgroup = conf.cgroup_conf(self.spec, self.release)
        if cgroup:
            (etc / "cgroup.conf").write_text(cgroup, encoding="utf-8")
        for kinds in conf.gpu_files(self.layout, self.spec).values():
            for path in (file for _, files in kinds for file in files):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()

    def _write_conf(self) -> None:
        text = conf.slurm_conf(self.layout, self.spec, self._overrides)
        (self.layout.etc / "slurm.conf").write_text(text, encoding="utf-8")

    def _make_homes(self, users: Iterable[str]) -> None:
        for user in users:
            home = self.home(user)
            if not home.exists():
                home.mkdir(mode=0o700)
                record = pwd.getpwnam(user)
                os.chown(home, record.pw_uid, record.pw_gid)

    def _boot(self) -> None:
        known = accounting.Known()
        if self.layout.beside is None:
            self._daemons.start_munge()
            self._daemons.start_mariadb()
            self._daemons.start_slurmdbd()
        else:
            known.qos |= self._known_qos()
        names = [f"add qos {name}" for name in self.spec.qos if name.lower() not in known.qos]
        self._account([f"add cluster {self.spec.cluster}", *names])
        self._daemons.start_slurmctld()
        for node in self.spec.node_names:
            self._daemons.start_slurmd(node)
        self._daemons.wait("slurmd", self._nodes_up)
        self._daemons.wait("slurmctld", self._registered)
        known.qos |= {name.lower() for name in self.spec.qos}
        self._account(accounting.commands(self.spec, known))
        self._daemons.wait("slurmctld", lambda: self._has(self.spec))

    def _registered(self) -> bool:
        """Tell whether slurmdbd knows the controller and the TRES that limits name.

        Before, limits on GPUs are refused, and changes do not reach the controller.
        """
        done = self._tool(
            "sacctmgr", "-nP", "show", "cluster", self.spec.cluster, "format=ControlPort"
        )
        if done.stdout.strip() in ("", "0"):
            return False
        lines = self._tool("sacctmgr", "-nP", "show", "tres", "format=type,name").stdout
        there = {line.lower().replace("|", "/", 1) for line in lines.splitlines()}
        return conf.tracked_tres(self.layout, self.spec) <= there

    def _has(self, part: specs.Spec) -> bool:
        """Tell whether the controller knows a part's QOS and associations."""
        text = self._tool("scontrol", "-o", "show", "assoc_mgr", "flags=qos,assoc").stdout
        return accounting.missing(part, text) == []

    def _nodes_up(self) -> bool:
        done = self._tool("sinfo", "-h", "-N", "-o", "%T")
        states = done.stdout.split()
        return bool(states) and set(states) == {"idle"}

    def stop(self) -> None:
        """End the cluster: no process, file, address or user of its own is left."""
        if self._stopped:
            return
        self._stopped = True
        self.running.remove(self)
        atexit.unregister(self._stop_at_exit)
        registry.destroy(self.entry)
        self._daemons.reap()
        self._guard.poll()

    def _stop_at_exit(self) -> None:
        if os.getpid() == self.entry.owner:
            self.stop()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # -- use -----------------------------------------------------------------------------------

    @property
    def directory(self) -> Path:
        """The cluster's directory."""
        return self.layout.root

    @property
    def env(self) -> dict[str, str]:
        """The variables a client needs; what runs with them ends with the cluster."""
        return {
            "SLURM_CONF": str(self.layout.etc / "slurm.conf"),
            "PATH": packages.PATH,
            procs.MARK: self.entry.ident,
        }

    def uid(self, user: str) -> int:
        """Return a user's uid. Raises BedError for an unknown user."""
        return _record(user).pw_uid

    def home(self, user: str) -> Path:
        """Return a user's home in the cluster's directory."""
        return self.layout.root / "home" / user

    def run_as(
        self,
        user: str,
        argv: Sequence[str | os.PathLike[str]],
        *,
        input: Input = None,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        timeout: float = 60,
        check: bool = True,
    ) -> Completed:
        """Run a command as a user, in a clean environment and by default in the user's home.

        Output is text; bytes that are not UTF-8 become surrogates. On `timeout` (seconds) the
        command's whole process group is killed. Raises CommandFailed when `check` and the
        status is not 0, and subprocess.TimeoutExpired.
        """
        process = self.popen_as(
            user,
            argv,
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL if input is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        return _finish(process, input, timeout, check)

    def popen_as(
        self,
        user: str,
        argv: Sequence[str | os.PathLike[str]],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> subprocess.Popen[bytes]:
        """Start a command as a user, as `run_as` does, and return its Popen (binary pipes)."""
        record = _record(user)
        home = self.home(user)
        self._make_homes([user])
        clean = {"HOME": str(home), "USER": user, "LOGNAME": user, "SHELL": "/bin/bash"}
        groups = os.getgrouplist(user, record.pw_gid)
        return subprocess.Popen(
            list(argv),
            env={**self.env, "LANG": "C.UTF-8", **clean, **(env or {})},
            cwd=home if cwd is None else cwd,
            user=record.pw_uid,
            group=record.pw_gid,
            extra_groups=groups,
            umask=0o022,
            start_new_session=True,
            **options,
        )

    def hold(self, user: str, *options: str) -> int:
        """Give a user a running allocation at once, as salloc with these options; return its id.

        Batch jobs start only when the scheduler next looks, up to a second later. Raises
        CommandFailed when it cannot start now.
        """
        done = self.run_as(user, ["salloc", "--no-shell", "--immediate", *options])
        found = re.search(r"Granted job allocation (\d+)", done.stderr)
        if not found:
            raise BedError(f"salloc: {done.stderr}")
        return int(found[1])

    def run(self, *argv: str, check: bool = True, timeout: float = 60) -> Completed:
        """Run one of Slurm's commands as root. Raises CommandFailed, TimeoutExpired."""
        done = self._tool(*argv, timeout=timeout)
        if check and done.returncode:
            raise CommandFailed(done.returncode, list(argv), done.stdout, done.stderr)
        return done

    def _tool(self, *argv: str, input: str | None = None, timeout: float = 60) -> Completed:
        env = {**self._daemons.env, "SLURM_TIME_FORMAT": "standard"}
        return subprocess.run(
            argv,
            env=env,
            input=input,
            stdin=subprocess.DEVNULL if input is None else None,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            timeout=timeout,
            check=False,
        )

    def describe(self) -> str:
        """Return what tells why something went wrong: squeue, sacct, the daemons' last words."""
        parts = []
        for argv in (
            ["squeue", "-a", "-o", "%.12i %.9u %.9a %.9q %.9P %.11T %r"],
            ["sacct", "-a", "-X", "-o", "jobid,user,account,qos,partition,state,exitcode"],
        ):
            try:
                done = self._tool(*argv, timeout=15)
                lines = (done.stdout + done.stderr).splitlines()
            except subprocess.TimeoutExpired:
                lines = ["no answer within 15 s"]
            parts.append("\n".join([f"--- {argv[0]}", *lines[:2], *lines[2:][-40:]]))
        return "\n".join([*parts, *self._daemons.last_words(15, "*.log")])

    def sacctmgr(self, *args: str, check: bool = True) -> Completed:
        """Run sacctmgr as root without questions. Raises CommandFailed.

        "Nothing new added" and "Nothing modified" are failures, as they are to sacctmgr.
        """
        return self.run("sacctmgr", "-i", *args, check=check)

    def apply(self, spec_part: Mapping[str, Any]) -> None:
        """Add or modify users, QOS and accounts; only what the part names changes.

        Takes the keys users, qos and accounts of a spec. Raises BedError.
        """
        part = specs.parse(spec_part, partial=True)
        with registry.lock():
            registry.take_users(self.entry, list(part.users))
        self._make_homes(part.users)
        self._account(accounting.commands(part, self._known()))
        self.wait_until(lambda: self._has(part), what="slurmctld has the change")

    def _known(self) -> accounting.Known:
        known = accounting.Known()
        known.qos |= self._known_qos()
        asked = [f"cluster={self.spec.cluster}", "format=account,user,partition"]
        for line in self.run("sacctmgr", "-nP", "show", "assoc", *asked).stdout.splitlines():
            account, user, partition = line.split("|")[:3]
            known.accounts.add(account.lower())
            known.users.add(user)
            known.associations.add((account.lower(), user, partition.lower()))
        return known

    def _known_qos(self) -> set[str]:
        qos = self.run("sacctmgr", "-nP", "show", "qos", "format=name").stdout
        return {line.lower() for line in qos.splitlines()}

    def _account(self, lines: list[str]) -> None:
        """Give sacctmgr all commands in one session. Raises BedError with its words."""
        if not lines:
            return
        done = self._tool("sacctmgr", "-i", input="\n".join(lines) + "\n")
        problem = accounting.problem(done.stdout + done.stderr, done.returncode)
        if problem:
            raise BedError(f"sacctmgr: {problem}\ncommands:\n" + "\n".join(lines))

    # -- wait ----------------------------------------------------------------------------------

    def wait_until(
        self, predicate: Callable[[], Any], timeout: float = 30.0, what: str = "condition"
    ) -> Any:
        """Return `predicate()` once it is true. Raises BedError after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while True:
            value = predicate()
            if value:
                return value
            if time.monotonic() > deadline:
                raise BedError(f"{what}: not so after {timeout:.0f} s")
            time.sleep(self._poll)

    def wait_reason(
        self,
        jobid: int | str,
        timeout: float = 30.0,
        ignore: Sequence[str] = ("None", ""),
    ) -> tuple[str, str]:
        """Wait until a job has left PENDING or has a reason not in `ignore`.

        Returns squeue's long state and reason, such as ("PENDING", "QOSGrpMemLimit"); of an
        array the first line. Raises BedError.
        """
        last = ""

        def look() -> tuple[str, str] | None:
            nonlocal last
            done = self.run("squeue", "-h", "-t", "all", "-j", str(jobid), "-o", "%T|%r")
            last = done.stdout.strip()
            if not last:
                return None
            state, _, reason = last.splitlines()[0].partition("|")
            return None if state == "PENDING" and reason in ignore else (state, reason)

        try:
            found: tuple[str, str] = self.wait_until(look, timeout)
        except BedError as error:
            raise BedError(f"job {jobid} still {last or 'unknown'} after {timeout} s") from error
        return found

    def scancel_all(self, wait: bool = True, timeout: float = 30.0) -> None:
        """Cancel every job; with `wait` until none is active and no usage is left.

        Raises BedError when jobs remain after `timeout` seconds.
        """
        self._cancel()
        if wait:
            again = [time.monotonic() + 2.0]
            self.wait_until(lambda: self._is_empty(again), timeout, "no job left")

    def _cancel(self) -> None:
        jobs = self.run("squeue", "-h", "-o", "%A").stdout.split()
        if jobs:
            unique = sorted(set(jobs), key=int)
            self.run("scancel", *unique, check=False)

    def _is_empty(self, again: list[float]) -> bool:
        if self.run("squeue", "-h", "-o", "%A").stdout.strip():
            if time.monotonic() > again[0]:
                again[0] = time.monotonic() + 2.0
                self._cancel()
            return False
        usage = self.run("scontrol", "-o", "show", "assoc_mgr", "flags=qos").stdout
        return accounting.unused(usage) and self._nodes_up()

    # -- change --------------------------------------------------------------------------------

    def _controllers(self) -> list[int]:
        """Return slurmctld's process and its helper's, the main one first."""
        found = [pid for pid in self.entry.pids() if procs.program(pid) == "slurmctld"]
        return sorted(found, key=lambda pid: procs.parent(pid) in found)

    def stop_controller(self, *, kill: bool = False) -> None:
        """End slurmctld (state saved, unless `kill`) and wait until it is gone."""
        self.resume_controller()
        for pid in self._controllers() if kill else self._controllers()[:1]:
            os.kill(pid, signal.SIGKILL if kill else signal.SIGTERM)
        self.wait_until(lambda: not self._controllers(), what="slurmctld gone")
        self._daemons.reap()

    def start_controller(self) -> None:
        """Start slurmctld and wait until it answers. Raises BedError with its last words."""
        self._daemons.start_slurmctld()
        self._daemons.wait("slurmctld", self.controller_answers)

    def controller_answers(self) -> bool:
        """Tell whether `scontrol ping` says UP."""
        return " UP" in self._tool("scontrol", "ping").stdout

    def pause_controller(self) -> None:
        """Freeze slurmctld: clients connect and wait."""
        for pid in self._controllers():
            os.kill(pid, signal.SIGSTOP)

    def resume_controller(self) -> None:
        """Let a frozen slurmctld go on."""
        for pid in self._controllers():
            os.kill(pid, signal.SIGCONT)

    def reconfigure(
        self,
        *,
        restart: bool = False,
        partitions: Mapping[str, Mapping[str, Any]] | None = None,
        **lines: Any,
    ) -> None:
        """Change slurm.conf's keys (None takes a change back) and have slurmctld read it.

        `partitions` adds partitions or changes options of those there are (None drops one).
        Some keys take effect only with `restart`. Raises BedError, CommandFailed.
        """
        for name, options in (partitions or {}).items():
            old = self.spec.partitions.get(name, {"Nodes": "ALL"})
            self.spec.partitions[name] = conf.merge(old, options)
        self._overrides = conf.overlay(self._overrides, lines)
        self._write_conf()
        if restart:
            self.stop_controller()
            self.start_controller()
        else:
            self.run("scontrol", "reconfigure")
        self.wait_until(self.controller_answers, what="slurmctld answers")
        self.wait_until(self._nodes_answer, what="nodes answer")

    def _nodes_answer(self) -> bool:
        states = self._tool("sinfo", "-h", "-N", "-o", "%T").stdout.split()
        return bool(states) and not any("*" in s or s.startswith(("down", "unk")) for s in states)


def _record(user: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(user)
    except KeyError:
        raise BedError(f"no unix user {user!r}") from None


def _new_entry(directory: str | os.PathLike[str] | None) -> registry.Entry:
    """Make the directory and describe the cluster. Raises BedError for a directory of no use."""
    ident = registry.new_ident()
    if directory is None:
        path, made = Path(tempfile.mkdtemp(prefix="slurmbed-", dir="/tmp")), True
    else:
        path = Path(directory).absolute()
        made = not path.exists()
        _check_directory(path)
        path.mkdir(exist_ok=True)
    path.chmod(0o755)
    return registry.Entry(ident, str(path), made, os.getpid(), procs.start_time(os.getpid()))


def _check_directory(path: Path) -> None:
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise BedError(f"{path}: not an empty directory")
    if len(str(path)) > 90:
        raise BedError(f"{path}: longer than 90 bytes, too long for the sockets in it")
    if not path.parent.is_dir():
        raise BedError(f"{path}: no directory {path.parent}")
    if "," in str(path) or any(c.isspace() for c in str(path)):
        raise BedError(f"{path}: Slurm takes no blank and no comma in a path")
    for parent in path.parents:
        if parent.exists() and not parent.stat().st_mode & stat.S_IXOTH:
            raise BedError(f"{path}: users cannot pass {parent}; run: chmod o+x {parent}")


def _finish(
    process: subprocess.Popen[bytes], data: Input, timeout: float, check: bool
) -> Completed:
    """Wait for a command and return what it printed, as text."""
    raw = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
    try:
        out, err = process.communicate(raw, timeout)
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    stdout, stderr = (part.decode("utf-8", "surrogateescape") for part in (out, err))
    if check and process.returncode:
        raise CommandFailed(process.returncode, process.args, stdout, stderr)
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)
