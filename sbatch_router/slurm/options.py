"""sbatch's command line grammar and its input environment variables, as tables.

The grammar is the union of sbatch 22.05 to 26.05 (``src/common/slurm_opt.c``, options that
have a `set_func` for sbatch). Parsing is what sbatch does with glibc's ``getopt_long`` and an
option string that starts with ``+``. What a release does not know it refuses by itself, so a
union is safe: an abbreviation that is ambiguous in any release is a doubt here.
"""

from __future__ import annotations

from ..core.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Mapping, Optional, Sequence, Tuple

NO_ARGUMENT, REQUIRED, OPTIONAL = 0, 1, 2

#: Long option name -> whether it takes an argument. ``get-user-env`` lost its optional
#: argument in 25.05, ``requeue`` got one in 25.11.
LONG: Dict[str, int] = {
    "account": 1, "acctg-freq": 1, "array": 1, "autocomplete": 1, "batch": 1, "bb": 1, "bbf": 1,
    "begin": 1, "chdir": 1, "cluster": 1, "cluster-constraint": 1, "clusters": 1, "comment": 1,
    "consolidate-segments": 0, "constraint": 1, "container": 1, "container-id": 1,
    "container-type": 1, "context": 1, "contiguous": 0, "core-spec": 1, "cores-per-socket": 1,
    "cpu-freq": 1, "cpus-per-gpu": 1, "cpus-per-task": 1, "deadline": 1, "delay-boot": 1,
    "dependency": 1, "distribution": 1, "error": 1, "exclude": 1, "exclusive": 2, "export": 1,
    "export-file": 1, "external": 0, "extra": 1, "extra-node-info": 1, "get-user-env": 2,
    "gid": 1, "gpu-bind": 1, "gpu-freq": 1, "gpus": 1, "gpus-per-node": 1,
    "gpus-per-socket": 1, "gpus-per-task": 1, "gres": 1, "gres-flags": 1, "help": 0, "hint": 1,
    "hold": 0, "ignore-pbs": 0, "input": 1, "job-name": 1, "kill-on-invalid-dep": 1,
    "licenses": 1, "mail-type": 1, "mail-user": 1, "mcs-label": 1, "mem": 1, "mem-bind": 1,
    "mem-per-cpu": 1, "mem-per-gpu": 1, "mem-update": 1, "mincpus": 1, "network": 1, "nice": 2,
    "no-kill": 2, "no-requeue": 0, "nodefile": 1, "nodelist": 1, "nodes": 1, "ntasks": 1,
    "ntasks-per-core": 1, "ntasks-per-gpu": 1, "ntasks-per-node": 1, "ntasks-per-socket": 1,
    "ntasks-per-tres": 1, "oom-kill-step": 2, "open-mode": 1, "output": 1, "overcommit": 0,
    "oversubscribe": 0, "parsable": 0, "partition": 1, "power": 1, "prefer": 1, "priority": 1,
    "profile": 1, "propagate": 2, "qos": 1, "quiet": 0, "reboot": 0, "requeue": 2,
    "reservation": 1, "resources": 1, "resv-ports": 2, "segment": 1, "signal": 1,
    "sockets-per-node": 1, "spread-job": 0, "spread-segments": 0, "stepmgr": 0, "switches": 1,
    "tasks-per-node": 1, "test-only": 0, "thread-spec": 1, "threads-per-core": 1, "time": 1,
    "time-min": 1, "tmp": 1, "tres-bind": 1, "tres-per-task": 1, "uid": 1, "usage": 0,
    "use-min-nodes": 0, "verbose": 0, "version": 0, "wait": 0, "wait-all-nodes": 1, "wckey": 1,
    "wrap": 1,
}  # fmt: skip

#: Short option letter -> long option name.
SHORT: Dict[str, str] = {
    "A": "account", "B": "extra-node-info", "C": "constraint", "D": "chdir", "F": "nodefile",
    "G": "gpus", "H": "hold", "J": "job-name", "L": "licenses", "M": "clusters", "N": "nodes",
    "O": "overcommit", "Q": "quiet", "S": "core-spec", "V": "version", "W": "wait",
    "a": "array", "b": "begin", "c": "cpus-per-task", "d": "dependency", "e": "error",
    "h": "help", "i": "input", "k": "no-kill", "m": "distribution", "n": "ntasks",
    "o": "output", "p": "partition", "q": "qos", "s": "oversubscribe", "t": "time",
    "v": "verbose", "w": "nodelist", "x": "exclude",
}  # fmt: skip

