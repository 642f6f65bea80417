"""Whatever breaks, the job is submitted, within the time, with one line that says what broke."""

from __future__ import annotations

import fcntl
import os
import random
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import Bed, Result

#: alice's default account: what is decided changes nothing, so trouble is all there is to say.
SAME = "version: 1\naccounts: [clive]\nwhen_full: queue\ncache: 0\n"
#: To see whether it still routes.
ROUTED = "version: 1\naccounts: [maigan]\ncache: 0\n"
HELD = ("-H", "--mem=10M", "--wrap", "true")


def submitted(bed: Bed, result: Result, said: str, where: str = "clive/clive") -> None:
    """The job is there, where it was going without us, and one line says why."""
    assert bed.where(result.job) == where
    assert len(result.lines) == 1, result
    assert re.fullmatch("sbatch-router: " + said, result.lines[0]), result


@pytest.fixture
def run(bed: Bed, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A new XDG_RUNTIME_DIR of alice's."""
    name = re.sub(r"\W+", "-", request.node.name)[-60:]
    place = bed.private(f"run/{name}", "alice")
    yield place
    shutil.rmtree(place, ignore_errors=True)


# -- the policy ------------------------------------------------------------------------------


BAD_POLICIES = {
    "not YAML": "version: 1\naccounts: [maigan\n",
    "not a policy": "hello\n",
    "empty": "",
    "unknown key": "version: 1\naccounts: [maigan]\nwen_full: queue\n",
    "wrong version": "version: 2\naccounts: [maigan]\n",
    "binary": "\0\1\2\n",
    "many errors": "version: x\naccounts: 7\nrules: 9\ncache: y\n",
    "deep": "[" * 5000 + "\n",
    "latin": "version: 1\naccounts: [caf\udce9]\n",
}


@pytest.mark.parametrize("kind", list(BAD_POLICIES))
def test_bad_policy(bed: Bed, kind: str) -> None:
    path = bed.policies / f"bad-{kind.replace(' ', '-')}.yaml"
    path.write_bytes(os.fsencode(BAD_POLICIES[kind]))
    result = bed.sbatch(*HELD, policy=path)
    submitted(bed, result, rf"policy error: {path}:\d+: .*; submitted as you wrote it")


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("missing", "No such file or directory"),
        ("directory", "Is a directory"),
        ("unreadable", "Permission denied"),
        ("loop", "Too many levels of symbolic links"),
        ("below a file", "Not a directory"),
    ],
)
def test_policy_that_cannot_be_read(bed: Bed, kind: str, why: str) -> None:
    path = bed.policies / f"odd-{kind.replace(' ', '-')}"
    if kind == "directory":
        path.mkdir()
    elif kind == "unreadable":
        path.write_text(ROUTED)
        path.chmod(0)
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "below a file":
        path = bed.policy(ROUTED) / "policy.yaml"
    result = bed.sbatch(*HELD, policy=path)
    submitted(bed, result, rf"policy error: {path}:1: .*{why}.*; submitted as you wrote it")


def test_policy_that_is_a_pipe_nobody_writes_to(bed: Bed) -> None:
    path = bed.policies / "fifo"
    os.mkfifo(path, 0o644)
    began = time.monotonic()
    result = bed.sbatch(*HELD, policy=path, timeout=20)
    assert time.monotonic() - began < 5
    submitted(bed, result, f"policy error: {path}:1: .*; submitted as you wrote it")


def test_the_users_policy_is_found_in_the_home(bed: Bed) -> None:
    """And a broken one there is told of; XDG_CONFIG_HOME moves it."""
    home = bed.private("home", "alice")
    config = home / ".config" / "sbatch-router"
    config.mkdir(parents=True, exist_ok=True)
    (config / "policy.yaml").write_text(ROUTED)
    result = bed.sbatch(*HELD, env={"HOME": str(home)})
    assert bed.where(result.job) == "maigan/maigan"
    (config / "policy.yaml").write_text("nonsense\n")
    result = bed.sbatch(*HELD, env={"HOME": str(home)})
    submitted(bed, result, "policy error: .*; submitted as you wrote it")
    result = bed.sbatch(*HELD, env={"HOME": str(home), "XDG_CONFIG_HOME": "/nowhere"})
    assert (bed.where(result.job), result.err) == ("clive/clive", b"")


