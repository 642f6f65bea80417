"""``sbatch-router-submit``: sbatch for Snakemake's ``--cluster-generic-submit-cmd``.

Called as ``sbatch-router-submit [SBATCH OPTIONS] JOBSCRIPT``. It adds what the jobscript's
``# properties = {...}`` line asks for (`from_properties`), decides as the shim does, runs the
real sbatch and prints the bare job id: the first and only line on standard output. Whatever
else there is to say, sbatch's own banners included, goes to standard error.

Exit codes: sbatch's own; 75 and 77 for a refusal; 76 when sbatch succeeded without an id.
"""

from __future__ import annotations

import os
import posix
import shlex
import signal
import sys
from typing import TYPE_CHECKING, Callable, NamedTuple, Optional, Union

from .. import __version__, clusters, decisionlog, route, shim
from ..core.request import Given
from ..environ import policy_paths, say, say_text, switched_off
from ..slurm.options import parse
from ..slurm.script import respool_stdin

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import FrameType

    from ..core.request import Request

#: sbatch ended well and yet there is no job id in what it printed (EX_PROTOCOL).
NO_ID = 76

USAGE = """\
usage: sbatch-router-submit [SBATCH OPTIONS] JOBSCRIPT

Submit to the account that has room and print the bare job id. For Snakemake:

  snakemake --executor cluster-generic \\
      --cluster-generic-submit-cmd sbatch-router-submit

Threads, memory, run time, GPUs, partition and account come from the rule's
resources unless the command line, the environment or the script gives them.

exit status: sbatch's own; 75 refused, everything is full now; 77 refused, no
account may ever run it; 76 sbatch succeeded and printed no job id
"""

#: Snakemake resources that count GPUs, and those that name their type; the first wins.
GPU_COUNTS = ("gpu", "gpus", "nvidia_gpu", "amd_gpu")
GPU_TYPES = ("gpu_model", "gpu_type")

#: sbatch options that say how many CPUs a job has: with any of them, threads add nothing.
_CPU_OPTIONS = ("cpus-per-task", "ntasks", "ntasks-per-node", "cpus-per-gpu", "mincpus")
_TASK_OPTIONS = ("ntasks", "ntasks-per-node", "ntasks-per-gpu", "ntasks-per-socket")
_MEMORY_OPTIONS = ("mem", "mem-per-cpu", "mem-per-gpu")
_GPU_OPTIONS = ("gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket")
#: Options in which a GPU may be one entry among others.
_GRES_OPTIONS = ("gres", "tres-per-task")

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: Most characters of a job name made here.
_NAME_LENGTH = 128
_NAME_SIGNS = frozenset("._+=-")


class Wanted(NamedTuple):
    """What a jobscript's properties add to the call."""

    #: sbatch options, as one word each.
    options: tuple[str, ...] = ()
    #: ``account`` and ``qos``, which the policy may overrule: a resource is part of the
    #: workflow, as an ``#SBATCH`` line is part of a script.
    pool: Mapping[str, str] = {}


def main() -> int:
    """Submit ``sys.argv`` and return the exit status; a refusal ends the process itself."""
    argv = sys.argv[1:]
    if argv in (["-h"], ["--help"]):
        sys.stdout.write(USAGE)
        return 0
    if argv in (["-V"], ["--version"]):
        sys.stdout.write(f"sbatch-router {__version__}\n")
        return 0
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        # Until sbatch runs, Ctrl-C ends this without a traceback.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    status, output = run_sbatch(arguments(argv))
    return report(status, output)


def arguments(argv: Sequence[str]) -> list[str]:
    """What to call sbatch with. Where something of ours fails: as much of it as there is."""
    best = _with_parsable(argv)
    pool: Mapping[str, str] = {}
    try:
        call = route.read_call(best, posix.environ)
        wanted = from_properties(call.request)
        if call.parsed.doubts and not call.request.properties:
            # Its argument, if it is the next word, stands where the script's name would.
            say(f"a rule's resources are not read: {call.parsed.doubts[0]} (--NAME=VALUE?)")
        # In front: an option that we do not know may take the next word as its argument.
        best, pool = [*wanted.options, *best], wanted.pool
        best = decided(best, pool)
    except Exception as error:
        # Our own bug must not cost a job: say so in one line, and submit.
        say(f"internal error, submitted as you wrote it: {type(error).__name__}: {error}")
    return with_pool(best, pool)


