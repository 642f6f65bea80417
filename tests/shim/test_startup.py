"""The shim starts, and finds the real sbatch, in environments that others have made."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sbatch_router import shim as shim_module
from sbatch_router import shimfile

from .conftest import Bed, Result

ROUTED = "version: 1\naccounts: [maigan]\ncache: 0\n"
HELD = ("-H", "--mem=10M", "--wrap", "true")


def where(bed: Bed, result: Result) -> tuple[str, list[str]]:
    """Where it was submitted, and what was said."""
    return bed.where(result.job), result.lines


MOVED = ("maigan/maigan", [("sbatch-router: submitted to maigan/maigan: mem 10M of 625G free, "
                           "cpu 1 of 160 free")])  # fmt: skip


# -- Python ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "env",
    [
        {"PYTHONHOME": "/nonsense", "PYTHONPATH": "/nonsense:"},
        {"PYTHONSTARTUP": "/nonsense", "PYTHONINSPECT": "1", "PYTHONDEVMODE": "1"},
        {"PYTHONWARNINGS": "error", "PYTHONVERBOSE": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        {"PYTHONIOENCODING": "nonsense", "PYTHONUTF8": "9", "PYTHONHASHSEED": "nonsense"},
        {"PYTHONOPTIMIZE": "2", "PYTHONNOUSERSITE": "", "PYTHONUNBUFFERED": "1"},
        {"CONDA_PREFIX": "/nonsense", "VIRTUAL_ENV": "/nonsense", "CONDA_DEFAULT_ENV": "x"},
        {"LANG": "xx_XX.nonsense", "LC_ALL": "xx"},
        {"TMPDIR": "/nonsense", "TZ": "nonsense", "COLUMNS": "1", "TERM": ""},
    ],
    ids=lambda env: next(iter(env)),
)
def test_B42_python_variables(bed: Bed, env: dict[str, str]) -> None:
    assert where(bed, bed.sbatch(*HELD, policy=ROUTED, env=env)) == MOVED


def test_B42_modules_in_the_way(bed: Bed) -> None:
    """Neither PYTHONPATH nor the directory, the script's or the home's, is imported from."""
    evil = bed.private("evil", "alice")
    for name in ("posix", "sbatch_router", "yaml", "time", "pwd", "sitecustomize", "encodings"):
        (evil / f"{name}.py").write_text("raise SystemExit('imported')\n")
    env = {"PYTHONPATH": str(evil), "HOME": str(evil)}
    # A new policy, so that YAML is read and compiled as well.
    policy = ROUTED + "# B42\n"
    assert where(bed, bed.sbatch(*HELD, policy=policy, env=env, cwd=evil)) == MOVED


def test_B42_path_without_python(bed: Bed) -> None:
    only = bed.place / "only"
    only.mkdir()
    for name in ("sbatch", "scontrol", "squeue", "sacctmgr"):
        (only / name).symlink_to(f"/usr/bin/{name}")
    env = {"PATH": f"{bed.bin}:{only}"}
    assert where(bed, bed.sbatch(*HELD, policy=ROUTED, env=env)) == MOVED


def test_B42_path_without_slurms_queries(bed: Bed) -> None:
    """Only sbatch is there: nothing is known, one line, submitted as it was written."""
    only = bed.place / "only-sbatch"
    only.mkdir()
    (only / "sbatch").symlink_to("/usr/bin/sbatch")
    env = {"PATH": f"{bed.bin}:{only}", "XDG_RUNTIME_DIR": str(bed.private("run/none", "alice"))}
    result = bed.sbatch(*HELD, policy=ROUTED, env=env)
    assert bed.where(result.job) == "clive/clive"
    assert len(result.lines) == 1
    assert result.lines[0].startswith("sbatch-router: submitted as you wrote it: ")
    assert "scontrol was not found in PATH" in result.lines[0]


def test_B42_foreign_libslurm(bed: Bed) -> None:
    """Whatever that does to sbatch itself, it does no less and no more through the shim."""
    foreign = bed.place / "foreign"
    foreign.mkdir()
    for name in ("libslurm.so", "libslurm.so.38", "libslurm.so.42", "libslurmfull.so"):
        (foreign / name).write_text("not a library\n")
    env = {"LD_LIBRARY_PATH": str(foreign), "XDG_RUNTIME_DIR": str(bed.private("run/ld", "alice"))}
    bare = bed.sbatch(*HELD, shim=False, env=env)
    ours = bed.sbatch(*HELD, policy=ROUTED, env=env)
    if bare.rc == 0:
        assert where(bed, ours) == MOVED
    else:
        assert (ours.rc, ours.out) == (bare.rc, bare.out)
        assert ours.err.endswith(bare.err)
        assert len(ours.lines) == len(bare.lines) + 1


def test_B42_empty_environment(bed: Bed) -> None:
    """``env -i /path/to/shim``: no PATH, no HOME, so no policy either."""
    conf = f"SLURM_CONF={bed.cluster.env['SLURM_CONF']}"
    temporary = f"TMPDIR={bed.private('run/env-i', 'alice')}"
    bare = bed.call(["env", "-i", conf, "/usr/bin/sbatch", *HELD])
    ours = bed.call(["env", "-i", conf, str(bed.bin / "sbatch"), *HELD])
    assert ours.plain == bare.plain
    assert ours.rc == 0
    named = f"SBATCH_ROUTER_POLICY={bed.policy(ROUTED)}"
    ours = bed.call(["env", "-i", conf, named, temporary, str(bed.bin / "sbatch"), *HELD])
    assert where(bed, ours) == MOVED


def test_B42_bytecode_that_cannot_be_written(bed: Bed) -> None:
    lib = bed.place / "uncompiled"
    shutil.copytree(bed.lib, lib, ignore=shutil.ignore_patterns("__pycache__"))
    shim = bed.make_shim(bed.place / "uncompiled-bin", lib=lib)
    result = bed.call([str(shim), *HELD], policy=ROUTED, shim=False)
    assert where(bed, result) == MOVED
    assert not list(lib.rglob("__pycache__"))


# -- which sbatch ----------------------------------------------------------------------------


def test_never_itself_with_several_shims(bed: Bed) -> None:
    """Two installations, a symbolic link, a hard link, a copy: the real one is behind them."""
    dirs = [bed.bin, bed.place / "second", bed.place / "soft", bed.place / "hard"]
    bed.make_shim(dirs[1])
    for path in dirs[2:]:
        path.mkdir()
    (dirs[2] / "sbatch").symlink_to(bed.bin / "sbatch")
    os.link(bed.bin / "sbatch", dirs[3] / "sbatch")
    path = ":".join(map(str, dirs))
    for first in dirs:
        env = {"PATH": f"{first}:{path}:/usr/bin:/bin"}
        assert where(bed, bed.sbatch(*HELD, policy=ROUTED, env=env)) == MOVED
        result = bed.sbatch(*HELD, policy=ROUTED, env={"PATH": f"{first}:{path}"}, timeout=10)
        assert (result.rc, result.out, len(result.lines)) == (127, b"", 1), result


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("{shim}:/usr/bin:/bin", True),
        ("{shim}::/usr/bin", True),
        (":{shim}:/usr/bin", True),
        ("{shim}:/nowhere:/etc/passwd:/usr/bin/:", True),
        ("{shim}:../../../usr/bin", True),
        ("{shim}:", False),
        ("", False),
        ("{shim}", False),
        ("{shim}:relative:.", False),
    ],
)
def test_B42_odd_paths(bed: Bed, path: str, found: bool) -> None:
    """Empty parts are the current directory, as for execvp."""
    env = {"PATH": path.format(shim=bed.bin)}
    argv = [str(bed.bin / "sbatch"), *HELD]
    result = bed.call(argv, env=env, cwd=bed.scripts, timeout=10)
    if found:
        assert result.job
        assert result.err == b""
        return
    assert (result.rc, result.out) == (127, b"")
    assert result.lines == [
        (
            f"sbatch-router: no sbatch in PATH ({env['PATH']}) besides this shim; "
            "is the Slurm module loaded?"
        )
    ]


def test_the_current_directory_counts_where_path_says_so(bed: Bed) -> None:
    here = bed.place / "here"
    here.mkdir()
    (here / "sbatch").symlink_to("/usr/bin/sbatch")
    for path in (f"{bed.bin}:", f"{bed.bin}:.", f":{bed.bin}", ""):
        result = bed.call([str(bed.bin / "sbatch"), *HELD], env={"PATH": path}, cwd=here)
        assert result.job


def test_path_unset_uses_the_default(bed: Bed) -> None:
    result = bed.call(["sh", "-c", 'unset PATH; exec "$0" "$@"', str(bed.bin / "sbatch"), *HELD])
    assert (result.err, bed.where(result.job)) == (b"", "clive/clive")


def test_the_remembered_sbatch_is_the_last_resort(bed: Bed) -> None:
    shim = bed.make_shim(bed.place / "remembers", real="/usr/bin/sbatch")
    result = bed.call([str(shim), *HELD], env={"PATH": "/nowhere"})
    assert (result.err, bed.where(result.job)) == (b"", "clive/clive")
    shim = bed.make_shim(bed.place / "remembers-itself", real=str(shim))
    result = bed.call([str(shim), *HELD], env={"PATH": "/nowhere"}, timeout=10)
    assert (result.rc, result.out, len(result.lines)) == (127, b"", 1)


@pytest.mark.parametrize("kind", ["directory", "not executable", "dangling link", "wrapper"])
def test_what_is_called_sbatch_but_is_none(bed: Bed, kind: str) -> None:
    """As execvp: such a name in PATH is passed over; a site's own wrapper is the real one."""
    place = bed.place / f"odd-{kind.replace(' ', '-')}"
    place.mkdir()
    odd = place / "sbatch"
    if kind == "directory":
        odd.mkdir()
    elif kind == "not executable":
        odd.write_text("#!/bin/sh\nexit 9\n")
    elif kind == "dangling link":
        odd.symlink_to("/nowhere")
    else:
        # Without #!, as shells allow.
        odd.write_text('echo "wrapped: $*" >&2\nexec /usr/bin/sbatch "$@"\n')
        odd.chmod(0o755)
    env = {"PATH": f"{bed.bin}:{place}:/usr/bin:/bin"}
    result = bed.sbatch(*HELD, env=env)
    assert bed.where(result.job) == "clive/clive"
    assert result.err == (b"wrapped: -H --mem=10M --wrap true\n" if kind == "wrapper" else b"")


