"""Running commands: real processes that sleep, flood, stall, fork and die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from sbatch_router.slurm.run import MAX_OUT, Outcome, find_command, query_environment, run_all

ROOT = Path(__file__).resolve().parents[2]
PATH = "/usr/local/bin:/usr/bin:/bin"


def sh(script: str) -> list[str]:
    return ["/bin/sh", "-c", script]


def open_fds() -> set[str]:
    # The descriptor of the listing itself is closed again by the time we look at the set.
    return {fd for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")}


def children() -> set[str]:
    # Alive or zombie. The session's cluster may have some.
    listed = Path("/proc/self/task").glob("*/children")
    return {pid for path in listed for pid in path.read_text().split()}


@pytest.fixture(autouse=True)
def nothing_left():
    """Every test: no new descriptor and no new child, alive or zombie, is left."""
    before, running = open_fds(), children()
    yield
    assert open_fds() == before
    assert children() <= running


def test_output_and_status():
    script = "echo out; echo err >&2; exit 3"
    assert run_all([sh(script)], 5, path=PATH) == [
        Outcome(3, b"out\n", b"err\n", "sh ended with status 3 (err)")
    ]
    assert run_all([["true"], ["printf", "x"]], 5, path=PATH) == [
        Outcome(0, b"", b""),
        Outcome(0, b"x", b""),
    ]
    assert run_all([], 5) == []


def test_runs_at_the_same_time():
    start = time.monotonic()
    assert [o.rc for o in run_all([sh("sleep 0.5")] * 5, 5)] == [0] * 5
    assert time.monotonic() - start < 1.5


def test_timeout_kills_everything_it_started(tmp_path):
    mark = tmp_path / "pid"
    script = f"echo half; sleep 60 & echo $! > {mark}; sleep 60"
    start = time.monotonic()
    [outcome] = run_all([sh(script)], 0.4)
    assert 0.4 <= time.monotonic() - start < 0.8
    assert outcome == Outcome(None, b"half\n", b"", "sh did not answer within 0.4 s")
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline and alive(int(mark.read_text())):
        time.sleep(0.01)
    assert not alive(int(mark.read_text()))


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def test_one_stalls_the_others_answer():
    start = time.monotonic()
    stalled, answered = run_all([sh("echo half; sleep 60"), sh("echo whole")], 0.5)
    assert time.monotonic() - start < 1
    assert (stalled.rc, stalled.out, answered.rc, answered.out) == (None, b"half\n", 0, b"whole\n")
    assert answered.trouble == ""


def test_own_deadlines():
    start = time.monotonic()
    first, second = run_all([sh("sleep 60"), sh("sleep 0.6; echo late")], 9, timeouts=[0.2, 5])
    assert 0.6 <= time.monotonic() - start < 1.5
    assert first.trouble == "sh did not answer within 0.2 s"
    assert second == Outcome(0, b"late\n", b"")


def test_a_child_that_ignores_signals():
    [outcome] = run_all([sh("trap '' TERM INT HUP; sleep 60")], 0.2)
    assert outcome.trouble == "sh did not answer within 0.2 s"


def test_a_stopped_child():
    [outcome] = run_all([sh("kill -STOP $$")], 0.3)
    assert outcome.trouble == "sh did not answer within 0.3 s"


def test_killed_by_a_signal():
    [outcome] = run_all([sh("echo x; kill -SEGV $$")], 5)
    assert outcome == Outcome(-11, b"x\n", b"", "sh was killed by signal 11")


def test_closes_its_output_and_goes_on():
    start = time.monotonic()
    [outcome] = run_all([sh("echo x; exec >&- 2>&-; sleep 0.3; exit 4")], 5)
    assert time.monotonic() - start >= 0.3
    assert (outcome.rc, outcome.out) == (4, b"x\n")
    [outcome] = run_all([sh("echo x; exec >&- 2>&-; sleep 60")], 0.3)
    assert outcome.trouble == "sh did not answer within 0.3 s"


def test_output_held_open_by_a_daemon_it_leaves_behind():
    """A site's wrapper that starts something: the answer is there, so nobody waits."""
    start = time.monotonic()
    [outcome] = run_all([sh("sleep 3 & echo answer")], 2)
    assert time.monotonic() - start < 0.5
    assert outcome == Outcome(0, b"answer\n", b"")