#: Two spellings of one option (the same `val` in Slurm's table, or the same setter).
ALIASES: Dict[str, str] = {"cluster": "clusters", "tasks-per-node": "ntasks-per-node"}

#: Options that sbatch obeys on the command line only: in a script it skips them
#: (`sbatch_early_pass` in slurm_opt.c).
EARLY = ("help", "quiet", "verbose", "version", "usage", "wrap")

#: sbatch's input environment variables in the order it reads them, so of two that set one
#: option the later wins (`env_vars` in src/sbatch/opt.c).
ENVIRONMENT: Tuple[Tuple[str, str], ...] = (
    ("SBATCH_IGNORE_PBS", "ignore-pbs"), ("SBATCH_DEBUG", "verbose"),
    ("SBATCH_ACCOUNT", "account"), ("SBATCH_ARRAY_INX", "array"),
    ("SBATCH_ACCTG_FREQ", "acctg-freq"), ("SBATCH_BATCH", "batch"), ("SBATCH_BURST_BUFFER", "bb"),
    ("SBATCH_CLUSTER_CONSTRAINT", "cluster-constraint"), ("SBATCH_CLUSTERS", "clusters"),
    ("SLURM_CLUSTERS", "clusters"), ("SBATCH_CONSOLIDATE_SEGMENTS", "consolidate-segments"),
    ("SBATCH_CONTAINER", "container"), ("SBATCH_CONTAINER_ID", "container-id"),
    ("SBATCH_CONTAINER_TYPE", "container-type"), ("SBATCH_CONSTRAINT", "constraint"),
    ("SBATCH_CORE_SPEC", "core-spec"), ("SBATCH_CPU_FREQ_REQ", "cpu-freq"),
    ("SBATCH_CPUS_PER_GPU", "cpus-per-gpu"), ("SBATCH_DELAY_BOOT", "delay-boot"),
    ("SBATCH_DISTRIBUTION", "distribution"), ("SBATCH_EXCLUSIVE", "exclusive"),
    ("SBATCH_EXPORT", "export"), ("SBATCH_GET_USER_ENV", "get-user-env"), ("SBATCH_GRES", "gres"),
    ("SBATCH_GRES_FLAGS", "gres-flags"), ("SBATCH_GPUS", "gpus"), ("SBATCH_GPU_BIND", "gpu-bind"),
    ("SBATCH_GPU_FREQ", "gpu-freq"), ("SBATCH_GPUS_PER_NODE", "gpus-per-node"),
    ("SBATCH_GPUS_PER_SOCKET", "gpus-per-socket"), ("SBATCH_GPUS_PER_TASK", "gpus-per-task"),
    ("SLURM_HINT", "hint"), ("SBATCH_HINT", "hint"), ("SBATCH_JOB_NAME", "job-name"),
    ("SBATCH_MEM_BIND", "mem-bind"), ("SBATCH_MEM_PER_CPU", "mem-per-cpu"),
    ("SBATCH_MEM_PER_GPU", "mem-per-gpu"), ("SBATCH_MEM_PER_NODE", "mem"),
    ("SBATCH_NETWORK", "network"), ("SBATCH_NO_KILL", "no-kill"),
    ("SBATCH_NO_REQUEUE", "no-requeue"), ("SBATCH_OPEN_MODE", "open-mode"),
    ("SBATCH_OVERCOMMIT", "overcommit"), ("SBATCH_PARTITION", "partition"),
    ("SBATCH_POWER", "power"), ("SBATCH_PROFILE", "profile"), ("SBATCH_QOS", "qos"),
    ("SBATCH_REQUEUE", "requeue"), ("SBATCH_RESERVATION", "reservation"),
    ("SBATCH_SEGMENT_SIZE", "segment"), ("SBATCH_SIGNAL", "signal"),
    ("SBATCH_SPREAD_JOB", "spread-job"), ("SBATCH_SPREAD_SEGMENTS", "spread-segments"),
    ("SBATCH_THREAD_SPEC", "thread-spec"), ("SBATCH_THREADS_PER_CORE", "threads-per-core"),
    ("SBATCH_TIMELIMIT", "time"), ("SBATCH_TRES_BIND", "tres-bind"),
    ("SBATCH_TRES_PER_TASK", "tres-per-task"), ("SBATCH_USE_MIN_NODES", "use-min-nodes"),
    ("SBATCH_WAIT", "wait"), ("SBATCH_WAIT_ALL_NODES", "wait-all-nodes"),
    ("SBATCH_WCKEY", "wckey"), ("SBATCH_ERROR", "error"), ("SBATCH_INPUT", "input"),
    ("SBATCH_OUTPUT", "output"),
)  # fmt: skip


