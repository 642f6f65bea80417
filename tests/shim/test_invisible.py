"""Where nothing is to be changed, nobody can tell the shim from sbatch: output, status, job."""

from __future__ import annotations

import os
import pty
import re
import threading
import time
from pathlib import Path
from typing import Any, Callable

import pytest

from .conftest import Bed, Result

#: One account, alice's default, and the queue when it is full: nothing ever changes.
SAME = """\
version: 1
accounts: [clive]
when_full: queue
explicit_account: {cli: prefer, env: prefer, script: prefer}
cache: 0
"""

MODES = ("no policy", "off", "same")

SCRIPT = b"#!/bin/sh\n#SBATCH -J stdin -H\nexit 0\n"


def mode(name: str) -> dict[str, Any]:
    """Options of `Bed.sbatch` for one way of being invisible."""
    if name == "no policy":
        return {}
    return {"policy": SAME, "env": {"SBATCH_ROUTER": "off"} if name == "off" else {}}


@pytest.fixture(scope="module")
def scripts(bed: Bed) -> Path:
    """Batch scripts, good and bad."""
    for name, content in {
        "good.sh": b"#!/bin/sh\n#SBATCH -H\nexit 0\n",
        "no-eol.sh": b"#!/bin/sh\n#SBATCH -H\nexit 0",
        "only-shebang.sh": b"#!/bin/sh",
        "empty.sh": b"",
        "blank.sh": b"\n \n\t\n",
        "no-shebang.sh": b"exit 0\n",
        "dos.sh": b"#!/bin/sh\r\nexit 0\r\n",
        "nul.sh": b"#!/bin/sh\nexit 0\0\n",
        "bad-directive.sh": b"#!/bin/sh\n#SBATCH --nonsense\nexit 0\n",
        "word-directive.sh": b"#!/bin/sh\n#SBATCH nonsense\nexit 0\n",
        "bad-value.sh": b"#!/bin/sh\n#SBATCH --mem=lots\nexit 0\n",
        "placeholder.sh": b"#!/bin/sh\n#SBATCH -A $proj\nexit 0\n",
        "latin1.sh": b"#!/bin/sh\n#SBATCH -H -J caf\xe9\n# \xff\xfe\nexit 0\n",
        "unreadable.sh": b"#!/bin/sh\nexit 0\n",
    }.items():
        bed.write_script(name, content, 0 if name == "unreadable.sh" else 0o755)
    (bed.scripts / "dir.sh").mkdir(exist_ok=True)
    return bed.scripts


#: Arguments -> whether, under a policy, one line of ours may come first: sbatch's
#: call is one that we do not judge, and nothing is wrong with the script.
CALLS: list[Any] = [
    (("good.sh",), False),
    (("good.sh", "an", "argument", "-A", "not-an-option"), False),
    (("no-eol.sh",), False),
    (("only-shebang.sh",), False),
    (("latin1.sh",), False),
    (("--parsable", "good.sh"), False),
    (("-Q", "good.sh"), False),
    (("--parsable", "-Q", "good.sh"), False),
    (("-M", "bed", "--parsable", "good.sh"), False),
    (("--array=1-3", "good.sh"), False),
    (("-H", "--wrap", "true", ":", "--wrap", "true"), True),
    (("-H", "-n1", ":", "-n2", "good.sh"), True),
    (("--test-only", "good.sh"), False),
    (("--test-only", "-n100000", "good.sh"), False),
    (("--help",), False),
    (("-h",), False),
    (("--usage",), False),
    (("--version",), False),
    (("-V",), False),
    (("--help", "missing.sh"), False),
    (("-H", "--wrap", ""), False),
    (("-H", "--wrap", "true", "good.sh"), True),
    (("--nonsense", "good.sh"), True),
    (("--nonsense",), False),
    (("-?",), False),
    (("--acc=clive", "good.sh"), True),
    (("--account",), False),
    (("-A",), False),
    (("--mem=lots", "good.sh"), True),
    (("-t", "soon", "good.sh"), True),
    (("-N", "0", "good.sh"), True),
    (("-p", "nowhere", "good.sh"), True),
    (("-q", "nowhere", "good.sh"), True),
    (("--dependency=afterok:999999999", "good.sh"), False),
    (("missing.sh",), False),
    (("dir.sh",), False),
    (("unreadable.sh",), False),
    (("empty.sh",), False),
    (("blank.sh",), False),
    (("no-shebang.sh",), False),
    (("dos.sh",), False),
    (("nul.sh",), False),
    (("bad-directive.sh",), True),
    (("word-directive.sh",), True),
    (("bad-value.sh",), True),
    (("-q", "", "good.sh"), False),
    # B04, B53: what templates leave where an account should be.
    (("placeholder.sh",), False),
    (("-A", "(null)", "good.sh"), False),
    (("--account=null", "good.sh"), False),
    (("-A", "None", "good.sh"), False),
    (("--account=", "good.sh"), False),
    (("-A", "$proj", "good.sh"), False),
    (("-A", "", "good.sh"), False),
]