def test_large_answers_are_whole():
    [outcome] = run_all([sh("head -c 20000000 /dev/zero; echo end")], 20)
    assert len(outcome.out) == 20000004
    assert outcome.out.endswith(b"\0end\n")
    assert outcome.trouble == ""


def test_a_flood_ends():
    start = time.monotonic()
    flood, other = run_all([["cat", "/dev/zero"], sh("echo ok")], 30, path=PATH)
    assert time.monotonic() - start < 15
    assert flood.trouble == "cat printed more than 64 MiB"
    assert len(flood.out) <= MAX_OUT
    assert other.out == b"ok\n"


def test_a_flood_of_errors_does_not_block():
    [outcome] = run_all([sh("head -c 3000000 /dev/zero >&2; echo ok")], 10)
    assert outcome.out == b"ok\n"
    assert len(outcome.err) == 65536


def test_errors_are_one_printable_line():
    [outcome] = run_all([sh(r"printf '\n \033[31mred\377\ntwo\n' >&2; exit 1")], 5)
    assert outcome.trouble == "sh ended with status 1 (?[31mred\ufffd)"


@pytest.mark.parametrize(
    ("command", "trouble"),
    [
        (["no-such-command"], "no-such-command was not found in PATH"),
        (["/no/such/command"], "command could not be run: No such file or directory"),
        (["/etc/passwd"], "passwd could not be run: Permission denied"),
        (["/bin/echo", "a\0b"], "echo could not be run: embedded null byte"),
        (["/bin/echo", "a" * 200000], "echo could not be run: Argument list too long"),
    ],
)
def test_cannot_be_run(command, trouble):
    other, failed = run_all([["echo", "ok"], command], 5, path=PATH)
    assert other.out == b"ok\n"
    assert failed == Outcome(None, b"", b"", trouble)


def test_the_commands_are_found_as_a_shell_finds_them(tmp_path):
    for name, mode in (("a", 0o644), ("b", 0o755), ("c", 0o755)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tool").write_text(f"#!/bin/sh\necho {name}\n")
        (tmp_path / name / "tool").chmod(mode)
    (tmp_path / "d" / "tool").mkdir(parents=True)
    path = ":".join(str(tmp_path / name) for name in ["missing", "d", "a", "b", "c"])
    assert run_all([["tool"]], 5, path=path)[0].out == b"b\n"
    assert find_command("tool", path.encode()) == str(tmp_path / "b/tool").encode()
    assert find_command("x/tool", path.encode()) == b"x/tool"


def test_a_script_without_an_interpreter_line_is_trouble(tmp_path):
    (tmp_path / "tool").write_text("echo x\n")
    (tmp_path / "tool").chmod(0o755)
    [outcome] = run_all([["tool"]], 5, path=str(tmp_path))
    assert outcome == Outcome(None, b"", b"", "tool could not be run: Exec format error")


def test_standard_input_is_empty():
    assert run_all([["cat"]], 5, path=PATH) == [Outcome(0, b"", b"")]


def test_names_that_are_not_utf8(tmp_path):
    directory = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")
    os.mkdir(directory)
    [outcome] = run_all([["printf", "%s", directory]], 5, path=PATH)
    assert outcome.out == os.fsencode(directory)


def test_children_get_the_default_signal_handling():
    """Python ignores SIGPIPE; a command that inherits that may never end."""
    [outcome] = run_all([sh("grep Sig[IB] /proc/self/status")], 5)
    masks = dict(line.split(":\t") for line in outcome.out.decode().splitlines())
    pipe_int = 1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGINT - 1)
    assert int(masks["SigIgn"], 16) & pipe_int == 0
    assert int(masks["SigBlk"], 16) == 0


def test_children_lead_their_own_group_and_get_no_descriptors():
    [outcome] = run_all([sh("echo $$; ps -o pgid= -p $$")], 5)
    pid, group = outcome.out.decode().split()
    assert group == pid
    inherited = {fd for fd in open_fds() if int(fd) > 2 and os.get_inheritable(int(fd))}
    read, write = os.pipe()
    try:
        [outcome] = run_all([["readlink", "-f", "/proc/self/fd/0"], ["ls", "/proc/self/fd"]], 5)[1:]
    finally:
        os.close(read)
        os.close(write)
    listing = max(set(outcome.out.decode().split()) - inherited, key=int)
    assert set(outcome.out.decode().split()) == {"0", "1", "2", listing} | inherited


