"""The table of a policy's keys: the loader, the JSON Schema and docs/policy.md all read it."""

from __future__ import annotations

from typing import Dict, NamedTuple, Tuple

VERSION = "1"


class Key(NamedTuple):
    """One key of one mapping of the policy."""

    name: str
    #: What it holds; schema.py knows a schema for each.
    kind: str
    about: str
    default: str = ""
    required: bool = False
    #: The words it may be, each with what it means.
    words: Tuple[Tuple[str, str], ...] = ()


class Matcher(NamedTuple):
    """One fact a condition may test. `kind`: count, mem, time, text or folded (any case)."""

    name: str
    kind: str
    about: str
    #: The least the fact can be.
    least: int = 0


MATCHERS: Tuple[Matcher, ...] = (
    Matcher("gpus", "count", "GPUs, of any type."),
    Matcher(
        "gpu_type",
        "folded",
        "GPU types the job names, such as `a100` in `--gres=gpu:a100:2`. A job that asks for "
        "a GPU without a type, or for none, names no type.",
    ),
    Matcher("cpus", "count", "CPUs.", 1),
    Matcher("mem", "mem", "Memory."),
    Matcher("nodes", "count", "Nodes.", 1),
    Matcher("time", "time", "The job's time limit."),
    Matcher(
        "partition",
        "folded",
        "The partition the job goes to, or any of them (`-p a,b`); the default partition if "
        "the job names none.",
    ),
    Matcher("array", "count", "Tasks of the job array; 1 for a job that is no array.", 1),
    Matcher(
        "job_name", "text", "The job's name, as sbatch would set it: the script's without one."
    ),
    Matcher("user", "text", "The user who submits."),
    Matcher(
        "rule",
        "text",
        "The Snakemake rule. For a group job, the rule of any job in the group.",
    ),
    Matcher(
        "attempt",
        "count",
        "Snakemake's attempt at the job: 1 at first, 2 for the first retry.",
        1,
    ),
)

#: ``wildcards.NAME``: one fact for each wildcard of a Snakemake job.
WILDCARD = Matcher(
    "wildcards.NAME",
    "text",
    "The value of the wildcard NAME in a Snakemake job. A group job has no wildcards.",
)

WILDCARD_KEY = r"wildcards\.[A-Za-z_][A-Za-z0-9_]*"

BY_NAME: Dict[str, Matcher] = {matcher.name: matcher for matcher in MATCHERS}

ORDER: Tuple[Tuple[str, str], ...] = (
    ("gpu", "most GPU headroom first"),
    ("mem", "most memory headroom first"),
    ("cpu", "most CPU headroom first"),
    ("node", "most node headroom first"),
    ("billing", "most billing headroom first"),
    ("fit", "least left over first: keeps large gaps for large jobs"),
    ("backlog", "fewest pending jobs of my own first"),
    ("fairshare", "best fair-share factor first"),
    ("primary", "an account's first QOS before any account's second: burst as a last resort"),
    ("listed", "as listed in the policy"),
)

WHEN_FULL: Tuple[Tuple[str, str], ...] = (
    (
        "refuse",
        "do not submit; exit with 75 and say what is full (with --begin or --dependency: queue)",
    ),
    ("queue", "submit to the best candidate and let the job wait in its queue"),
    ("wait", "look again until there is room, for at most the time given; then refuse"),
)

OWN_BACKLOG: Tuple[Tuple[str, str], ...] = (
    ("queue", "submit behind my own jobs where my own backlog is smallest"),
    ("refuse", "treat it as full: `when_full` decides"),
)

EXPLICIT: Tuple[Tuple[str, str], ...] = (
    ("keep", "the job stays in the account it names"),
    ("prefer", "the account it names is used if the job fits there, else another"),
    ("override", "the account it names is one candidate like the others"),
)