NEXT_BUT_ME = {
    # Each starts the first sbatch in PATH that is not itself, as such scripts do.
    "exec": """#!/bin/sh
echo "$0" >&2
for dir in $(echo "$PATH" | tr : ' '); do
    [ "$dir/sbatch" = "$0" ] || [ ! -x "$dir/sbatch" ] || exec "$dir/sbatch" "$@"
done
""",
    "child": """#!/bin/bash
echo "$0" >&2
next=$(which -a sbatch | grep -vxF "$0" | head -n 1)
"$next" "$@"
""",
    "no #!": """echo "$0" >&2
for dir in $(echo "$PATH" | tr : ' '); do
    [ "$dir/sbatch" = "$0" ] || [ ! -x "$dir/sbatch" ] || exec "$dir/sbatch" "$@"
done
""",
}


@pytest.mark.parametrize("kind", NEXT_BUT_ME)
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("policy", [None, ROUTED.replace("cache", "explicit_account: {cli: "
                                    "override}\ncache")], ids=["plain", "routed"])  # fmt: skip
def test_wrappers_that_lead_back_to_us(bed: Bed, kind: str, count: int, policy: str | None) -> None:
    """Each has its turn once, the job is submitted once, and what we say is said once."""
    places = [bed.place / f"back-{kind[:3]}-{number}" for number in range(count)]
    for place in places:
        place.mkdir(exist_ok=True)
        (place / "sbatch").write_text(NEXT_BUT_ME[kind])
        (place / "sbatch").chmod(0o755)
    before = len(bed.queue())
    path = ":".join(map(str, [bed.bin, *places, "/usr/bin", "/bin"]))
    result = bed.sbatch(*HELD, policy=policy, env={"PATH": path}, timeout=20)
    assert bed.where(result.job) == ("maigan/maigan" if policy else "clive/clive")
    assert len(bed.queue()) == before + 1
    ours = [line for line in result.lines if line.startswith("sbatch-router")]
    assert len(ours) == bool(policy)
    assert [line for line in result.lines if line not in ours] == [
        f"{place}/sbatch" for place in places
    ]