def test_environment():
    dropped = {
        b"SQUEUE_FORMAT": b"%i",
        b"SQUEUE_STATES": b"RUNNING",
        b"SCONTROL_ALL": b"1",
        b"SLURM_CLUSTERS": b"other",
        b"SLURM_TIME_FORMAT": b"relative",
        b"SLURM_BITSTR_LEN": b"10",
        b"LC_ALL": b"de_DE.UTF-8",
    }
    kept = {b"SLURM_CONF": b"/x", b"SLURM_JWT": b"t", b"LD_LIBRARY_PATH": b"/y", b"HOME": b"/h"}
    forced = {b"SLURM_BITSTR_LEN": b"0", b"LC_ALL": b"C"}
    assert query_environment({**dropped, **kept}) == {**kept, **forced}
    [outcome] = run_all([["/usr/bin/env"]], 5, env={b"A": b"1"})
    assert outcome.out == b"A=1\n"


def in_python(code: str, **options) -> str:
    """What a fresh interpreter prints that runs `code` with run_all imported."""
    script = "from sbatch_router.slurm.run import run_all\n" + textwrap.dedent(code)
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, **options
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("closed", ["0", "1", "2", "0,1", "0,1,2", "1,2"])
def test_closed_standard_descriptors(tmp_path, closed):
    out = tmp_path / "out"
    in_python(f"""
        import os
        keep = os.open({str(out)!r}, os.O_CREAT | os.O_WRONLY)
        os.dup2(keep, 9); os.close(keep)
        for fd in ({closed},): os.close(fd)
        first, second = run_all([["sh", "-c", "echo o; echo e >&2"], ["cat"]], 5)
        os.write(9, repr((first, second)).encode())
        for fd in ({closed},):
            try: os.fstat(fd)
            except OSError: os.write(9, b" closed")
        """)
    expected = repr((Outcome(0, b"o\n", b"e\n"), Outcome(0, b"", b"")))
    assert out.read_text() == expected + " closed" * len(closed.split(","))


def test_ignored_sigchld():
    """Somebody's daemon may start sbatch with SIGCHLD ignored: then children reap themselves."""
    printed = in_python("""
        import signal
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        print(run_all([["sh", "-c", "exit 3"]], 5)[0].rc)
        print(signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN)
        """)
    assert printed == "3\nTrue\n"


def test_in_a_thread():
    printed = in_python("""
        import threading
        t = threading.Thread(target=lambda: print(run_all([["echo", "x"]], 5)[0].out))
        t.start(); t.join()
        """)
    assert printed == "b'x\\n'\n"


def test_interrupted_kills_the_children(tmp_path):
    mark = tmp_path / "pid"
    code = f"run_all([['sh', '-c', 'echo $$ > {mark}; sleep 60']], 50)"
    process = subprocess.Popen(
        [sys.executable, "-c", "from sbatch_router.slurm.run import run_all\n" + code],
        cwd=ROOT,
        stderr=subprocess.PIPE,
    )
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and not (mark.exists() and mark.read_text()):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert b"KeyboardInterrupt" in process.communicate(timeout=5)[1]
    assert not alive(int(mark.read_text()))


def test_many_rounds_leave_nothing():
    for _ in range(100):
        assert [o.rc for o in run_all([["true"], ["false"]], 5, path=PATH)] == [0, 1]


def test_imports_little():
    """The hot path pays for every import on every job."""
    code = "import sys; sys.stdout.write(' '.join(sys.modules))"
    argv = [sys.executable, "-IS", "-c"]
    bare = subprocess.run([*argv, code], capture_output=True, text=True).stdout.split()
    ours = subprocess.run(
        [
            *argv,
            f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
            "import sbatch_router.slurm.collect\n" + code,
        ],
        capture_output=True,
        text=True,
    ).stdout.split()
    added = {name for name in set(ours) - set(bare) if not name.startswith("sbatch_router")}
    assert added <= {"select", "time", "_collections", "_signal", "__future__"}, added
    assert "sbatch_router.slurm.text_site" not in ours