POLICY: Tuple[Key, ...] = (
    Key("version", "version", "The version of this format: `1`.", required=True),
    Key(
        "accounts",
        "accounts",
        "The accounts the router may choose, in order of preference when all else is equal: "
        "names, or mappings (see below). Required, unless the file only has `blocked`: then "
        "nothing is moved, and the blocks bind the policies of the users.",
    ),
    Key(
        "blocked",
        "blocked",
        "Accounts the router must not choose, each with the reason. In a site's file they "
        "bind users with a policy of their own, too.",
        "none",
    ),
    Key(
        "rules",
        "rules",
        "The first rule whose `when` holds decides for the job. A job that no rule matches may "
        "go to any of the accounts, in the default order.",
        "none",
    ),
    Key(
        "when_full",
        "when_full",
        "What to do when no candidate has room.",
        "refuse",
        words=WHEN_FULL,
    ),
    Key(
        "own_backlog",
        "words",
        "What to do when only my own jobs are in the way.",
        "queue",
        words=OWN_BACKLOG,
    ),
    Key(
        "explicit_account",
        "explicit_account",
        "What to do with a job that names one of the accounts itself, by where it does.",
        "{cli: keep, env: prefer, script: prefer}",
    ),
    Key(
        "when_slurm_unreachable",
        "words",
        "What to do when Slurm does not answer.",
        "submit",
        words=(
            ("submit", "run sbatch as it was called"),
            ("refuse", "do not submit"),
        ),
    ),
    Key(
        "source",
        "words",
        "Where live usage comes from.",
        "auto",
        words=(
            ("auto", "pyslurm where it is installed and fits this Slurm, else scontrol"),
            ("pyslurm", "pyslurm only"),
            ("scontrol", "scontrol only"),
        ),
    ),
    Key(
        "cache",
        "duration",
        "How long an answer of Slurm's is used before it is asked again: `5s`, `2m`, or `0` to "
        "ask for every job. At most `1h`.",
        "5s",
    ),
)

ACCOUNT: Tuple[Key, ...] = (
    Key("name", "name", "The Slurm account.", required=True),
    Key(
        "qos",
        "names",
        "The QOS to submit with, one or a list in order of preference.",
        "the association's default QOS",
    ),
    Key(
        "only",
        "when",
        "Conditions a job must meet to go to this account, as in a rule's `when`.",
        "any job",
    ),
)

BLOCKED: Tuple[Key, ...] = (
    Key("account", "name", "The Slurm account.", required=True),
    Key(
        "reason",
        "reason",
        "Why; shown wherever the account is left out. The why is what lets somebody lift the "
        "block later.",
        required=True,
    ),
    Key("since", "date", "The day it was blocked, as `2026-03-02`.", "not said"),
    Key(
        "review",
        "date",
        "The day to think about it again; from then on every command says so.",
        "never",
    ),
)

RULE: Tuple[Key, ...] = (
    Key("name", "label", "A name for messages; no two rules share one.", "`rule 2` for the second"),
    Key("when", "when", "Conditions; all must hold.", "any job"),
    Key(
        "order",
        "order",
        "How to choose among candidates with room: one key or a list, the first that differs "
        "decides. Equal candidates stay as listed.",
        "gpu, mem, cpu for a job with GPUs; mem, cpu for others",
        words=ORDER,
    ),
    Key(
        "candidates",
        "candidates",
        "Narrows the choice: `account` or `account/qos`, one or a list. `account` alone means "
        "every QOS of its entry in `accounts`.",
        "all accounts",
    ),
    Key(
        "when_full",
        "when_full",
        "As for the whole policy, for this rule's jobs.",
        "the policy's",
        words=WHEN_FULL,
    ),
    Key(
        "own_backlog",
        "words",
        "As for the whole policy, for this rule's jobs.",
        "the policy's",
        words=OWN_BACKLOG,
    ),
)

EXPLICIT_ACCOUNT: Tuple[Key, ...] = (
    Key("cli", "words", "Named with `-A` on the command line.", "keep", words=EXPLICIT),
    Key("env", "words", "Named in `SBATCH_ACCOUNT`.", "prefer", words=EXPLICIT),
    Key("script", "words", "Named in an `#SBATCH` line.", "prefer", words=EXPLICIT),
)


def names(keys: Tuple[Key, ...]) -> Tuple[str, ...]:
    return tuple(key.name for key in keys)


def words(keys: Tuple[Key, ...], name: str) -> Tuple[str, ...]:
    """The words that the key `name` may be."""
    found = next(key for key in keys if key.name == name)
    return tuple(word for word, _ in found.words)
