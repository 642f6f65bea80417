"""What reaches the real sbatch is what reached the shim: a fake one writes it down."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from .conftest import Bed, Result, until

#: Everything is passed on, after reading the policy, the script and Slurm's answers.
POLICIES = {"no policy": None, "kept": "version: 1\naccounts: [clive]\nwhen_full: queue\n"}


class Handed:
    """What the fake sbatch wrote down."""

    def __init__(self, place: Path) -> None:
        self.arguments = (place / "arguments").read_bytes().split(b"\0")[:-1]
        self.environ = (place / "environ").read_bytes().split(b"\0")[:-1]
        self.signals = (place / "signals").read_text()
        lines = (place / "fds").read_bytes().splitlines()[1:]
        self.fds = sorted(re.sub(rb"(pipe|socket):\[\d+\]", rb"\1", x[x.rindex(b":") + 4 :])
                          if rb"[" not in x else re.sub(rb"^.* (\d+ -> \w+):.*$", rb"\1", x)
                          for x in lines)  # fmt: skip
        self.umask = (place / "umask").read_text()
        self.limits = (place / "limits").read_text()


def handed(
    bed: Bed,
    shim: bool,
    *args: bytes | str,
    setup: str = "",
    env: list[bytes] | None = None,
    policy: str | None = None,
) -> Handed:
    """Call the fake sbatch as alice, bare or through the shim.

    `setup` is Python run in the process that then becomes it; `env` are further ``NAME=value``,
    in this order, also twice, and of any bytes.
    """
    place = bed.private("dump", "alice")
    for file in place.iterdir():
        file.unlink()
    given = bed.environ("alice", policy, {"FAKE_SBATCH_DUMP": str(place)}, shim=False)
    path = f"{bed.fakes}:{given['PATH']}"
    given["PATH"] = f"{bed.bin}:{path}" if shim else path
    given["SLURM_CONF"] = bed.cluster.env["SLURM_CONF"]
    given["HOME"] = str(bed.cluster.home("alice"))
    block = [f"{name}={value}".encode() for name, value in given.items()] + (env or [])
    program = str((bed.bin if shim else bed.fakes) / "sbatch")
    # What starts it must not tidy the environment up either: execve by hand.
    code = f"""
import ctypes, os, resource, signal
libc = ctypes.CDLL(None, use_errno=True)
for number in (signal.SIGPIPE, signal.SIGXFSZ):
    signal.signal(number, signal.SIG_DFL)
{setup}
def block(items):
    return (ctypes.c_char_p * (len(items) + 1))(*items, None)
libc.execve({os.fsencode(program)!r}, block({[b"sbatch", *map(os.fsencode, args)]!r}),
            block({block!r}))