def test_a_wrapper_with_nothing_behind_it(bed: Bed) -> None:
    place = bed.place / "back-none"
    place.mkdir()
    (place / "sbatch").write_text(NEXT_BUT_ME["exec"])
    (place / "sbatch").chmod(0o755)
    only = bed.place / "only-tools"
    only.mkdir()
    for name in ("sh", "tr"):
        (only / name).symlink_to(f"/bin/{name}")
    env = {"PATH": f"{bed.bin}:{place}:{only}"}
    result = bed.sbatch(*HELD, env=env, timeout=20)
    assert result.rc == 127
    assert "no sbatch in PATH" in result.lines[-1]


#: Start the next sbatch in PATH but "$0", having done something to what it finds us by.
SEARCH = 'next=$(which -a sbatch | grep -vxF "$0" | head -n 1)\n'
ODD_WRAPPERS = {
    "empties the environment": SEARCH
    + 'exec env -i PATH="$PATH" SLURM_CONF="$SLURM_CONF" "$next" "$@"\n',
    "leaves PATH": 'PATH=${PATH%%:*}:/usr/bin:/bin\nexec sbatch "$@"\n',
    "starts shells": SEARCH
    + 'level() { if [ $1 = 12 ]; then "$next" "${@:2}"; else (level $(($1 + 1)) "${@:2}"; true); '
    'fi; }\nlevel 0 "$@"\n',
    "is compiled": """#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char **argv) {
    char me[4096] = "", next[4096], *path = strdup(getenv("PATH")), *dir;
    if (readlink("/proc/self/exe", me, sizeof me - 1) < 0) return 1;
    fprintf(stderr, "%s\\n", me);
    for (dir = strtok(path, ":"); dir; dir = strtok(0, ":")) {
        snprintf(next, sizeof next, "%s/sbatch", dir);
        if (strcmp(next, me)) execv(next, argv);
    }
    return 1;
}
""",
}


