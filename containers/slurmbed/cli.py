"""The command line: up, down, list, run, install."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn

from . import packages, registry
from .cluster import Cluster
from .errors import BedError


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit status; errors go to stderr, with status 1."""
    options = _parser().parse_args(argv)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupted)
    try:
        return int(options.run(options))
    except BedError as error:
        print(f"cluster.py: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _interrupted(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="cluster.py", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    up = commands.add_parser("up", help="boot a cluster that stays, print shell exports")
    up.set_defaults(run=_up)
    run = commands.add_parser("run", help="boot, run a command with the cluster, end it")
    run.set_defaults(run=_run)
    for command in (up, run):
        command.add_argument("--spec", metavar="FILE", help="JSON file (default: the seed's lab)")
        command.add_argument("--dir", metavar="DIR", help="empty or absent directory")
    run.add_argument("--user", help="run the command as this unix user, in its home")
    run.add_argument("command", nargs=argparse.REMAINDER, metavar="-- CMD...")
    down = commands.add_parser("down", help="end clusters")
    down.add_argument("directory", nargs="*", metavar="DIR")
    down.add_argument("--all", action="store_true", help="all, but those whose starter lives")
    down.add_argument("--force", action="store_true", help="with --all: those too")
    down.set_defaults(run=_down)
    commands.add_parser("list", help="list clusters").set_defaults(run=_list)
    install = commands.add_parser("install", help="install the packages only")
    install.set_defaults(run=_install)
    return parser


def _up(options: argparse.Namespace) -> int:
    cluster = Cluster.start(options.spec, options.dir, keep=True)
    env = {key: cluster.env[key] for key in ("SLURM_CONF", "PATH")}
    for key, value in env.items():
        print(f"export {key}={shlex.quote(value)}")
    script = shlex.quote(str(Path(sys.argv[0]).absolute()))
    print(
        f"# Slurm {cluster.release[0]}.{cluster.release[1]:02d}, users: "
        f"{', '.join(cluster.spec.users)}"
    )
    print(f"# homes: {cluster.directory}/home")
    print(f"# stop with: {script} down {shlex.quote(str(cluster.directory))}")
    return 0


def _run(options: argparse.Namespace) -> int:
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        raise BedError("run: no command given")
    with Cluster.start(options.spec, options.dir) as cluster:
        try:
            if options.user:
                process = cluster.popen_as(options.user, command)
            else:
                process = subprocess.Popen(command, env={**os.environ, **cluster.env})
        except OSError as error:
            print(f"cluster.py: {command[0]}: {error.strerror}", file=sys.stderr)
            return 127
        status = process.wait()
    return status if status >= 0 else 128 - status


def _down(options: argparse.Namespace) -> int:
    entries = registry.entries()
    if options.all:
        chosen = [e for e in entries if options.force or e.state != "owned"]
        for entry in [e for e in entries if e not in chosen]:
            print(
                f"cluster.py: left {entry.directory}: its starter, process {entry.owner}, lives",
                file=sys.stderr,
            )
    else:
        wanted = {str(Path(name).absolute()) for name in options.directory}
        chosen = [e for e in entries if e.directory in wanted]
        lost = wanted - {e.directory for e in chosen}
        if lost or not wanted:
            raise BedError(f"down: no cluster in {', '.join(lost) or 'no directory'}")
    for entry in chosen:
        registry.destroy(entry)
    return 0


def _list(_options: argparse.Namespace) -> int:
    for entry in registry.entries():
        print(f"{entry.directory}  {entry.state}  {entry.address}  {','.join(entry.users)}")
    return 0


def _install(_options: argparse.Namespace) -> int:
    packages.ensure()
    return 0