def decided(argv: list[str], pool: Mapping[str, str]) -> list[str]:
    """What the policy makes of the call, as `route.route` does for the shim.

    The account and QOS of `pool` are judged as if an ``#SBATCH`` line named them. Ends the
    process with 75 or 77 when the policy refuses the job.
    """
    environ = posix.environ
    paths = policy_paths(environ)
    if not paths or switched_off(environ):
        return argv
    asked = {name: Given(value, "script") for name, value in pool.items()}
    return route.route(argv, environ, paths, asked)


def with_pool(argv: list[str], pool: Mapping[str, str]) -> list[str]:
    """`argv` with the account and QOS of the resources, unless it now has its own account."""
    there = {name for name, _ in parse(argv).options}
    if "account" in there:
        return argv
    return [*(f"--{name}={value}" for name, value in pool.items() if name not in there), *argv]


def _with_parsable(argv: Sequence[str]) -> list[str]:
    """`argv` such that sbatch prints ``ID`` or ``ID;CLUSTER``, and not nothing (``-Q``)."""
    given = list(argv)
    options = parse(given).options
    while ("quiet", "") in options:
        shorter = _without_quiet(given)
        if shorter is None:
            break
        given = shorter
        options = parse(given).options
    return given if ("parsable", "") in options else ["--parsable", *given]


def _without_quiet(argv: list[str]) -> Optional[list[str]]:
    """`argv` less one ``--quiet``, ``-Q`` or the Q of ``-vQ``; None if it cannot be told."""
    before = parse(argv)
    left = list(before.options)
    left.remove(("quiet", ""))
    for index, word in enumerate(argv[: before.operands]):
        if word[:2] == "--":
            words: list[str] = []
        elif word[:1] == "-" and "Q" in word:
            rest = word.replace("Q", "", 1)
            words = [rest] if rest != "-" else []
        else:
            continue
        shorter = [*argv[:index], *words, *argv[index + 1 :]]
        if sorted(parse(shorter).options) == sorted(left):
            return shorter
    return None


# -- what the rule asks for ---------------------------------------------------------------------


def from_properties(request: Request) -> Wanted:
    """The sbatch options for a Snakemake job's resources that the call does not give itself.

    ==========================================  ==========================================
    `threads` (or resource `cpus_per_task`)     ``--cpus-per-task``
    `mem_mb_per_cpu`, else `mem_mb`             ``--mem-per-cpu``, ``--mem``
    `runtime` (minutes)                         ``--time``
    `nodes`, `tasks`                            ``--nodes``, ``--ntasks``
    `gres`                                      ``--gres``
    `gpu` `gpus` `nvidia_gpu` `amd_gpu`,
    with `gpu_model` or `gpu_type`              ``--gpus=[TYPE:]N``
    `slurm_partition`, `constraint`             ``--partition``, ``--constraint``
    `slurm_account`, `slurm_qos` or `qos`       the pool that is asked for
    `slurm_extra`                               as it is
    rule and wildcards                          ``--job-name=RULE.VALUE``
    ==========================================  ==========================================

    What is not a number where one is needed (``<TBD>``), or is zero, adds nothing.
    """
    properties = request.properties
    if not properties:
        return Wanted()
    found = properties.get("resources")
    resources: Mapping[str, object] = found if isinstance(found, dict) else {}
    extra = _extra(resources.get("slurm_extra"))
    given = {**dict.fromkeys(request.options, ""), **dict(parse(extra).options)}
    for name in _GRES_OPTIONS:
        option = request.given(name)
        if option is not None:
            given[name] = option.value

    options = []

    def add(name: str, value: object, instead: Sequence[str] = ()) -> None:
        if value not in (None, "") and name not in given and not given.keys() & set(instead):
            options.append(f"--{name}={value}")

    add("job-name", job_name(properties))
    threads = resources.get("cpus_per_task", properties.get("threads"))
    add("cpus-per-task", _count(threads), _CPU_OPTIONS)
    add("nodes", _count(resources.get("nodes")))
    add("ntasks", _count(resources.get("tasks")), _TASK_OPTIONS)
    per_cpu = _count(resources.get("mem_mb_per_cpu"))
    add("mem-per-cpu", per_cpu, _MEMORY_OPTIONS)
    if per_cpu is None:
        add("mem", _count(resources.get("mem_mb")), _MEMORY_OPTIONS)
    add("time", _count(resources.get("runtime")))
    if not any("gpu" in given.get(name, "") for name in _GRES_OPTIONS):
        gres = _word(resources.get("gres"))
        add("gres", gres, _GPU_OPTIONS)
        if gres is None or "gpu" not in gres:
            add("gpus", _gpus(resources), _GPU_OPTIONS)
    add("partition", _word(resources.get("slurm_partition")))
    add("constraint", _word(resources.get("constraint")))
    asked = {
        "account": _word(resources.get("slurm_account")),
        "qos": _word(resources.get("slurm_qos")) or _word(resources.get("qos")),
    }
    pool = {name: value for name, value in asked.items() if value and name not in given}
    return Wanted((*options, *extra), pool)