# -- the state directory ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["owner", "mode", "link", "file", "parent"])
def test_state_directory_that_is_not_ours_alone(bed: Bed, run: Path, kind: str) -> None:
    """It is not used and not repaired: routed without it, and that is said."""
    state = run / "sbatch-router"
    if kind == "owner":
        state.mkdir(0o700)  # root's
    elif kind == "mode":
        state.mkdir()
        os.chown(state, bed.cluster.uid("alice"), -1)
        state.chmod(0o750)
    elif kind == "link":
        state.symlink_to(bed.private("run/elsewhere", "alice"))
    elif kind == "file":
        state.write_text("")
    else:
        os.chown(run, 0, 0)
        run.chmod(0o500)
    env = {"XDG_RUNTIME_DIR": str(run), "TMPDIR": str(run)}
    said = rf"{state}.*: .*|{state}.* is not a directory of yours alone \(0700\).*"
    said = rf"({said}); going on without what was promised to other submissions"
    submitted(bed, bed.sbatch(*HELD, policy=SAME, env=env), said.replace("sbatch-router", ".*", 1))
    result = bed.sbatch(*HELD, policy=ROUTED, env=env)
    assert bed.where(result.job) == "maigan/maigan"
    assert [line.split(":")[1][:10] for line in result.lines][1:] == [" submitted"]


def test_runtime_directory_of_others_is_not_used(bed: Bed, run: Path) -> None:
    """XDG_RUNTIME_DIR that anybody can write to, after su: the temporary directory instead."""
    run.chmod(0o777)
    temporary = bed.private("run/temporary", "alice")
    env = {"XDG_RUNTIME_DIR": str(run), "TMPDIR": str(temporary)}
    result = bed.sbatch(*HELD, policy=SAME, env=env)
    assert (bed.where(result.job), result.err) == ("clive/clive", b"")
    assert list(run.iterdir()) == []
    state = temporary / f"sbatch-router-{bed.cluster.uid('alice')}"
    assert state.stat().st_mode & 0o777 == 0o700


@pytest.fixture
def small_disk(bed: Bed, run: Path) -> Iterator[Path]:
    """A file system of a few KB at `run`."""
    uid = bed.cluster.uid("alice")
    options = f"size=4k,mode=0700,uid={uid}"
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", run], check=False)
    if done.returncode:
        pytest.skip("mounting a file system is not allowed here")
    try:
        yield run
    finally:
        subprocess.run(["umount", "-l", run], check=True)


def test_full_disk(bed: Bed, small_disk: Path) -> None:
    """State and log are on a disk without room; one line, routed as ever, and nothing torn."""
    env = {"XDG_RUNTIME_DIR": str(small_disk), "XDG_STATE_HOME": str(small_disk)}
    (small_disk / "filler").write_bytes(b"x" * 4096)
    said = rf"cannot write {small_disk}/sbatch-router/\w+: No space left on device"
    for _ in range(2):
        submitted(bed, bed.sbatch(*HELD, policy=SAME, env=env), said)
    result = bed.sbatch(*HELD, policy=ROUTED, env=env)
    assert bed.where(result.job) == "maigan/maigan"
    assert len(result.lines) == 2
    left = {p.name: p.stat().st_size for p in (small_disk / "sbatch-router").iterdir()}
    assert left == {"lock": 0, "decisions.jsonl": 0}


def test_home_that_cannot_be_written(bed: Bed) -> None:
    """No log, and no word of it: nothing that the user could do about it at this moment."""
    home = bed.place / "read-only-home"
    home.mkdir()
    env = {"HOME": str(home)}
    result = bed.sbatch(*HELD, policy=ROUTED, env=env)
    assert bed.where(result.job) == "maigan/maigan"
    assert len(result.lines) == 1
    assert list(home.iterdir()) == []


def _states(bed: Bed, run: Path) -> list[Path]:
    """Every state file, as one routed call leaves them."""
    env = {"XDG_RUNTIME_DIR": str(run)}
    policy = ROUTED.replace("cache: 0", "cache: 1h")
    assert bed.sbatch(*HELD, policy=policy, env=env).job
    found = sorted(p for p in (run / "sbatch-router").iterdir() if p.name != "lock")
    assert len(found) == 4, found
    return found


