"""A Snakemake command line with live accounts put in, and the process that runs it.

Only what has to be understood of Snakemake's options is: ``--config`` (the last one counts,
and on the command line it replaces a profile's), ``--jobs``/``--cores``, what names an
executor, and the profiles. Everything else is passed on as it was written.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Dict, List, NamedTuple, Optional, Sequence, Tuple

if TYPE_CHECKING:
    from typing import Callable, Mapping

#: What may stand before ``snakemake`` and runs it as its own arguments say.
_WRAPPERS = frozenset((
    "apptainer", "conda", "env", "ionice", "mamba", "micromamba", "nice", "nohup", "pdm", "pixi",
    "poetry", "setsid", "singularity", "srun", "stdbuf", "time", "uv", "uvx", "xvfb-run",
))  # fmt: skip

#: Snakemake's one-letter options without a value, which others may follow in the same word.
_FLAGS = frozenset("DFSfhklnptv")

#: Of its options with a value: those that are looked for.
_LONG = {"--config": "config", "--jobs": "jobs", "--cores": "cores", "--executor": "executor",
         "--profile": "profile", "--workflow-profile": "workflow-profile",
         "--snakefile": "snakefile", "--directory": "directory"}  # fmt: skip
_SHORT = {"C": "config", "j": "jobs", "c": "cores", "e": "executor", "s": "snakefile",
          "d": "directory"}  # fmt: skip


class Found(NamedTuple):
    """One option of a command line."""

    name: str
    #: The words it spans: ``[start, end)``.
    start: int
    end: int
    #: Its values; ``config`` has any number, the others one or none.
    values: Tuple[str, ...]


class Profile(NamedTuple):
    """What the profiles say of the options that matter here, the strongest value of each."""

    config: Tuple[str, ...] = ()
    jobs: bool = False
    cores: bool = False
    executor: bool = False
    #: Files that were read, and one clause for each that could not be.
    files: Tuple[str, ...] = ()
    troubles: Tuple[str, ...] = ()


class Line(NamedTuple):
    """The command line to run."""

    argv: Tuple[str, ...]
    snakemake: bool
    #: The ``-j`` that was added; 0: there was one.
    jobs: int = 0
    #: The user gave live accounts; they stay.
    own_accounts: bool = False
    #: Nothing says where the jobs go: Snakemake will run them on this machine.
    local: bool = False
    #: Snakemake's own dry run.
    dry: bool = False
    notes: Tuple[str, ...] = ()


def arguments_at(argv: Sequence[str]) -> Optional[int]:
    """Where Snakemake's own arguments begin in a command; None: it is another program."""
    for index, word in enumerate(argv):
        name = os.path.basename(word)
        if name == "snakemake":
            return index + 1
        if name.startswith("python") and list(argv[index + 1 : index + 3]) == ["-m", "snakemake"]:
            return index + 3
        if index == 0 and name not in _WRAPPERS and not name.startswith("python"):
            return None
    return None


def scan(args: Sequence[str]) -> List[Found]:
    """The options of `args` that are looked for, in order, up to ``--``."""
    found = []
    index = 0
    while index < len(args) and args[index] != "--":
        option = _option(args, index)
        if option is not None:
            found.append(option)
            index = option.end
        else:
            index += 1
    return found


def _option(args: Sequence[str], index: int) -> Optional[Found]:
    word = args[index]
    name, inline = "", None
    if word.startswith("--"):
        long, equals, value = word.partition("=")
        name = _LONG.get(long, "")
        inline = value if equals else None
    elif word.startswith("-") and len(word) > 1:
        letters = word[1:]
        while letters[:1] in _FLAGS and letters:
            letters = letters[1:]
        name = _SHORT.get(letters[:1], "")
        inline = letters[1:].lstrip("=") or None
    if not name:
        return None
    if inline is not None:
        return Found(name, index, index + 1, (inline,))
    end = index + 1
    most = len(args) if name == "config" else end + 1
    while end < min(most, len(args)) and not _is_option(args[end]):
        end += 1
    return Found(name, index, end, tuple(args[index + 1 : end]))


def _is_option(word: str) -> bool:
    return word.startswith("-") and len(word) > 1


