"""sbatch's command line grammar, as glibc's getopt_long reads it."""

from __future__ import annotations

import pytest

from sbatch_router.slurm.options import ENVIRONMENT, LONG, SHORT, environment, full_name, parse


@pytest.mark.parametrize(
    ("argv", "options", "operands"),
    [
        ([], [], 0),
        (["job.sh", "-N2"], [], 0),
        (["-N2", "job.sh"], [("nodes", "2")], 1),
        (["-N", "2", "--nodes=3", "job.sh"], [("nodes", "2"), ("nodes", "3")], 3),
        (["--nodes", "2", "job.sh"], [("nodes", "2")], 2),
        (["--account", "job.sh"], [("account", "job.sh")], 2),  # B40: the script is then stdin
        (["-HOn4", "x"], [("hold", ""), ("overcommit", ""), ("ntasks", "4")], 1),
        (["-n", "-4"], [("ntasks", "-4")], 2),
        (["--exclusive", "user"], [("exclusive", "")], 1),
        (["--exclusive=user"], [("exclusive", "user")], 1),
        (["-k", "off"], [("no-kill", "")], 1),
        (["-koff"], [("no-kill", "off")], 1),
        (["--", "-N2"], [], 1),
        (["-", "-N2"], [], 0),
        (["--mem="], [("mem", "")], 1),
        (["-J", "--"], [("job-name", "--")], 2),
        (["--cluster=a"], [("clusters", "a")], 1),
        (["--tasks-per-node=3"], [("ntasks-per-node", "3")], 1),
        (["--acco=x", "--part", "p"], [("account", "x"), ("partition", "p")], 3),
        (["--gpus-per-n=1"], [("gpus-per-node", "1")], 1),
        (["--comment=a=b"], [("comment", "a=b")], 1),
    ],
)
def test_parse(argv: list[str], options: list[tuple[str, str]], operands: int) -> None:
    found = parse(argv)
    assert (list(found.options), found.operands, found.doubts) == (options, operands, ())


def test_an_option_put_at_insert_wins_over_all_before_it() -> None:
    for argv in (["-Aa", "x"], ["-Aa", "--", "x"], ["-Aa"]):
        at = parse(argv).insert
        assert parse([*argv[:at], "--account=b", *argv[at:]]).options[-1] == ("account", "b")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--spank-thing"], "spank-thing"),
        (["--exclu"], "exclu"),  # exclude, exclusive
        (["--clust=x"], "clust"),  # three options, two meanings
        (["-N"], "-N"),
        (["--mem"], "--mem"),
        (["--hold=yes"], "--hold"),
        (["-Z"], "-Z"),
    ],
)
def test_what_getopt_refuses_is_a_doubt(argv: list[str], words: str) -> None:
    assert words in parse(argv).doubts[0]


def test_names() -> None:
    assert full_name("exclus") == "exclusive"
    assert full_name("time") == "time"  # exact, though time-min begins with it
    assert full_name("") is None
    assert set(SHORT.values()) <= set(LONG)
    assert {option for _, option in ENVIRONMENT} <= set(LONG)


@pytest.mark.parametrize(
    ("value", "found"),
    [("", ""), ("yes", ""), ("YES", ""), ("1", ""), ("-3", ""), ("0", None), ("no", None),
     ("1x", None)],
)  # fmt: skip
def test_flag_variables(value: str, found: object) -> None:
    assert environment({"SBATCH_OVERCOMMIT": value}) == [("overcommit", found)]


def test_variables() -> None:
    environ = {
        "SBATCH_HINT": "b", "SLURM_HINT": "a", "SBATCH_CLUSTERS": "a", "SLURM_CLUSTERS": "b",
        "SLURM_ACCOUNT": "no", "SLURM_JOB_ACCOUNT": "no", "SALLOC_ACCOUNT": "no",
        "SBATCH_EXCLUSIVE": "", "SBATCH_ACCOUNT": "lab-b",
    }  # fmt: skip
    assert dict(environment(environ)) == {
        "hint": "b", "clusters": "b", "exclusive": "", "account": "lab-b"
    }  # fmt: skip