COUNT_PROMISES = """\
import sys
sys.path.insert(0, sys.argv[1])
from sbatch_router.core.ledger import Promise
from sbatch_router.state import load_list
print(len(load_list(sys.argv[2], Promise)[0]))
"""


def make_odd_wrapper(place: Path, kind: str) -> None:
    place.mkdir(exist_ok=True)
    if kind != "is compiled":
        (place / "sbatch").write_text('#!/bin/bash\necho "$0" >&2\n' + ODD_WRAPPERS[kind])
        (place / "sbatch").chmod(0o755)
        return
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    source = place / "wrapper.c"
    source.write_text(ODD_WRAPPERS[kind])
    subprocess.run([compiler, "-o", place / "sbatch", source], check=True)


@pytest.mark.parametrize("kind", ODD_WRAPPERS)
def test_odd_wrappers_that_lead_back_to_us(bed: Bed, kind: str) -> None:
    """One turn, one job, one line, and one promise for it."""
    place = bed.place / f"odd-{kind.replace(' ', '-')}"
    make_odd_wrapper(place, kind)
    (bed.state_dir() / "ledger").unlink(missing_ok=True)
    before = len(bed.queue())
    path = f"{bed.bin}:{place}:/usr/bin:/bin"
    policy = ROUTED.replace("cache", "explicit_account: {cli: override}\ncache")
    result = bed.sbatch(*HELD, policy=policy, env={"PATH": path}, timeout=20)
    assert bed.where(result.job) == "maigan/maigan"
    assert len(bed.queue()) == before + 1
    if kind == "is compiled":
        # That it leads back is seen only once it has gone round for half a second.
        assert set(result.lines[1:]) == {f"{place}/sbatch"}
        return
    assert result.lines[1:] == [f"{place}/sbatch"]
    ledger = str(bed.state_dir() / "ledger")
    assert bed.call([bed.python, "-IS", "-c", COUNT_PROMISES, bed.lib, ledger]).out == b"1\n"


@pytest.mark.parametrize("kind", ["exec", "child"])
def test_wrappers_where_no_note_can_be_written(bed: Bed, kind: str) -> None:
    """Neither in XDG_RUNTIME_DIR nor in /tmp: somebody else has both names."""
    place = bed.place / f"unnoted-{kind}"
    place.mkdir()
    (place / "sbatch").write_text(NEXT_BUT_ME[kind])
    (place / "sbatch").chmod(0o755)
    lib = bed.place / f"lib-unnoted-{kind}"
    shutil.copytree(bed.lib, lib)
    for name in ("statedir.py", "shim.py"):
        source = lib / "sbatch_router" / name
        # Of the fixed place in /tmp, which the user's other work shares.
        source.write_text(source.read_text().replace("/tmp", "/proc/nowhere"))
    shim = bed.make_shim(bed.place / f"bin-unnoted-{kind}", lib=lib)
    env = {"PATH": f"{shim.parent}:{place}:/usr/bin:/bin", "XDG_RUNTIME_DIR": "/proc/nowhere"}
    result = bed.sbatch(*HELD, env=env, timeout=20)
    assert bed.where(result.job) == "clive/clive"
    assert result.lines == [f"{place}/sbatch"]