def _count(value: object) -> Optional[int]:
    """A positive whole number, rounded up; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
        whole = int(number)
    except (ValueError, OverflowError):
        return None
    whole += whole < number
    return whole if whole > 0 else None


def _word(value: object) -> Optional[str]:
    """A resource that is text; None when it is empty, unknown or no text."""
    text = value.strip() if isinstance(value, str) else ""
    return None if not text or text.startswith("<") else text


def _gpus(resources: Mapping[str, object]) -> Optional[str]:
    """``N`` or ``TYPE:N``; a count may itself be written ``TYPE:N``."""
    for name in GPU_COUNTS:
        kind, _, count = str(resources.get(name, "")).rpartition(":")
        number = _count(count)
        if number is None:
            continue
        named = (_word(resources.get(key)) for key in GPU_TYPES)
        kind = kind or next((text for text in named if text), "")
        return f"{kind}:{number}" if kind else str(number)
    return None


def _extra(value: object) -> list[str]:
    """The words of `slurm_extra`; none, and a line, when they are not options alone."""
    if not isinstance(value, str) or not value.strip():
        return []
    try:
        words = shlex.split(value)
        if len(words) == 1 and " " in words[0]:
            # Quoted as a whole, as profiles need it: slurm_extra="'--mem=1G --time=2'".
            inner = shlex.split(words[0])
            words = inner if all(word.startswith("-") for word in inner) else words
    except ValueError as error:
        say(f"slurm_extra left out: {error}: {value}")
        return []
    parsed = parse(words)
    if parsed.doubts or parsed.operands < len(words):
        why = parsed.doubts[0] if parsed.doubts else f"{words[parsed.operands]} is no option"
        say(f"slurm_extra left out: {why}")
        return []
    return words


def job_name(properties: Mapping[str, object]) -> Optional[str]:
    """``RULE.VALUE.VALUE``, the wildcards' values in their order; a group job has its id."""
    rule = properties.get("rule") or properties.get("groupid")
    if not isinstance(rule, str) or not rule:
        return None
    wildcards = properties.get("wildcards")
    values = wildcards.values() if isinstance(wildcards, dict) else ()
    name = ".".join([rule, *(str(value) for value in values)])[:_NAME_LENGTH]
    return "".join(c if (c.isascii() and c.isalnum()) or c in _NAME_SIGNS else "_" for c in name)


# -- sbatch and what it prints ------------------------------------------------------------------