class Parsed(Record):
    """What getopt_long makes of an argument vector."""

    #: (long option name, argument) in the order given; a flag's argument is ``""``.
    options: Tuple[Tuple[str, str], ...]
    #: Index of the first operand (the script's name); the vector's length when there is none.
    operands: int
    #: Index where a further option may be put so that it wins over all before it.
    insert: int
    doubts: Tuple[str, ...] = ()


def parse(argv: Sequence[str]) -> Parsed:
    """Parse sbatch's arguments (without argv[0]) up to the script's name; never raises."""
    found: List[Tuple[str, str]] = []
    doubts: List[str] = []
    index, count = 0, len(argv)
    while index < count:
        word = argv[index]
        if word[:1] != "-" or word == "-":
            break
        if word == "--":
            return Parsed(tuple(found), index + 1, index, tuple(doubts))
        following = argv[index + 1] if index + 1 < count else None
        step = _long if word[1] == "-" else _short
        index += 1 + step(word, following, found, doubts)
    return Parsed(tuple(found), min(index, count), min(index, count), tuple(doubts))


def _long(
    word: str, following: Optional[str], found: List[Tuple[str, str]], doubts: List[str]
) -> int:
    """Take one ``--name[=value]``; returns how many of the following words it used up."""
    given, equals, value = word[2:].partition("=")
    name = full_name(given)
    if name is None:
        doubts.append(f"option --{given} is unknown or ambiguous")
        return 0
    takes = LONG[name]
    name = ALIASES.get(name, name)
    if takes == REQUIRED and not equals:
        if following is None:
            doubts.append(f"option --{given} lacks its argument")
            return 0
        found.append((name, following))
        return 1
    if takes == NO_ARGUMENT and equals:
        doubts.append(f"option --{given} takes no argument")
    found.append((name, value))
    return 0


def _short(
    word: str, following: Optional[str], found: List[Tuple[str, str]], doubts: List[str]
) -> int:
    """Take one ``-xyz`` or ``-N2``; returns how many of the following words it used up."""
    for position, letter in enumerate(word[1:], 2):
        name = SHORT.get(letter)
        if name is None:
            doubts.append(f"option -{letter} is unknown")
            continue
        takes, glued = LONG[name], word[position:]
        if takes == NO_ARGUMENT:
            found.append((name, ""))
            continue
        if takes == REQUIRED and not glued:
            if following is None:
                doubts.append(f"option -{letter} lacks its argument")
                return 0
            found.append((name, following))
            return 1
        found.append((name, glued))
        break
    return 0


def full_name(given: str) -> Optional[str]:
    """The long option that `given` names or abbreviates; None if none does, or several do.

    As glibc does, several candidates are no ambiguity when they are one option.
    """
    if given in LONG:
        return given
    matches = [name for name in LONG if name.startswith(given)]
    names = {ALIASES.get(name, name) if name != "cluster" else name for name in matches}
    return matches[0] if len(names) == 1 else None


def environment(environ: Mapping[str, str]) -> List[Tuple[str, Optional[str]]]:
    """(option, value) for each of sbatch's input variables that is set, in sbatch's order.

    A flag's variable sets the flag when it is empty, ``yes`` or a whole number but 0; any
    other value takes the flag back (value None), whoever gave it (`slurm_process_option`).
    """
    found: List[Tuple[str, Optional[str]]] = []
    for variable, option in ENVIRONMENT:
        value = environ.get(variable)
        if value is None:
            continue
        if LONG[option] == NO_ARGUMENT:
            found.append((option, "" if _switches_on(value) else None))
        else:
            found.append((option, value))
    return found


def _switches_on(value: str) -> bool:
    if value == "" or value.lower() == "yes":
        return True
    digits = value.lstrip(" \t\n\v\f\r")
    digits = digits[1:] if digits[:1] in ("+", "-") else digits
    return digits.isdigit() and digits.isascii() and digits.strip("0") != ""