def test_an_sbatch_that_is_not_slurms_is_a_wrapper(bed: Bed) -> None:
    assert not shim_module.is_wrapper("/usr/bin/sbatch")
    assert shim_module.is_wrapper("/bin/true")


# -- the package -----------------------------------------------------------------------------


BREAK: dict[str, Any] = {
    "removed": lambda lib: shutil.rmtree(lib / "sbatch_router"),
    "shim.py: syntax": lambda lib: _write(lib, "shim.py", "def ("),
    "shim.py: raises": lambda lib: _write(lib, "shim.py", "raise RuntimeError('two\\nlines')"),
    "shim.py: other": lambda lib: _write(lib, "shim.py", "pass"),
    "route.py: syntax": lambda lib: _write(lib, "route.py", "def ("),
    "route.py: raises": lambda lib: _write(lib, "route.py", "1/0"),
    "shim.py: of another time": lambda lib: _append(
        lib, "shim.py", "def main(argv):\n    raise SystemExit(3)\n"
    ),
    "state.py: empty": lambda lib: _write(lib, "state.py", ""),
    "core removed": lambda lib: shutil.rmtree(lib / "sbatch_router" / "core"),
    "yaml removed": lambda lib: shutil.rmtree(lib / "yaml"),
    "decide.py: raises": lambda lib: _append(
        lib, "core/decide.py", "def decide(*args):\n    raise KeyError('two\\nlines')\n"
    ),
    "decide.py: recursion": lambda lib: _append(
        lib, "core/decide.py", "def decide(*args):\n    return decide(*args)\n"
    ),
    "decide.py: memory": lambda lib: _append(
        lib, "core/decide.py", "def decide(*args):\n    raise MemoryError\n"
    ),
    "decide.py: exits": lambda lib: _append(
        lib, "core/decide.py", "def decide(*args):\n    raise SystemExit(3)\n"
    ),
}


def _write(lib: Path, name: str, text: str) -> None:
    (lib / "sbatch_router" / name).write_text(text + "\n")


def _append(lib: Path, name: str, text: str) -> None:
    path = lib / "sbatch_router" / name
    path.write_text(path.read_text() + "\n\n" + text)


@pytest.mark.parametrize("kind", list(BREAK))
def test_a_broken_package_still_submits(bed: Bed, kind: str) -> None:
    """With one line, the original arguments, and a script on stdin not lost."""
    name = "".join(c for c in kind if c.isalpha())
    lib = bed.place / f"lib-{name}"
    shutil.copytree(bed.lib, lib)
    BREAK[kind](lib)
    shim = bed.make_shim(bed.place / f"bin-{name}", lib=lib)
    policy = ROUTED + f"# {kind}\n"
    env = {"LANG": "C", "XDG_RUNTIME_DIR": str(bed.private(f"run/{name}", "alice"))}
    script = b"#!/bin/sh\n#SBATCH -H --mem=10M\n# " + b"x" * 70000
    real = bed.cluster.env["PATH"]
    result = bed.call(
        [str(shim)], input=script, policy=policy, env={**env, "PATH": f"{shim.parent}:{real}"}
    )
    assert bed.where(result.job) == "clive/clive"
    assert len(result.lines) == 1, result
    assert result.lines[0].startswith("sbatch-router: ")
    stored = bed.place / "stored"
    bed.cluster.run("scontrol", "write", "batch_script", result.job, str(stored))
    assert stored.read_bytes() == script