def run_sbatch(argv: Sequence[str]) -> tuple[int, str]:
    """Run the real sbatch to its end: its exit status and its standard output.

    The output goes to a file, not a pipe: a process that the site's sbatch leaves behind
    cannot keep us waiting. Ctrl-C is sbatch's to answer: if it has submitted, the id counts.
    """
    output = respool_stdin(b"")
    os.set_inheritable(output, False)
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    child = os.fork()
    if child == 0:
        try:
            os.dup2(output, 1)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            shim.become_sbatch(argv)
        finally:
            os._exit(126)
    before = {number: signal.signal(number, _passing_on(child, number)) for number in _SIGNALS}
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    _, status = os.waitpid(child, 0)
    for number, handler in before.items():
        signal.signal(number, handler)
    os.lseek(output, 0, os.SEEK_SET)
    with open(output, "rb") as file:
        text = file.read().decode("utf-8", "surrogateescape")
    if os.WIFSIGNALED(status):
        return 128 + os.WTERMSIG(status), text
    return os.WEXITSTATUS(status), text


def _passing_on(child: int, number: int) -> Union[Callable[[int, Optional[FrameType]], None], int]:
    """The handler for a signal while sbatch runs. A terminal sends SIGINT to sbatch itself."""
    if number == signal.SIGINT or signal.getsignal(number) is signal.SIG_IGN:
        return signal.SIG_IGN

    def handler(received: int, frame: Optional[FrameType]) -> None:
        os.kill(child, received)

    return handler


def report(status: int, output: str) -> int:
    """Print the id, or say why there is none, and return the exit status."""
    found = find_id(output)
    if status or found is None:
        say_text(output)
        if not status:
            say("sbatch succeeded, but there is no job id in what it printed (above)")
            return NO_ID
        return status
    job, cluster, rest = found
    say_text(rest)
    _log(job, cluster)
    try:
        posix.write(1, f"{job}\n".encode())
    except OSError as error:
        say(f"job {job} is submitted, but its id could not be printed: {error.strerror}")
        return 1
    return 0


def find_id(output: str) -> Optional[tuple[str, str, str]]:
    """Job id, cluster (or empty) and the other lines of what sbatch printed; None: no id.

    The id is a line that is ``ID;CLUSTER`` or ``ID`` alone, or a sentence ``Submitted batch
    job ID [on cluster CLUSTER]``: the first of these kinds that there is, and its last line.
    """
    lines = output.splitlines(keepends=True)
    for read in (_id_and_cluster, _id_alone, _id_in_sentence):
        found = [(i, *read(line.strip())) for i, line in enumerate(lines)]
        found = [(i, job, cluster) for i, job, cluster in found if _is_id(job)]
        if not found:
            continue
        index, job, cluster = found[-1]
        if len({other for _, other, _ in found}) > 1:
            say(f"several lines of sbatch's output look like a job id; taking {job}")
        return job, cluster, "".join(lines[:index] + lines[index + 1 :])
    return None


def _id_and_cluster(line: str) -> tuple[str, str]:
    job, _, cluster = line.partition(";")
    return (job, cluster) if len(cluster.split()) == 1 else ("", "")


def _id_alone(line: str) -> tuple[str, str]:
    return line, ""


def _id_in_sentence(line: str) -> tuple[str, str]:
    words = line.partition("Submitted batch job ")[2].split()
    on_cluster = len(words) > 3 and words[1:3] == ["on", "cluster"]
    return (words[0] if words else "", words[3] if on_cluster else "")


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdigit() and int(text) > 0


def _log(job: str, cluster: str) -> None:
    """Append the id to the user's log, beside the decision (which has the same `pid`).

    Snakemake hands the id back as it was printed, bare: where the job is on another cluster
    (``-M``), status and cancel must find that out by themselves.
    """
    decisionlog.write("submitted", {"job_id": job, "cluster": cluster}, posix.environ)
    try:
        clusters.remember(job, cluster, posix.environ)
    except OSError as error:
        if cluster:
            say(
                f"job {job} is on cluster {cluster}, which status and cancel will not know: "
                f"cannot write to ~/.local/state/sbatch-router: {error.strerror}"
            )


if __name__ == "__main__":
    sys.exit(main())