GARBAGE = {
    "empty": lambda data: b"",
    "truncated": lambda data: data[: len(data) // 2],
    "short by one": lambda data: data[:-1],
    "random": lambda data: random.Random(7).randbytes(len(data)),
    "zeros": lambda data: bytes(len(data)),
    "text": lambda data: b"hello\n" * 100,
    "one bit": lambda data: data[:40] + bytes([data[40] ^ 4]) + data[41:],
    "huge tuple": lambda data: data[:4] + b"(\xff\xff\xff\x7f" + data[9:],
    "huge list": lambda data: b"[\xff\xff\xff\x7f",
    "doubled": lambda data: data + data,
}


@pytest.mark.parametrize("kind", list(GARBAGE))
def test_garbage_in_state_files(bed: Bed, run: Path, kind: str) -> None:
    """Each is as if it were not there."""
    files = _states(bed, run)
    env = {"XDG_RUNTIME_DIR": str(run)}
    for path in files:
        path.write_bytes(GARBAGE[kind](path.read_bytes()))
    result = bed.sbatch(*HELD, policy=ROUTED.replace("cache: 0", "cache: 1h"), env=env)
    assert bed.where(result.job) == "maigan/maigan"
    assert len(result.lines) == 1
    assert result.lines[0].startswith("sbatch-router: submitted to maigan/maigan: ")


@pytest.mark.parametrize("kind", ["others", "fifo", "directory", "link", "unreadable"])
def test_state_files_that_are_none(bed: Bed, run: Path, kind: str) -> None:
    files = _states(bed, run)
    env = {"XDG_RUNTIME_DIR": str(run)}
    for path in files:
        if kind == "others":
            os.chown(path, 0, 0)
            path.chmod(0o644)
            continue
        if kind == "unreadable":
            path.chmod(0)
            continue
        path.unlink()
        if kind == "fifo":
            os.mkfifo(path, 0o666)
        elif kind == "directory":
            path.mkdir()
        else:
            path.symlink_to("/etc/passwd")
    result = bed.sbatch(*HELD, policy=SAME.replace("0", "1h"), env=env, timeout=20)
    assert bed.where(result.job) == "clive/clive"
    if kind == "directory":
        assert len(result.lines) == 1
        assert "cannot write" in result.lines[0]
    else:
        # Replaced by rename, whatever they were.
        assert result.err == b""
    assert "root:" in Path("/etc/passwd").read_text()


def test_garbage_in_the_policy_cache_of_another_policy(bed: Bed, run: Path) -> None:
    """A stored policy counts for one file as it is, not for what was there before."""
    env = {"XDG_RUNTIME_DIR": str(run)}
    path = bed.policies / "changing.yaml"
    for text, where in (
        (ROUTED, "maigan/maigan"),
        (SAME, "clive/clive"),
        (ROUTED, "maigan/maigan"),
    ):
        path.write_text(text)
        assert bed.where(bed.sbatch(*HELD, policy=path, env=env).job) == where


# -- the lock --------------------------------------------------------------------------------


def test_lock_held_by_a_stopped_process(bed: Bed, run: Path) -> None:
    files = _states(bed, run)
    env = {"XDG_RUNTIME_DIR": str(run)}
    lock = files[0].parent / "lock"
    bed.sbatch(*HELD, policy=SAME, env=env)  # that policy is compiled and stored
    with open(lock, "r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        for policy, where, lines in ((SAME, "clive/clive", 1), (ROUTED, "maigan/maigan", 2)):
            began = time.monotonic()
            result = bed.sbatch(*HELD, policy=policy, env=env)
            took = time.monotonic() - began
            assert 1.0 <= took < 2.0  # of which 1 s is the wait
            assert bed.where(result.job) == where
            assert len(result.lines) == lines
            assert result.lines[0] == (
                f"sbatch-router: {lock} stayed locked for 1 s; going on without the ledger"
            )


def test_lock_and_new_policy_are_waited_for_once(bed: Bed, run: Path) -> None:
    lock = _states(bed, run)[0].parent / "lock"
    with open(lock, "r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        began = time.monotonic()
        policy = SAME + "# new\n"
        result = bed.sbatch(*HELD, policy=policy, env={"XDG_RUNTIME_DIR": str(run)})
        assert 1.0 <= time.monotonic() - began < 2.0
        assert len(result.lines) == 1


@pytest.mark.parametrize("kind", ["directory", "link", "others"])
def test_lock_that_is_none(bed: Bed, run: Path, kind: str) -> None:
    lock = _states(bed, run)[0].parent / "lock"
    lock.unlink()
    if kind == "directory":
        lock.mkdir()
    elif kind == "link":
        lock.symlink_to("/etc/passwd")
    else:
        lock.write_text("")
        lock.chmod(0o600)
    result = bed.sbatch(*HELD, policy=SAME, env={"XDG_RUNTIME_DIR": str(run)})
    submitted(bed, result, rf"cannot lock {lock}: [\w ]+; going on without the ledger")


# -- Slurm -----------------------------------------------------------------------------------

ALL = ("scontrol", "sacctmgr", "squeue")


@pytest.mark.parametrize("commands", [ALL, ("scontrol",), ("sacctmgr",)], ids="+".join)
@pytest.mark.parametrize("fault", ["silent", "socket-timed-out"])
def test_B01_B66_queries_that_answer_nothing(
    bed: Bed, run: Path, fault: str, commands: tuple[str, ...]
) -> None:
    """Status 0 and no answer is no empty pool and no missing association: it is unknown."""
    env = {"PATH": bed.faulty(fault, *commands), "XDG_RUNTIME_DIR": str(run)}
    result = bed.sbatch(*HELD, policy=ROUTED, env=env)
    submitted(bed, result, "submitted as you wrote it: .*")
    explained = bed.explain(*HELD, policy=ROUTED, env=env)
    assert explained["action"] == "pass"
    assert [c["verdict"] for c in explained["candidates"]] == ["unknown"]
    assert commands[0] in " ".join(explained["snapshot"]["troubles"])


def test_B01_only_the_live_answer_is_missing(bed: Bed, run: Path) -> None:
    _states(bed, run)
    env = {"PATH": bed.faulty("silent", *ALL), "XDG_RUNTIME_DIR": str(run)}
    result = bed.sbatch(*HELD, policy=ROUTED, env=env)
    submitted(bed, result, "submitted as you wrote it: .*assoc_mgr.*")


def test_what_is_stored_of_one_cluster_is_not_used_for_another(bed: Bed, run: Path) -> None:
    """SLURM_CONF is what tells clusters apart: here, one that answers nothing, and ours."""
    other = bed.private("etc", "alice") / "slurm.conf"
    shutil.copy(bed.cluster.env["SLURM_CONF"], other)
    env = {"XDG_RUNTIME_DIR": str(run)}
    silent = {**env, "SLURM_CONF": str(other), "PATH": bed.faulty("silent", *ALL)}
    policy = ROUTED.replace("cache: 0", "cache: 1h")
    submitted(bed, bed.sbatch(*HELD, policy=policy, env=silent), "submitted as you wrote it: .*")
    for _ in range(2):
        assert bed.where(bed.sbatch(*HELD, policy=policy, env=env).job) == "maigan/maigan"
    submitted(bed, bed.sbatch(*HELD, policy=policy, env=silent), "submitted as you wrote it: .*")


def test_when_slurm_unreachable_refuse(bed: Bed, run: Path) -> None:
    env = {"PATH": bed.faulty("silent", *ALL), "XDG_RUNTIME_DIR": str(run)}
    policy = ROUTED + "when_slurm_unreachable: refuse\n"
    result = bed.sbatch(*HELD, policy=policy, env=env)
    assert (result.rc, result.out) == (75, b"")
    assert bed.queue() == []


def _our_part(bed: Bed, policy: str, env: dict[str, str]) -> tuple[float, Result]:
    """How long until the real sbatch is run (a fake one), and what was said."""
    dump = str(bed.private("dump-faults", "alice"))
    rest = env.get("PATH") or f"{bed.bin}:{bed.cluster.env['PATH']}"
    env = {**env, "PATH": f"{bed.bin}:{bed.fakes}:{rest}", "FAKE_SBATCH_DUMP": dump}
    began = time.monotonic()
    result = bed.sbatch(*HELD, policy=policy, env=env)
    took = time.monotonic() - began
    assert result.rc == 42, result
    given = (bed.place / "dump-faults" / "arguments").read_bytes().split(b"\0")[:-1]
    assert given == [a.encode() for a in HELD]
    return took, result


def test_B66_half_an_answer_and_silence(bed: Bed, run: Path) -> None:
    env = {
        "PATH": bed.faulty("half-then-stall", *ALL),
        "XDG_RUNTIME_DIR": str(run),
        "FAKE_REAL": "/usr/bin",
    }
    took, result = _our_part(bed, ROUTED, env)
    assert 2.0 <= took <= 3.0
    assert len(result.lines) == 1
    assert "did not answer within 2 s" in result.lines[0]
    # Within the interval in which it is not asked again: at once.
    took, result = _our_part(bed, ROUTED, env)
    assert took < 1.0
    assert len(result.lines) == 1


def test_B66_controller_stopped(bed: Bed, run: Path) -> None:
    """SIGSTOP: connections are taken and nothing answers. 2 s, once a cache interval."""
    _states(bed, run)
    env = {"XDG_RUNTIME_DIR": str(run)}
    # Other pools than those just asked for, so a new answer is needed.
    policy = "version: 1\naccounts: [maigan, clive]\ncache: 20s\n"
    bed.cluster.pause_controller()
    try:
        took, result = _our_part(bed, policy, env)
        assert 2.0 <= took <= 2.9
        assert len(result.lines) == 1
        assert result.lines[0].startswith("sbatch-router: submitted as you wrote it: ")
        assert "did not answer within 2 s" in result.lines[0]
        for _ in range(2):
            took, result = _our_part(bed, policy, env)
            assert took < 1.5
            assert len(result.lines) == 1
    finally:
        bed.cluster.resume_controller()


def test_B66_many_at_once_while_the_controller_is_stopped(bed: Bed, run: Path) -> None:
    """Those that come while one is asking wait for its answer, not for one of their own."""
    _states(bed, run)
    dump = str(bed.private("dump-faults", "alice"))
    env = {"XDG_RUNTIME_DIR": str(run), "FAKE_SBATCH_DUMP": dump}
    env["PATH"] = f"{bed.bin}:{bed.fakes}:{bed.cluster.env['PATH']}"
    policy = "version: 1\naccounts: [maigan, clive]\ncache: 20s\n"
    bed.cluster.pause_controller()
    try:
        began = time.monotonic()
        started = [bed.popen(["sbatch", *HELD], policy=policy, env=env) for _ in range(6)]
        done = [(p.communicate(timeout=30)[1], p.returncode) for p in started]
        took = time.monotonic() - began
    finally:
        bed.cluster.resume_controller()
    assert [rc for _, rc in done] == [42] * 6
    assert [err.count(b"\n") for err, _ in done] == [1] * 6, done
    assert took < 4.5


def test_controller_gone(bed: Bed, run: Path) -> None:
    """Connections are refused. (Ended, not killed: 26.05 does not start without its state.)"""
    env = {"XDG_RUNTIME_DIR": str(run)}
    bed.cluster.stop_controller()
    try:
        took, result = _our_part(bed, ROUTED, env)
        assert took <= 2.9
        assert len(result.lines) == 1
    finally:
        bed.cluster.start_controller()
        bed.cluster.wait_until(bed.cluster._nodes_up)


# -- the user --------------------------------------------------------------------------------


def test_uid_without_a_passwd_entry(bed: Bed, run: Path) -> None:
    """The policy is not for such a user: as bare sbatch does, without a word."""
    uid = 61234
    os.chown(run, uid, -1)

    def call(shim: bool) -> Result:
        env = {
            **bed.cluster.env,
            **bed.environ("alice", ROUTED, {"XDG_RUNTIME_DIR": str(run)}, shim),
        }
        done = subprocess.run(
            ["sbatch", *HELD], env=env, cwd="/", user=uid, group=uid, extra_groups=[],
            capture_output=True, check=False, stdin=subprocess.DEVNULL, timeout=30,
        )  # fmt: skip
        return Result(done.returncode, done.stdout, done.stderr)

    bare, ours = call(False), call(True)
    assert (ours.rc, ours.out) == (bare.rc, bare.out)
    assert ours.err.endswith(bare.err)
    assert ours.lines == bare.lines


def test_user_of_none_of_the_accounts(bed: Bed) -> None:
    """A site's policy reaches everybody: whom it does not concern is not kept from sbatch."""
    result = bed.sbatch(*HELD, user="una", policy=SAME)
    assert bed.where(result.job) == "other/roomy"
