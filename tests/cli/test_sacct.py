"""sacct's rows: memory strings of all releases, arrays, broken answers."""

from __future__ import annotations

import pytest

from sbatch_router.cli._sacct import _FIELDS, array_tasks, known_jobs, parse, parse_queue, req_mem


@pytest.mark.parametrize(
    ("text", "cpus", "nodes", "mib"),
    [
        ("4Gn", 8, 2, 8192),
        ("4Gc", 8, 2, 32768),
        ("0n", 8, 2, 0),
        ("0", 8, 2, 0),
        ("10000Mn", 1, 1, 10000),
        ("10000Mn", 4, 3, 30000),
        ("4G", 8, 2, 4096),
        ("62.50G", 8, 2, 64000),
        ("512K", 1, 1, 1),
        ("100", 1, 1, 100),
        ("1.50Tc", 2, 1, 3145728),
        ("", 8, 2, None),
        (" ", 8, 2, None),
        ("n", 8, 2, None),
        ("c", 8, 2, None),
        ("?", 8, 2, None),
        ("16?", 8, 2, None),
        ("-1", 8, 2, None),
        ("nan", 8, 2, None),
        ("4Gn", 0, 0, 4096),
    ],
)
def test_req_mem(text: str, cpus: int, nodes: int, mib: object) -> None:
    assert req_mem(text, cpus, nodes) == mib


@pytest.mark.parametrize(
    ("task", "tasks"),
    [
        ("", 1), ("3", 1), ("[0-9]", 10), ("[0-9%2]", 10), ("[1,3,7-9]", 5), ("[0-10:5]", 3),
        ("[1-4,10-20:5%3]", 7), ("[...]", 1), ("[9-1]", 1),
    ],
)  # fmt: skip
def test_array_tasks(task: str, tasks: int) -> None:
    assert array_tasks(task) == tasks


def row(**cells: str) -> str:
    fields = {
        "JobID": "7", "Account": "Clive", "QOS": "clive", "Partition": "main", "Submit": "100",
        "Eligible": "100", "Start": "Unknown", "End": "Unknown", "State": "PENDING",
        "Reason": "QOSGrpMemLimit", "ReqTRES": "billing=1,cpu=8,mem=125G,node=1",
        "ReqMem": "125G", "ReqCPUS": "8", "ReqNodes": "1", "ExitCode": "0:0", "JobName": "x",
    }  # fmt: skip
    return "\x1f".join({**fields, **cells}[name] for name in _FIELDS) + "\n"


def read(*rows: str) -> list:
    found = parse("".join(rows).encode("utf-8", "surrogateescape"))
    assert not found.trouble
    return list(found.jobs)


def test_a_pending_job() -> None:
    (job,) = read(row(JobName="a|b \x1e c"))
    assert (job.id, job.account, job.state, job.start) == ("7", "clive", "PENDING", None)
    assert job.tres == {"billing": 1, "cpu": 8, "mem": 128000, "node": 1}
    assert job.name == "a|b \x1e c"


def test_states_are_bare() -> None:
    states = [read(row(State=s))[0].state for s in ("CANCELLED by 1001", "COMPLETED", "CANCELLED+")]
    assert states == ["CANCELLED", "COMPLETED", "CANCELLED"]


def test_the_tasks_of_an_array_are_one_job() -> None:
    (job,) = read(
        row(JobID="7_[2-9%2]"),
        row(JobID="7_0", State="COMPLETED", Start="105", End="110", Reason="None"),
        row(JobID="7_1", State="RUNNING", Start="103", Reason="None"),
    )
    assert (job.id, job.tasks, job.state) == ("7", 10, "PENDING")
    assert (job.start, job.end, job.reason) == (103, None, "QOSGrpMemLimit")


def test_memory_from_reqmem_where_reqtres_has_none() -> None:
    (job,) = read(row(ReqTRES="cpu=8,node=2", ReqMem="4Gc", ReqCPUS="8", ReqNodes="2"))
    assert job.tres["mem"] == 32768
    (job,) = read(row(ReqTRES="", ReqMem="0n"))
    assert job.tres == {}


def test_broken_rows_are_counted() -> None:
    found = parse((row() + "a line of two\n" + row(JobID="x") + row(Submit="Unknown")).encode())
    assert (len(found.jobs), found.bad) == (1, 3)
    assert parse(b"") == parse(b"\n\n")


def test_a_name_that_is_not_utf8() -> None:
    (job,) = read(row(JobName="\udcff"))
    assert job.name == "\udcff"


def queued(*cells: str) -> bytes:
    return ("\x1f".join(cells) + "\x1f\n").encode()


def test_what_slurmctld_says_now_counts() -> None:
    pending = queued(
        "7_[3-9]", "clive", "clive", "main", "100", "999", "1999", "PENDING", "Priority",
        "cpu=8,mem=125G", "x",
    )  # fmt: skip
    new = queued(
        "8", "clive", "clive", "main", "105", "106", "999", "RUNNING", "None", "cpu=1", "y"
    )
    queue = parse_queue(pending + new + b"junk\n")
    assert queue.bad == 1
    first, second = queue.jobs
    assert (first.id, first.start, first.end, first.tasks) == ("7", None, None, 7)
    assert (second.name, second.start, second.end, second.reason) == ("y", 106, None, "")
    both = known_jobs(parse(row().encode()), queue)
    assert [(job.id, job.state, job.reason) for job in both] == [
        ("7", "PENDING", "Priority"),
        ("8", "RUNNING", ""),
    ]
    assert both[0].tres == {"billing": 1, "cpu": 8, "mem": 128000, "node": 1}
