"""Slurm, MariaDB and munge from Debian's packages."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from .errors import BedError

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PROGRAMS = {
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "slurmdbd": "slurmdbd",
    "sacctmgr": "slurm-client",
    "scontrol": "slurm-client",
    "munged": "munge",
    # Not mariadb-server: a system service, its database, and Perl.
    "mariadbd": "mariadb-server-core",
    "mariadb-install-db": "mariadb-server-core",
    "my_print_defaults": "mariadb-client-core",
    "ip": "iproute2",
    "useradd": "passwd",
}
POLICY = Path("/usr/sbin/policy-rc.d")
LOCK = Path("/run/slurmbed/install.lock")


def missing() -> dict[str, str]:
    """Return the programs that are not installed, with the package of each."""
    return {name: pkg for name, pkg in PROGRAMS.items() if shutil.which(name, path=PATH) is None}


def ensure() -> None:
    """Install what is missing, quietly.

    Raises BedError with the command to run where this process cannot, or apt's words.
    """
    absent = missing()
    if not absent:
        return
    packages = sorted(set(absent.values()))
    command = f"apt-get install --no-install-recommends {' '.join(packages)}"
    apt = shutil.which("apt-get", path=PATH)
    if os.geteuid() != 0 or apt is None:
        why = "this system has no apt-get" if apt is None else "installing needs root"
        raise BedError(f"missing: {', '.join(absent)}; {why}; as root run: {command}")
    LOCK.parent.mkdir(parents=True, exist_ok=True)
    with open(LOCK, "w", encoding="utf-8") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        if missing():
            with _no_services():
                _apt("update", "-qq")
                _apt("install", "-y", "-qq", "--no-install-recommends", *packages)
    if missing():
        raise BedError(f"installed {', '.join(packages)}, still missing: {', '.join(missing())}")


def _apt(*words: str) -> None:
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "PATH": PATH}
    done = subprocess.run(
        ["apt-get", "-o", "DPkg::Lock::Timeout=300", *words],
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BedError(f"apt-get {' '.join(words)} failed:\n{done.stdout[-4000:]}")


@contextlib.contextmanager
def _no_services() -> Iterator[None]:
    """Keep packages from starting system services, and put the old policy back."""
    saved = POLICY.with_name("policy-rc.d.slurmbed")
    if not saved.exists() and (POLICY.exists() or POLICY.is_symlink()):
        os.replace(POLICY, saved)
    POLICY.write_text("#!/bin/sh\nexit 101\n", encoding="utf-8")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()
        if saved.exists() or saved.is_symlink():
            os.replace(saved, POLICY)


def release() -> tuple[int, int]:
    """Return Slurm's release, such as (22, 5). Raises BedError when slurmctld does not say."""
    done = subprocess.run(
        [shutil.which("slurmctld", path=PATH) or "slurmctld", "-V"],
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.search(r"(\d+)\.(\d+)", done.stdout)
    if not found:
        raise BedError(f"slurmctld -V: {done.stdout}{done.stderr}")
    return int(found[1]), int(found[2])