def test_a_package_that_is_gone_hands_over_like_a_whole_one(bed: Bed) -> None:
    """Environment and signals are the caller's on that way, too."""
    shim = bed.make_shim(bed.place / "bin-gone", lib=bed.place / "nothing-here")
    dump = bed.private("dump-gone", "alice")
    env = {"LANG": "C", "FAKE_SBATCH_DUMP": str(dump), "PATH": f"{bed.fakes}:/usr/bin:/bin"}
    assert bed.call([str(shim), "-x", ""], env=env).rc == 42
    environ = (dump / "environ").read_bytes().split(b"\0")
    assert [x for x in environ if x.startswith((b"LC_", b"LANG"))] == [b"LANG=C"]
    assert "SigIgn:\t0000000000000000" in (dump / "signals").read_text()
    assert (dump / "arguments").read_bytes() == b"-x\0\0"
    assert bed.call([str(shim)], env={"PATH": "/nowhere"}).rc == 127
    assert len(bed.call([str(shim)], env={"PATH": "/nowhere"}).lines) == 1


@pytest.mark.parametrize("kind", [*NEXT_BUT_ME, "pipe", "cannot be read", "closed directory"])
def test_a_package_that_is_gone_knows_odd_programs(bed: Bed, kind: str) -> None:
    """What stands in PATH between us and the real sbatch is what it is with a whole package."""
    name = "".join(c for c in kind if c.isalpha())
    place = bed.private(f"odd-{name}", "alice", 0o755)
    program = place / "sbatch"
    if kind == "pipe":
        os.mkfifo(program, 0o755)
    elif kind == "cannot be read":
        shutil.copy("/usr/bin/sbatch", program)
        program.chmod(0o711)
    elif kind == "closed directory":
        shutil.copy("/usr/bin/sbatch", program)
        place.chmod(0)
    else:
        program.write_text(NEXT_BUT_ME[kind])
        program.chmod(0o755)
    lost = bed.place / "nothing-here"
    shim = bed.make_shim(bed.place / f"bin-odd-{name}", lib=lost)
    path = f"{shim.parent}:{place}" + ("" if kind == "cannot be read" else ":/usr/bin:/bin")
    result = bed.call([str(shim), *HELD], env={"PATH": path}, timeout=20)
    assert bed.where(result.job) == "clive/clive"
    ours = [line for line in result.lines if line.startswith("sbatch-router: ")]
    assert ["package is missing" in line for line in ours] == [True]


def test_ctrl_c_while_the_package_loads_is_silent(bed: Bed) -> None:
    """It ends the shim as it ends sbatch, by the signal and without a traceback."""
    lib = bed.place / "lib-interrupted"
    shutil.copytree(bed.lib, lib)
    _write(lib, "shim.py", "import os, signal; os.kill(os.getpid(), signal.SIGINT)")
    shim = bed.make_shim(bed.place / "bin-interrupted", lib=lib)
    result = bed.call([str(shim), *HELD])
    assert (result.rc, result.out, result.err) == (-signal.SIGINT, b"", b"")


# -- installing ------------------------------------------------------------------------------


def test_install_shim_writes_one_that_works(tmp_path: Path) -> None:
    target = shimfile.install(tmp_path / "bin")
    assert target.stat().st_mode & 0o777 == 0o755
    first = target.read_text().splitlines()[0]
    python = first[2:].removesuffix(" -ISXutf8")
    assert os.path.realpath(python) == os.path.realpath(sys._base_executable)
    assert shimfile.install(tmp_path / "bin") == target  # again, over itself
    (tmp_path / "bin" / "other").mkdir()
    real = tmp_path / "real" / "sbatch"
    real.parent.mkdir()
    real.write_text("#!/bin/sh\n")
    real.chmod(0o755)
    with pytest.raises(shimfile.ShimError, match="not a shim of ours"):
        shimfile.install(real.parent)
    shimfile.uninstall(tmp_path / "bin")
    assert not target.exists()


def test_install_shim_keeps_the_name_that_survives_upgrades(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "python3.99").write_text("")
    monkeypatch.setattr(sys, "_base_executable", str(tmp_path / "python3.99"))
    assert shimfile.python_for_shim() == str(tmp_path / "python3.99")
    (tmp_path / "python3").symlink_to("python3.99")
    assert shimfile.python_for_shim() == str(tmp_path / "python3")
    (tmp_path / "python3").unlink()
    (tmp_path / "python3").write_text("")
    assert shimfile.python_for_shim() == str(tmp_path / "python3.99")


def test_shim_text_is_python_whatever_the_paths_are() -> None:
    text = shimfile.text("/usr/bin/python3", ["/caf\udce9/'x'", '/"y"\\'], "/b\n/sbatch")
    compile(text, "sbatch", "exec")
    assert text.isascii()
