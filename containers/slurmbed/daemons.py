"""The daemons of one cluster: how each is started and how it shows that it is ready."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Callable

from . import packages, procs
from .conf import Layout
from .errors import BedError

CACHE = Path("/var/cache/slurmbed")
MARIADB = [
    "--no-defaults",
    "--user=root",
    "--skip-networking",
    "--skip-log-bin",
    "--skip-name-resolve",
    "--performance-schema=0",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-doublewrite=0",
    "--innodb-log-file-size=8M",
    "--innodb-buffer-pool-size=64M",
    "--innodb-buffer-pool-dump-at-shutdown=0",
    "--innodb-buffer-pool-load-at-startup=0",
    # slurmdbd ends over it. Not every release of MariaDB knows it.
    "--loose-innodb-snapshot-isolation=OFF",
]


class Daemons:
    """Starts and watches the daemons; every one carries the cluster's mark and runs in front."""

    def __init__(self, layout: Layout, ident: str, timeout: float) -> None:
        self.layout = layout
        self.ident = ident
        self.timeout = timeout
        self._started: dict[str, subprocess.Popen[bytes]] = {}
        self.env = {
            "PATH": packages.PATH,
            "HOME": "/root",
            "LANG": "C.UTF-8",
            "SLURM_CONF": str(layout.etc / "slurm.conf"),
            "MYSQL_UNIX_PORT": str(layout.db_socket),
            procs.MARK: ident,
        }
        if "TZ" in os.environ:
            self.env["TZ"] = os.environ["TZ"]

    def spawn(self, name: str, argv: list[str]) -> None:
        """Start a daemon in the background, its output in log/NAME.out."""
        with open(self.layout.log / f"{name}.out", "ab") as out:
            self._started[name] = subprocess.Popen(
                argv,
                env=self.env,
                cwd=self.layout.root,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def wait(self, name: str, ready: Callable[[], bool]) -> None:
        """Wait until a daemon is ready. Raises BedError with its last words."""
        deadline = time.monotonic() + self.timeout
        while not ready():
            process = self._started.get(name)
            if process is not None and process.poll() is not None:
                raise self.failure(f"{name} ended with status {process.returncode}")
            if self._is_fatal(name):
                raise self.failure(f"{name} gave up")
            if time.monotonic() > deadline:
                raise self.failure(f"{name} not ready after {self.timeout:.0f} s")
            time.sleep(0.01)

    def _is_fatal(self, name: str) -> bool:
        """Tell whether a daemon said "fatal:"; slurmctld 26.05 may hang then instead of ending."""
        path = self.layout.log / f"{name}.out"
        return path.exists() and b"fatal: " in path.read_bytes()

    def failure(self, what: str) -> BedError:
        """Return an error with the last lines of every log."""
        return BedError("\n".join([what, *self.last_words(12)]))

    def last_words(self, count: int, files: str = "*") -> list[str]:
        """Return the last lines of every log that has any, each log under its name."""
        parts = []
        for path in sorted(self.layout.log.glob(files)):
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()[-count:]
            if lines:
                parts.append("\n".join([f"--- {path.name}", *lines]))
        return parts

    def reap(self) -> None:
        """Collect the status of daemons that ended."""
        for process in self._started.values():
            process.poll()

    def start_munge(self) -> None:
        """Start munged with a key and a socket of the cluster's own."""
        home = self.layout.munge_socket.parent
        home.mkdir(mode=0o755)
        key = home / "key"
        key.touch(mode=0o400)
        key.write_bytes(os.urandom(128))
        flags = [f"--key-file={key}", f"--socket={self.layout.munge_socket}"]
        flags += [f"--pid-file={home / 'pid'}", f"--seed-file={home / 'seed'}"]
        flags += [
            f"--log-file={self.layout.log / 'munged.log'}",
            "--num-threads=2",
            "--origin=127.0.0.1",
        ]
        self.spawn("munged", ["munged", "--foreground", *flags])

    def start_mariadb(self) -> None:
        """Start MariaDB on a copy of an empty data directory.

        The database is made here: slurmdbd that makes it itself fails with libmariadb 11.8.9
        ("Number of columns ... maximum (=0)" on the handle whose first connection failed).
        """
        home = self.layout.db_socket.parent
        home.mkdir(mode=0o700)
        first = home / "first.sql"
        first.write_text("CREATE DATABASE IF NOT EXISTS slurm_acct_db;\n", encoding="utf-8")
        shutil.copytree(template(), home / "data")
        flags = [f"--datadir={home / 'data'}", f"--socket={self.layout.db_socket}"]
        flags += [f"--tmpdir={home}", f"--pid-file={home / 'pid'}", f"--init-file={first}"]
        self.spawn("mariadbd", ["mariadbd", *MARIADB, *flags])

    def start_slurmdbd(self) -> None:
        """Wait for munged and MariaDB, then start slurmdbd and wait until it listens."""
        self.wait("munged", lambda: _accepts(self.layout.munge_socket))
        self.wait("mariadbd", lambda: _accepts(self.layout.db_socket))
        self.spawn("slurmdbd", ["slurmdbd", "-D"])
        self.wait("slurmdbd", lambda: _listens(self.layout.dbd_port))

    def start_slurmctld(self) -> None:
        """Start slurmctld and wait until it listens."""
        self.spawn("slurmctld", ["slurmctld", "-D"])
        self.wait("slurmctld", lambda: _listens(self.layout.ctld_port))

    def start_slurmd(self, node: str) -> None:
        """Start one node's slurmd."""
        self.spawn(f"slurmd.{node}", ["slurmd", "-D", "-N", node])


def _accepts(path: Path) -> bool:
    """Tell whether somebody accepts connections on a unix socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


def _listens(port: int) -> bool:
    """Tell whether somebody listens on a TCP port, without a connection that would be logged."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError), open(table, encoding="ascii") as lines:
            for fields in map(str.split, lines):
                if fields[3] == "0A" and fields[1].endswith(f":{port:04X}"):
                    return True
    return False


def template() -> Path:
    """Return an empty MariaDB data directory of this version, made once a machine.

    Raises BedError when it cannot be made.
    """
    done = subprocess.run(["mariadbd", "--version"], capture_output=True, text=True, check=False)
    words = done.stdout.split()
    path = CACHE / ("mariadb-" + (words[2] if len(words) > 2 else "unknown"))
    if path.is_dir():
        return path
    CACHE.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        data = Path(scratch) / "data"
        command = ["mariadb-install-db", "--no-defaults", "--user=root", f"--datadir={data}"]
        command += ["--auth-root-authentication-method=socket", "--skip-test-db"]
        command += ["--innodb-log-file-size=8M"]
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode:
            raise BedError(f"mariadb-install-db: {made.stdout[-2000:]}{made.stderr[-2000:]}")
        with contextlib.suppress(OSError):
            os.rename(data, path)
    return path