def compose(
    argv: Sequence[str],
    accounts_json: str,
    jobs: int,
    environ: Mapping[str, str],
    cwd: Path,
) -> Line:
    """`argv` with ``--config live_accounts=...`` merged in, and ``-j`` where none is given.

    `jobs`: how many jobs could start now. Another program's arguments stay as they are.
    """
    at = arguments_at(argv)
    if at is None:
        return Line(tuple(argv), False)
    args = list(argv[at:])
    options = scan(args)
    profile = read_profiles(options, environ, cwd)
    named = {option.name for option in options}
    local = "executor" not in named and not profile.executor and not _old_cluster(args)
    own = [option for option in options if option.name == "config"]
    entries = own[-1].values if own else profile.config
    given = any(entry.startswith("live_accounts=") for entry in entries)
    ours = [] if given else [f"live_accounts={accounts_json}"]
    added = [] if _has_jobs(named, profile, local) else ["-j", str(_at_once(jobs, local))]
    tail = args.index("--") if "--" in args else len(args)
    words: List[str] = []
    if own and ours:
        last = own[-1]
        words = [*args[: last.start], "--config", *last.values, *ours, *args[last.end : tail]]
        before = args[last.start]
        if before.startswith("-") and not before.startswith("--"):
            words = [*args[: last.start], *_flags(before), *words[last.start :]]
        words += added
    elif ours:
        words = [*args[:tail], *added, "--config", *entries, *ours]
    else:
        words = [*args[:tail], *added]
    return Line(
        (*argv[:at], *words, *args[tail:]),
        True,
        int(added[1]) if added else 0,
        given,
        local,
        _is_dry(args[:tail]),
        profile.troubles,
    )


def _flags(word: str) -> List[str]:
    """The flags in front of the C of ``-npC``."""
    letters = word[1 : word.index("C")] if "C" in word else ""
    return ["-" + letters] if letters else []


def _has_jobs(named: set[str], profile: Profile, local: bool) -> bool:
    if "jobs" in named or profile.jobs:
        return True
    return local and ("cores" in named or profile.cores)


def _at_once(jobs: int, local: bool) -> int:
    """Of what could start now; on this machine no more than it has processors for us."""
    return max(1, min(jobs, len(os.sched_getaffinity(0))) if local else jobs)


def _is_dry(args: Sequence[str]) -> bool:
    """``-n``, alone or among other flags."""
    for word in args:
        if word in ("--dry-run", "--dryrun"):
            return True
        letters = word[1:] if word.startswith("-") and not word.startswith("--") else ""
        while letters[:1] in _FLAGS and letters:
            if letters[0] == "n":
                return True
            letters = letters[1:]
    return False


def _old_cluster(args: Sequence[str]) -> bool:
    """Snakemake 7 named its cluster by other options."""
    names = ("--cluster", "--slurm", "--drmaa", "--cluster-sync", "--profile")
    return any(word.partition("=")[0] in names for word in args)


# -- profiles -----------------------------------------------------------------------------------


def read_profiles(options: Sequence[Found], environ: Mapping[str, str], cwd: Path) -> Profile:
    """What the profiles in use say: the general ones, then the workflow's own.

    They are looked for as Snakemake's get_profile_dir() and parse_args() do.
    """
    found = Profile()
    for file in _profile_files(options, environ, cwd):
        try:
            data = _load_yaml(file)
        except (OSError, ValueError) as error:
            trouble = f"{file}: cannot be read ({str(error).splitlines()[0]})"
            found = found._replace(troubles=(*found.troubles, trouble))
            continue
        entries = _config_entries(data.get("config"))
        found = found._replace(
            config=entries if entries is not None else found.config,
            jobs=found.jobs or "jobs" in data or "j" in data,
            cores=found.cores or "cores" in data,
            executor=found.executor or "executor" in data or "cluster" in data,
            files=(*found.files, str(file)),
        )
    return found


def _profile_files(options: Sequence[Found], environ: Mapping[str, str], cwd: Path) -> List[Path]:
    last = {option.name: option.values[0] for option in options if option.values}
    names = [o.values[0] for o in options if o.name == "profile" and o.values]
    if not names and environ.get("SNAKEMAKE_PROFILE"):
        names = [environ["SNAKEMAKE_PROFILE"]]
    config = Path(environ.get("XDG_CONFIG_HOME") or Path(environ.get("HOME", "/")) / ".config")
    general = [cwd, config / "snakemake", Path("/etc/xdg/snakemake")]
    places = [[where / name for where in general] for name in names if name != "none"]
    own = last.get("workflow-profile", "")
    if own != "none":
        snakefile = _snakefile(last.get("snakefile", ""), cwd)
        candidates = [cwd / (own or "default"), cwd / "profiles" / (own or "default")]
        if snakefile is not None:
            candidates.append(snakefile.parent / "profiles" / (own or "default"))
        places.append(candidates)
    files = []
    for candidates in places:
        file = next((f for f in map(_profile_file, candidates) if f is not None), None)
        if file is not None:
            files.append(file)
    return files