@pytest.mark.parametrize(
    ("args", "one_line"), CALLS, ids=[" ".join(getattr(c, "values", c)[0]) for c in CALLS]
)
def test_B36_B50_B53_same_output_and_status(
    bed: Bed, scripts: Path, args: tuple[str, ...], one_line: bool
) -> None:
    bare = bed.sbatch(*args, shim=False, cwd=scripts).plain
    for name in MODES:
        ours = bed.sbatch(*args, cwd=scripts, **mode(name)).plain
        if name == "same" and one_line and ours != bare:
            said = ours.err[: len(ours.err) - len(bare.err)]
            assert re.fullmatch(rb"sbatch-router: submitted as you wrote it: [^\n]+\n", said), ours
            ours = ours._replace(err=ours.err[len(said) :])
        assert ours == bare, name


def test_B36_wait_returns_the_jobs_own_status(bed: Bed) -> None:
    args = ("sbatch", "--wait", "-Q", "--wrap", "exit 7")
    started = [bed.popen(args, shim=False)]
    started += [bed.popen(args, **mode(name)) for name in MODES]
    results = [(p.communicate(timeout=60), p.returncode) for p in started]
    assert results == [((b"", b""), 7)] * 4


def test_the_job_itself_is_the_same(bed: Bed, scripts: Path) -> None:
    """Name, command, directories, account, limits: everything slurmctld stores."""
    ignored = ("JobId", "SubmitTime", "EligibleTime", "AccrueTime", "Priority", "StartTime",
               "EndTime", "LastSchedEval", "AllocNode:Sid", "Scheduler")  # fmt: skip

    def stored(**options: Any) -> list[dict[str, str]]:
        jobs = [
            bed.sbatch("good.sh", "a b", cwd=scripts, **options).job,
            bed.sbatch("-H", "--wrap", "echo 'x y'", cwd=scripts, **options).job,
            bed.sbatch(input=SCRIPT, cwd=scripts, **options).job,
            bed.sbatch("-H", "--export=A=1", "-o", "/dev/null", "-n2", "./good.sh",
                       cwd=scripts, **options).job,
        ]  # fmt: skip
        shown = [bed.show(job) for job in jobs]
        return [
            {k: v.replace(f"-{job}.out", "-N.out") for k, v in one.items() if k not in ignored}
            for job, one in zip(jobs, shown)
        ]

    bare = stored(shim=False)
    for name in MODES:
        ours = stored(**mode(name))
        for job, model in zip(ours, bare):
            if name == "same" and "SubmitLine" in job:
                # The account that it gets anyway is put in: it may change while this runs.
                line = job["SubmitLine"].replace(" --account=clive --qos=clive", "")
                job["SubmitLine"] = line
            assert job == model, name


# -- standard input --------------------------------------------------------------------------


def both(bed: Bed, call: Callable[..., Result]) -> Result:
    """Run bare and in every mode; all must be alike. Returns the bare result."""
    bare = call(shim=False).plain
    for name in MODES:
        assert call(**mode(name)).plain == bare, name
    return bare


def file_of(bed: Bed, content: bytes) -> Path:
    """A file to be redirected from."""
    return bed.write_script("stdin", content)


STDIN = {
    "good": (SCRIPT, 0, b""),
    "no shebang": (b"exit 0\n", 1, b"This does not look like a batch script."),
    "empty": (b"", 1, b"Batch script is empty!"),
    "blank": (b"\n\n", 1, b"Batch script contains only whitespace!"),
    "nul": (b"#!/bin/sh\n\0\n", 1, b"NULL"),
}