os._exit(99)
"""
    argv = [bed.python, "-IS", "-c", code]
    process = bed.cluster.popen_as(
        "alice", argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, err = process.communicate(b"", 30)
    assert process.returncode == 42, (process.returncode, out, err)
    return Handed(place)


def same(bed: Bed, *args: bytes | str, policy: str | None = None, **options: Any) -> Handed:
    """Bare and through the shim; all but PATH must be the same. Returns the latter."""
    bare = handed(bed, False, *args, policy=policy, **options)
    ours = handed(bed, True, *args, policy=policy, **options)
    shim_path = f"PATH={bed.bin}:".encode()
    ours.environ = [x.replace(shim_path, b"PATH=") for x in ours.environ]
    assert vars(ours) == vars(bare)
    return ours


@pytest.fixture(params=list(POLICIES))
def policy(request: pytest.FixtureRequest) -> str | None:
    """Without and with a policy (then the account is named, so nothing is added)."""
    return POLICIES[request.param]


NAMED = ("-A", "clive", "-q", "clive", "--mem=10M", "--wrap", "true")


@pytest.mark.parametrize(
    "env",
    [
        [],
        [b"LANG=C"],
        [b"LANG=C", b"LC_CTYPE=C"],
        [b"LANG=C", b"LC_CTYPE=POSIX"],
        [b"LANG=C", b"LC_CTYPE="],
        [b"LC_CTYPE=C.UTF-8"],
        [b"LC_ALL=C"],
        [b"LC_ALL=", b"LANG="],
        [b"LANG=de_DE.ISO-8859-1"],
        [b"LC_CTYPE=C", b"LC_CTYPE=C.UTF-8"],
        [b"BASH_FUNC_module%%=() {  eval `modulecmd bash $*`\n}", b"BASH_FUNC_ml()=() { :\n}"],
        [b"LATIN=caf\xe9", b"BYTES=\xff\xfe\x01\n\t", b"\xff=1"],
        [b"TWICE=1", b"TWICE=2", b"PYTHONPATH=/a", b"PYTHONPATH=/b"],
        [b"EMPTY=", b"=odd", b"noequals"],
        [b"SLURM_JOB_ID=7", b"SBATCH_EXPORT=NONE", b"SNAKEMAKE_PROFILE=x"],
        [b"BIG=" + b"x" * 100000],
    ],
    ids=lambda env: (b" ".join(env)[:24] or b"nothing").decode("latin-1"),
)
def test_environment_is_ours_to_the_byte(bed: Bed, policy: str | None, env: list[bytes]) -> None:
    same(bed, *NAMED, env=env, policy=policy)


@pytest.mark.parametrize(
    "args",
    [
        ("-A", "clive", "-q", "clive", b"--comment=caf\xe9 \xff", "--wrap", "echo 'x\ny'\t$A"),
        ("-A", "clive", "-q", "clive", "--wrap", "", ""),
        ("-A", "clive", "-q", "clive", "--wrap", "x" * 100000),
        ("-A", "clive", "-q", "clive", "missing.sh", "--account=other", "-x", "", "*", b"\xe9"),
    ],
    ids=["bytes", "empty", "long", "script's own"],
)
def test_arguments_are_ours_to_the_byte(bed: Bed, policy: str | None, args: Any) -> None:
    for env in ([], [b"LANG=C"], [b"LC_ALL=C"]):
        found = same(bed, *args, policy=policy, env=env)
        assert found.arguments == [os.fsencode(a) for a in args]


@pytest.mark.parametrize(
    "locale", ["ja_JP.EUC-JP", "ja_JP.SHIFT_JIS", "zh_CN.GB18030", "vi_VN.TCVN5712-1"]
)
def test_arguments_in_locales_that_do_not_know_all_bytes(
    bed: Bed, policy: str | None, locale: str
) -> None:
    """Python's decoding and encoding of these is not the C library's, and may not be its own."""
    language, _, charset = locale.partition(".")
    made = bed.place / "locales" / locale
    made.parent.mkdir(exist_ok=True)
    command = ["localedef", "-c", "-i", language, "-f", charset, str(made)]
    try:
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    except FileNotFoundError:
        pytest.skip("no localedef")
    if not made.exists():
        pytest.skip("no sources of locales (Debian's package `locales`)")
    # Three that GB18030 changed, and all there are.
    odd = (b"\xa8\x18\xb8\xee", b"\xaf\x86\xa63", bytes(range(1, 256)))
    args = ("-A", "clive", "-q", "clive", *[b"--comment=" + o for o in odd], "--wrap", "x", *odd)
    env = [f"LC_ALL={locale}".encode(), f"LOCPATH={made.parent}".encode()]
    found = same(bed, *args, policy=policy, env=env)
    assert found.arguments == [os.fsencode(a) for a in args]


def test_only_account_and_qos_are_added(bed: Bed) -> None:
    """Where the account changes, two arguments and nothing else."""
    routed = "version: 1\naccounts: [maigan]\n"
    args = (b"--comment=\xff", "--mem=10M", "--", "missing")
    bare = handed(bed, False, *args, "--wrap=x")
    script = bed.write_script("fine.sh", "#!/bin/sh\n")
    args = (b"--comment=\xff", "--mem=10M", "--", str(script), "--", "-A", "x")
    ours = handed(bed, True, *args, policy=routed, env=[b"LANG=C"])
    assert ours.arguments == [
        b"--comment=\xff", b"--mem=10M", b"--account=maigan", b"--qos=maigan",
        *map(os.fsencode, args[2:]),
    ]  # fmt: skip
    assert (ours.signals, ours.fds, ours.umask) == (bare.signals, bare.fds, bare.umask)
    assert [x for x in ours.environ if x.startswith(b"LC_")] == []


def test_argv0_is_sbatch(bed: Bed) -> None:
    """Its own messages print it. (A shell is the real sbatch here: scripts do not see it.)"""
    real = bed.place / "shell"
    real.mkdir(exist_ok=True)
    shutil.copy("/bin/sh", real / "sbatch")
    path = f"{bed.bin}:{real}:/usr/bin:/bin"
    for program in ("sbatch", str(bed.bin / "sbatch"), f"../../{bed.bin}/sbatch"):
        result = bed.call(
            ["sh", "-c", 'exec "$0" "$@"', program, "-c", "cat /proc/$$/cmdline"],
            env={"PATH": path}, cwd=Path("/usr/bin"),
        )  # fmt: skip
        assert result.out.split(b"\0")[0] == b"sbatch"


SIGNALS = {
    "nothing": "",
    "SIGINT ignored (nohup &)": "signal.signal(signal.SIGINT, signal.SIG_IGN)",
    "SIGHUP and SIGQUIT ignored": (
        "signal.signal(signal.SIGHUP, signal.SIG_IGN);signal.signal(signal.SIGQUIT, signal.SIG_IGN)"
    ),
    "SIGTERM ignored": "signal.signal(signal.SIGTERM, signal.SIG_IGN)",
    "SIGCHLD ignored": "signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
    "some blocked": "signal.pthread_sigmask(0, {signal.SIGUSR1, signal.SIGINT, signal.SIGTERM})",
    "SIGINT default": "signal.signal(signal.SIGINT, signal.SIG_DFL)",
}


@pytest.mark.parametrize("kind", list(SIGNALS))
def test_signals(bed: Bed, policy: str | None, kind: str) -> None:
    same(bed, *NAMED, setup=SIGNALS[kind], policy=policy)


def test_sigpipe_is_default_at_exec(bed: Bed, policy: str | None) -> None:
    """Also where it was ignored: Python ignores it at its start and forgets what it was."""
    ignore = "signal.signal(signal.SIGPIPE, signal.SIG_IGN)"
    for setup in ("", ignore):
        signals = handed(bed, True, *NAMED, setup=setup, policy=policy).signals
        ignored = int(re.search(r"SigIgn:\s*(\w+)", signals)[1], 16)
        assert ignored & (1 << signal.SIGPIPE - 1) == 0
        assert ignored & (1 << signal.SIGXFSZ - 1) == 0


def test_inherited_descriptors(bed: Bed, policy: str | None) -> None:
    """Those of the caller (a make jobserver, a lock) go through; none of ours does."""
    setup = (
        "for n in (3, 7, 63):\n"
        "    f = os.open('/etc/hostname' if n < 60 else '/etc/passwd', os.O_RDONLY)\n"
        "    if f != n: os.dup2(f, n); os.close(f)\n"
        "    os.set_inheritable(n, True)\n"
    )
    found = same(bed, *NAMED, setup=setup, policy=policy)
    assert sum(b"/etc/hostname" in fd for fd in found.fds) == 2


@pytest.mark.parametrize(
    "closed", [c for n in (1, 2, 3) for c in itertools.combinations((0, 1, 2), n)]
)
def test_closed_standard_descriptors_stay_closed(bed: Bed, policy: str | None, closed: Any) -> None:
    same(bed, *NAMED, setup=f"[os.close(n) for n in {closed}]", policy=policy)


def test_the_rest_of_the_process(bed: Bed, policy: str | None) -> None:
    """umask, limits, working directory."""
    setup = (
        "os.umask(0o027); os.chdir('/usr'); resource.setrlimit(resource.RLIMIT_NOFILE, (99, 200));"
        "resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); os.nice(3)"
    )
    found = same(bed, *NAMED, setup=setup, policy=policy)
    assert found.umask == "0027\n"


def test_working_directory_that_is_gone(bed: Bed, policy: str | None) -> None:
    setup = "os.mkdir('/tmp/gone-%d' % os.getpid()); os.chdir('/tmp/gone-%d' % os.getpid());"
    setup += "os.rmdir('/tmp/gone-%d' % os.getpid())"
    same(bed, *NAMED, setup=setup, policy=policy)


@pytest.mark.parametrize("limit", ["FSIZE", "NOFILE"])
def test_a_script_in_a_pipe_survives_small_limits(bed: Bed, limit: str) -> None:
    """What was read from the pipe is handed on even where no file may be written."""
    number = {"FSIZE": 0, "NOFILE": 24}[limit]
    content = b"#!/bin/sh\n#SBATCH -H\n# " + b"z" * 200000 + b"\n"
    ulimit = {"FSIZE": f"ulimit -f {number}", "NOFILE": f"ulimit -n {number}"}[limit]
    result = bed.call(
        ["sh", "-c", f"{ulimit}; exec sbatch"],
        input=content,
        policy="version: 1\naccounts: [maigan]\ncache: 0\n",
    )
    path = bed.place / "stored"
    bed.cluster.run("scontrol", "write", "batch_script", result.job, str(path))
    assert path.read_bytes() == content


# -- signals while it runs -------------------------------------------------------------------


def _ended_by(bed: Bed, number: int, **options: Any) -> Result:
    process = bed.popen(["sbatch", "--wait", "--wrap", "sleep 300"], **options)
    assert process.stdout.readline().startswith(b"Submitted batch job ")
    until(lambda: b"sbatch" in Path(f"/proc/{process.pid}/comm").read_bytes())
    time.sleep(0.1)
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    return Result(process.returncode, out, err)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_during_wait_is_sbatchs_own(bed: Bed, number: int) -> None:
    bare = _ended_by(bed, number, shim=False)
    assert bare.rc != 0
    for policy in POLICIES.values():
        assert _ended_by(bed, number, policy=policy).plain == bare.plain


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_signal_during_our_own_part(bed: Bed, number: int) -> None:
    """The controller does not answer; the user gives up. As with sbatch: dead by the signal."""
    bed.sbatch("-H", "--wrap", "true", policy=POLICIES["kept"])  # sacctmgr's facts are known
    policy = POLICIES["kept"] + "cache: 0\n"
    bed.sbatch("-H", "--wrap", "true", policy=policy)
    bed.cluster.scancel_all()
    bed.cluster.pause_controller()
    try:
        process = bed.popen(["sbatch", *NAMED], policy=policy)
        # Our part: scontrol is running as its child.
        until(lambda: Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text())
        process.send_signal(number)
        out, err = process.communicate(timeout=10)
        assert (process.returncode, out, err) == (-number, b"", b"")
    finally:
        bed.cluster.resume_controller()
    assert bed.queue() == []


def test_a_reader_that_is_gone(bed: Bed) -> None:
    """``sbatch ... | true``: SIGPIPE or not, exactly as sbatch."""
    argv = ["bash", "-c", "exec 2>&1; (sleep 0.1; sbatch --help; echo $? >&3) 3>&1 >&4 | cat", "x"]
    argv[2] = "{ sleep 0.2; sbatch --help; echo rc=$? >&2; } | true"
    bare = bed.call(argv, shim=False)
    for policy in POLICIES.values():
        assert bed.call(argv, policy=policy) == bare
    argv[2] = "{ sbatch --mem=lots --wrap x; echo rc=$? >&3; } 3>&1 2>&1 >/dev/null | head -c0"
    bare = bed.call(argv, shim=False)
    for policy in POLICIES.values():
        assert bed.call(argv, policy=policy) == bare