def _snakefile(named: str, cwd: Path) -> Optional[Path]:
    if named:
        return cwd / named
    for name in ("Snakefile", "snakefile", "workflow/Snakefile", "workflow/snakefile"):
        if (cwd / name).exists():
            return cwd / name
    return None


def _profile_file(place: Path) -> Optional[Path]:
    """``profile.yaml``, ``config.yaml`` or ``config.v8+.yaml``: the newest kind there is."""
    if place.is_file():
        return place
    if not place.is_dir():
        return None
    best: Optional[Tuple[int, Path]] = None
    for file in sorted(place.iterdir()):
        stem, _, kind = file.name.partition(".")
        if stem not in ("profile", "config") or not kind.endswith("yaml"):
            continue
        version = kind[1:-6] if kind.startswith("v") and kind.endswith("+.yaml") else "0"
        if not version.isdigit() or (kind != "yaml" and version == "0"):
            continue
        if best is None or int(version) > best[0]:
            best = (int(version), file)
    return best[1] if best else None


def _load_yaml(file: Path) -> Dict[str, object]:
    import yaml

    try:
        data = yaml.safe_load(file.read_bytes())
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None
    if not isinstance(data, dict):
        raise ValueError("no mapping")
    return {str(key): value for key, value in data.items()}


def _config_entries(value: object) -> Optional[Tuple[str, ...]]:
    """``config:`` of a profile as ``KEY=VALUE`` words (ProfileConfigFileParser.parse)."""
    if isinstance(value, dict):
        return tuple(f"{key}={_config_value(item)}" for key, item in value.items())
    if isinstance(value, list):
        return tuple(str(item) for item in value)
    return None if value is None else (str(value),)


def _config_value(value: object) -> object:
    if isinstance(value, str):
        for kind in (int, float):
            try:
                kind(value)
            except ValueError:
                continue
            return repr(value)
    return value


# -- the process --------------------------------------------------------------------------------

#: Signals that are handed on.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
#: si_code of a signal that the kernel sent: a terminal sends it to the whole group.
_SI_KERNEL = 128
#: Seconds after which a second SIGTERM is meant.
_AGAIN = 1.0


def execute(
    argv: Sequence[str], environ: Mapping[str, str], say: Callable[[str], None], translate: bool
) -> int:
    """Run a command to its end and return its exit status (128 + the signal that ended it).

    With `translate` SIGTERM reaches it as SIGINT: Snakemake stops and cancels its jobs on that,
    while on SIGTERM it waits for them to end. A second SIGTERM kills it. Raises OSError when it
    cannot be run.
    """
    watched = {*_SIGNALS, signal.SIGCHLD}
    watched = {number for number in watched if signal.getsignal(number) is not signal.SIG_IGN}
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    watched.add(signal.SIGCHLD)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    sys.stdout.flush()
    try:
        # Python ignores these two, which a child would inherit.
        child = os.posix_spawnp(
            argv[0],
            list(argv),
            dict(environ),
            setsigmask=before,
            setsigdef=[signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT]
            if signal.SIGINT in watched
            else [signal.SIGPIPE, signal.SIGXFSZ],
        )
        return _attend(child, watched, say, translate)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _attend(
    child: int, watched: set[signal.Signals], say: Callable[[str], None], translate: bool
) -> int:
    asked: Optional[float] = None
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        got = signal.sigwaitinfo(watched)
        number = signal.Signals(got.si_signo)
        if number == signal.SIGCHLD or (got.si_code >= _SI_KERNEL and number == signal.SIGINT):
            # Ctrl-C has reached the child as well.
            continue
        if number == signal.SIGTERM and translate:
            if asked is None:
                asked = time.monotonic()
                say("SIGTERM: Snakemake is told to stop (SIGINT); another one kills it")
                number = signal.SIGINT
            elif time.monotonic() - asked < _AGAIN:
                continue
            else:
                say("SIGTERM again: Snakemake is killed; its jobs stay in Slurm (squeue --me)")
                number = signal.SIGKILL
        os.kill(child, number)