@pytest.mark.parametrize("kind", list(STDIN))
@pytest.mark.parametrize("how", ["pipe", "file", "/dev/stdin pipe", "/dev/stdin file"])
def test_B40_script_on_stdin(bed: Bed, kind: str, how: str) -> None:
    content, rc, words = STDIN[kind]
    args = ("-H", "/dev/stdin") if how.startswith("/dev") else ("-H",)

    def call(**options: Any) -> Result:
        if how == "pipe":
            return bed.sbatch(*args, input=content, **options)
        if how == "/dev/stdin pipe":
            # The shell's own pipe: another user's could not be opened by name.
            argv = ["sh", "-c", f"cat {file_of(bed, content)} | sbatch -H /dev/stdin"]
            return bed.call(argv, **options)
        with open(file_of(bed, content), "rb") as file:
            return bed.sbatch(*args, stdin=file, **options)

    bare = call(shim=False).plain
    assert bare.rc == rc
    assert words in bare.err
    for name in MODES:
        ours = call(**mode(name)).plain
        if name == "same" and how == "/dev/stdin pipe":
            # It can be read but once, by sbatch: not judged, which is said.
            assert ours.err in (bare.err, UNREAD + bare.err)
            ours = ours._replace(err=bare.err)
        assert ours == bare, name


UNREAD = b"sbatch-router: submitted as you wrote it: the script's directives could not be read\n"


@pytest.mark.parametrize(
    ("redirect", "words"),
    [
        ("<&-", b"Batch script is empty!"),
        ("</dev/null", b"Batch script is empty!"),
        pytest.param(
            "</tmp",
            b"Batch script is empty!",
            marks=pytest.mark.xfail(
                strict=True, reason="Python itself refuses to start with a directory as stdin"
            ),
        ),
    ],
)
def test_B40_no_script_on_stdin(bed: Bed, redirect: str, words: bytes) -> None:
    def call(**options: Any) -> Result:
        return bed.call(["sh", "-c", f"exec sbatch {redirect}"], **options)

    bare = both(bed, call)
    assert bare.rc == 1
    assert words in bare.err


def test_B40_terminal(bed: Bed) -> None:
    def call(**options: Any) -> Result:
        master, slave = pty.openpty()
        try:
            process = bed.popen(["sbatch", "-H"], stdin=slave, **options)
            os.write(master, SCRIPT + b"\x04")
            out, err = process.communicate(timeout=30)
            return Result(process.returncode, out, err)
        finally:
            os.close(master)
            os.close(slave)

    bare = call(shim=False).plain
    assert bare.rc == 0
    for name in MODES:
        ours = call(**mode(name)).plain
        assert ours._replace(err=ours.err.replace(UNREAD, b"")) == bare, name


def test_B40_slow_pipe(bed: Bed) -> None:
    """All of it is waited for, as long as it takes; the bytes arrive unchanged."""
    parts = [SCRIPT, b"# " + b"x" * 70000 + b"\n", b"# \xff\xfe\n", b"exit 1"]
    started = [bed.popen(["sbatch"], stdin=-1, **mode(name)) for name in MODES]
    for part in parts:
        for process in started:
            process.stdin.write(part)
            process.stdin.flush()
        time.sleep(0.15)
    assert [process.poll() for process in started] == [None] * 3
    for process in started:
        out, err = process.communicate(timeout=30)
        assert (process.returncode, err) == (0, b"")
        assert stored_script(bed, out.decode().split()[-1]) == b"".join(parts)


def stored_script(bed: Bed, job: str) -> bytes:
    """The batch script as slurmctld has it."""
    path = bed.place / f"stored-{job}"
    bed.cluster.run("scontrol", "write", "batch_script", job, str(path))
    try:
        return path.read_bytes()
    finally:
        path.unlink()


ROUTED = "version: 1\naccounts: [maigan]\ncache: 0\n"


def test_B40_script_bytes_are_identical_when_the_job_is_moved(bed: Bed) -> None:
    content = SCRIPT + bytes(range(1, 256)) * 300 + b"\nlast line without end"
    file = file_of(bed, content)
    jobs = [bed.sbatch(input=content, policy=ROUTED).job]
    with open(file, "rb") as stdin:
        jobs.append(bed.sbatch(stdin=stdin, policy=ROUTED).job)
    with open(file, "rb") as stdin:
        jobs.append(bed.sbatch("/dev/stdin", stdin=stdin, policy=ROUTED).job)
    jobs.append(bed.sbatch(file, policy=ROUTED).job)
    assert [bed.where(job) for job in jobs] == ["maigan/maigan"] * 4
    assert [stored_script(bed, job) for job in jobs] == [content] * 4


