"""What clusters run on this machine, and what each of them holds: /run/slurmbed.

Addresses, ports and unix users are shared by all clusters of a machine, so they are taken and
given back under one lock, and written down before they are made: whatever ends a cluster's
starter, the next `start` or `down` finds what it left.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import os
import pwd
import random
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from . import procs
from .errors import BedError

RUN = Path("/run/slurmbed")


@dataclass
class Entry:
    """One cluster; `owner` is the pid that ends it, 0 when it stays up until `down`."""

    ident: str
    directory: str
    made_directory: bool
    owner: int = 0
    owner_started: int | None = None
    address: str = ""
    ports: list[int] = field(default_factory=list)
    users: list[str] = field(default_factory=list)

    @property
    def conf(self) -> str:
        """The path of the cluster's slurm.conf."""
        return f"{self.directory}/etc/slurm.conf"

    @property
    def state(self) -> str:
        """One of "kept" (up until told), "owned" (its starter lives) and "orphan"."""
        if not self.owner:
            return "kept"
        alive = procs.start_time(self.owner) == self.owner_started
        return "owned" if alive else "orphan"

    def pids(self) -> list[int]:
        """Return the cluster's live processes."""
        return procs.of_cluster(self.ident, self.conf)


@contextlib.contextmanager
def lock() -> Iterator[None]:
    """Hold the machine's lock; keep it short."""
    (RUN / "clusters").mkdir(parents=True, exist_ok=True)
    with open(RUN / "lock", "w", encoding="utf-8") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def entries() -> list[Entry]:
    """Return all clusters written down, oldest first."""
    found = []
    for path in (RUN / "clusters").glob("*.json"):
        with contextlib.suppress(OSError, ValueError, TypeError):
            found.append((path.stat().st_mtime, Entry(**json.loads(path.read_text()))))
    return [entry for _, entry in sorted(found, key=lambda pair: pair[0])]


def find(ident: str) -> Entry | None:
    """Return the cluster of that name, or None."""
    return next((entry for entry in entries() if entry.ident == ident), None)


def save(entry: Entry) -> None:
    """Write an entry down, at once or not at all."""
    _write(RUN / "clusters" / f"{entry.ident}.json", json.dumps(asdict(entry)))


def _write(path: Path, text: str) -> None:
    new = path.with_suffix(".new")
    new.write_text(text, encoding="utf-8")
    os.replace(new, path)


def made_users() -> list[str]:
    """Return the unix users that we created."""
    try:
        found = json.loads((RUN / "users.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return [str(name) for name in found]


def take_network(entry: Entry, ports: int) -> None:
    """Give an entry an address of its own in 127.77/16 and free TCP ports; call under `lock`."""
    others = [other for other in entries() if other.ident != entry.ident]
    used = {other.address for other in others}
    entry.address = next(
        address
        for address in iter(lambda: f"127.77.{random.randint(1, 254)}.{random.randint(1, 254)}", "")
        if address not in used
    )
    entry.ports = _free_ports(ports, {port for other in others for port in other.ports})
    save(entry)
    _add_address(entry.address)


def _free_ports(count: int, taken: set[int]) -> list[int]:
    """Return ports below the ephemeral range that nobody listens on."""
    found: list[int] = []
    for _ in range(200 + 10 * count):
        port = random.randint(10000, 30000)
        if port in taken or port in found:
            continue
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("0.0.0.0", port))
            found.append(port)
        if len(found) == count:
            return found
    raise BedError(f"no {count} free TCP ports between 10000 and 30000")


def _ip(*words: str) -> bool:
    """Run `ip`; False where it is missing or refuses."""
    try:
        done = subprocess.run(["ip", *words], capture_output=True, check=False)
    except OSError:
        return False
    return done.returncode == 0


def _add_address(address: str) -> None:
    """Put an address on lo and turn delayed TCP acknowledgements off for it, if possible.

    All of 127/8 answers on Linux without this; only speed is lost then.
    """
    if _ip("addr", "add", f"{address}/32", "dev", "lo"):
        route = ["local", address, "dev", "lo", "table", "local", "proto", "kernel"]
        _ip("route", "change", *route, "scope", "host", "src", address, "quickack", "1")


def take_users(entry: Entry, names: list[str]) -> None:
    """Create the unix users that are missing; call under `lock`. Raises BedError."""
    entry.users = sorted({*entry.users, *names})
    save(entry)
    made = made_users()
    for name in names:
        try:
            pwd.getpwnam(name)
            continue
        except KeyError:
            made.append(name)
        _write(RUN / "users.json", json.dumps(sorted(set(made))))
        command = ["useradd", "-M", "-U", "-d", "/nonexistent", "-s", "/bin/bash", name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BedError(f"{' '.join(command)}: {done.stderr.strip()}")


def release(entry: Entry) -> None:
    """Give back users, address, directory and the entry; harmless when done already."""
    with lock():
        path = RUN / "clusters" / f"{entry.ident}.json"
        if not path.exists():
            return
        _drop_users(entry)
        if entry.address:
            _ip("addr", "del", f"{entry.address}/32", "dev", "lo")
        _remove(Path(entry.directory), entry.made_directory)
        path.unlink()
        if not entries() and not made_users():
            with contextlib.suppress(OSError):
                (RUN / "users.json").unlink()


def _drop_users(entry: Entry) -> None:
    """Remove the users that we made and that no other cluster uses, with their processes."""
    needed = {name for other in entries() if other.ident != entry.ident for name in other.users}
    made = made_users()
    for name in [user for user in entry.users if user in made and user not in needed]:
        with contextlib.suppress(KeyError):
            uid = pwd.getpwnam(name).pw_uid
            procs.kill_all(functools.partial(procs.of_uid, uid))
            # -f: userdel counts zombies as processes of the user
            subprocess.run(["userdel", "-f", name], capture_output=True, check=False)
        made.remove(name)
        _write(RUN / "users.json", json.dumps(made))


def _remove(directory: Path, whole: bool) -> None:
    """Remove a cluster's files; the directory itself only where we made it."""
    if whole:
        shutil.rmtree(directory, ignore_errors=True)
        return
    for path in directory.iterdir() if directory.is_dir() else []:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def destroy(entry: Entry) -> None:
    """End a cluster whatever its state: processes, users, address, files.

    Raises BedError when a process does not die.
    """
    left = procs.kill_all(entry.pids)
    release(entry)
    if left:
        raise BedError(f"cluster {entry.ident}: processes {left} did not end")


def sweep() -> list[Entry]:
    """Destroy the clusters whose starter died, and return them."""
    found = [entry for entry in entries() if entry.state == "orphan"]
    for entry in found:
        destroy(entry)
    return found


def new_ident() -> str:
    """Return a name for a new cluster."""
    return f"{os.getpid()}-{time.time_ns() % 10**9:09d}"