def test_B40_a_file_is_read_from_where_it_stands(bed: Bed) -> None:
    """Somebody read its first line; and its offset is where sbatch leaves it."""
    file = file_of(bed, b"not the script\n" + SCRIPT)

    def call(**options: Any) -> Result:
        with open(file, "rb") as stdin:
            stdin.read(0)
            os.lseek(stdin.fileno(), 15, 0)
            return bed.call(["sh", "-c", "sbatch -H; echo left: $(wc -c)"], stdin=stdin, **options)

    bare = both(bed, call)
    assert bare.out.endswith(b"\nleft: 0\n")
    with open(file, "rb") as stdin:
        os.lseek(stdin.fileno(), 15, 0)
        job = bed.sbatch(stdin=stdin, policy=ROUTED).job
    assert stored_script(bed, job) == SCRIPT


@pytest.mark.parametrize("args", ["-H --wrap true", "-H good.sh"])
def test_B40_what_is_not_sbatchs_stays_in_the_pipe(bed: Bed, scripts: Path, args: str) -> None:
    def call(**options: Any) -> Result:
        argv = ["sh", "-c", f"sbatch {args}; cat"]
        return bed.call(argv, input=b"for the next command\n", cwd=scripts, **options)

    bare = both(bed, call)
    assert bare.out == b"Submitted batch job N\nfor the next command\n"


@pytest.mark.parametrize("extra", [0, 1], ids=["4 MiB", "4 MiB and a byte"])
@pytest.mark.parametrize("how", ["pipe", "file", "argument"])
def test_B40_largest_script(bed: Bed, how: str, extra: int) -> None:
    content = SCRIPT + b"#" * (4194304 + extra - len(SCRIPT))

    def call(**options: Any) -> Result:
        if how == "pipe":
            return bed.sbatch(input=content, **options)
        path = file_of(bed, content)
        if how == "argument":
            return bed.sbatch(path, **options)
        with open(path, "rb") as file:
            return bed.sbatch(stdin=file, **options)

    bare = both(bed, call)
    assert bare.rc == extra
    if not extra:
        assert stored_script(bed, call(policy=ROUTED).job) == content


def test_B40_account_option_that_eats_the_script(bed: Bed, scripts: Path) -> None:
    """``sbatch --account job.sh``: job.sh is the account, and stdin the script."""

    def call(**options: Any) -> Result:
        return bed.sbatch("--account", "good.sh", input=SCRIPT, cwd=scripts, **options)

    bare = both(bed, call)
    assert bare.rc == 1
    assert b"Invalid account" in bare.err


# -- scripts that can be read but once -------------------------------------------------------


@pytest.mark.parametrize("policy", [None, SAME, ROUTED], ids=["no policy", "same", "routed"])
@pytest.mark.parametrize("how", ["fifo", "process substitution", "/dev/fd/3 pipe"])
def test_scripts_that_can_be_read_but_once(bed: Bed, how: str, policy: str | None) -> None:
    """They arrive whole. What cannot be read ahead of sbatch is not judged, and that is said."""
    content = SCRIPT + b"# " + b"y" * 100000 + b"\n"
    if how == "fifo":
        path = bed.private("fifo", "alice") / "script"
        path.unlink(missing_ok=True)
        os.mkfifo(path, 0o644)
        writer = threading.Thread(target=path.write_bytes, args=(content,))
        writer.start()
        result = bed.sbatch(path, policy=policy)
        writer.join(10)
        assert not writer.is_alive()
    elif how == "process substitution":
        file = file_of(bed, content)
        result = bed.call(["bash", "-c", f"sbatch <(cat {file})"], policy=policy)
    else:
        file = file_of(bed, content)
        argv = ["bash", "-c", f"exec 3< <(cat {file}); exec sbatch /dev/fd/3"]
        result = bed.call(argv, policy=policy)
    assert stored_script(bed, result.job) == content
    assert result.err == (UNREAD if policy else b"")
    assert bed.where(result.job) == "clive/clive"


def test_dev_fd_of_a_file_is_read_as_sbatch_reads_it(bed: Bed) -> None:
    file = file_of(bed, SCRIPT)
    argv = ["bash", "-c", f"exec 3<{file}; exec sbatch /dev/fd/3"]
    job = bed.call(argv, policy=ROUTED).job
    assert (bed.where(job), stored_script(bed, job)) == ("maigan/maigan", SCRIPT)


def test_a_pipe_that_is_never_closed_is_waited_for_like_sbatch(bed: Bed) -> None:
    """Killed while it reads, as sbatch would be: by the signal, and nothing is submitted."""
    for name in MODES:
        process = bed.popen(["sbatch"], stdin=-1, **mode(name))
        process.stdin.write(SCRIPT)
        process.stdin.flush()
        time.sleep(0.3)
        assert process.poll() is None
        process.terminate()
        assert process.wait(10) == -15, name
        process.communicate()
    assert bed.queue() == []
