"""`doctor` on a real cluster: well, and broken in each way it knows."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from sbatch_router.cli import doctor

from .conftest import PROGRAM, SEED, Cli


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/alice/x", "nfs4"),
        ("/home", "nfs4"),
        ("/homework", "ext4"),
        ("/a b/c", "tmpfs"),
        ("/", "ext4"),
    ],
)
def test_file_system(tmp_path: Path, path: str, kind: str) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "/dev/sda / ext4 rw 0 0\nserver:/home /home nfs4 rw 0 0\nnone /a\\040b tmpfs rw 0 0\nbad\n"
    )
    assert doctor.file_system(path, str(mounts)) == kind
    assert doctor.file_system(path, str(tmp_path / "none")) == ""


def by_name(cli: Cli, env: dict[str, str] | None = None, rc: int = 0) -> dict[str, Any]:
    found = cli.run("doctor", "--json", env=env)
    assert (found.rc, found.err) == (rc, "")
    data = json.loads(found.out)
    assert data["ok"] == (rc == 0)
    for check in data["checks"]:
        assert set(check) == {"name", "status", "detail", "next", "milliseconds"}
        assert check["next"] or check["status"] != "failed", check
    return {check["name"]: check for check in data["checks"]}


def with_shim(cli: Cli) -> dict[str, str]:
    return {"PATH": f"{cli.shim_dir}:{PROGRAM.parent}:{cli.cluster.env['PATH']}"}


pytestmark = pytest.mark.cluster


def test_all_is_well(cli: Cli) -> None:
    path = cli.policy()
    found = cli.run("doctor", env=with_shim(cli))
    assert (found.rc, found.err) == (0, "")
    text = found.out
    assert "ok       slurmctld         cluster " in text
    assert "AccountingStorageEnforce=associations,limits,qos" in text
    assert re.search(r"ok       slurmdbd          alice has \d accounts: brusko, clive, ", text)
    assert str(path).replace(str(cli.cluster.home("alice")), "~") in text
    assert text.splitlines()[-1] == "all is well"
    checks = by_name(cli, with_shim(cli))
    assert {c["status"] for c in checks.values()} == {"ok"}
    assert checks["slurmctld"]["milliseconds"] > 0
    assert "scontrol is used: it costs less" in checks["pyslurm"]["detail"]


def test_no_shim_and_no_policy(cli: Cli) -> None:
    checks = by_name(cli)
    assert (checks["shim"]["status"], checks["shim"]["next"]) == (
        "warning",
        "sbatch-router install-shim ~/bin",
    )
    assert (checks["policy"]["status"], checks["policy"]["next"]) == (
        "warning",
        "sbatch-router init",
    )
    shown = cli.run("doctor")
    assert shown.out.splitlines()[-1] == "nothing is broken; 2 warnings"
    assert "next: sbatch-router init" in shown.out


def test_the_shim_comes_second(cli: Cli) -> None:
    cli.policy()
    path = f"{PROGRAM.parent}:{cli.cluster.env['PATH']}:{cli.shim_dir}"
    shim = by_name(cli, {"PATH": path}, rc=1)["shim"]
    assert shim["status"] == "failed"
    assert "comes after /usr/bin/sbatch in PATH" in shim["detail"]
    assert shim["next"] == f"export PATH={cli.shim_dir}:$PATH"


@pytest.mark.parametrize(
    ("old", "new", "status", "words"),
    [
        ("#!", "#!/gone", "failed", "is gone"),
        ("sys.path[:0] = [", "sys.path[:0] = ['/other', ", "warning", "another installation"),
        ("sys.path[:0] = ['", "sys.path[:0] = ['/gone", "failed", "missing or broken"),
        ("main(sys.argv", "raise SystemExit(3)\n    main(sys.argv", "failed", "status 3"),
    ],
)
def test_a_shim_that_is_out_of_date(
    cli: Cli, tmp_path: Path, old: str, new: str, status: str, words: str
) -> None:
    cli.policy()
    place = cli.cluster.home("alice") / "bin"
    place.mkdir(exist_ok=True)
    text = (cli.shim_dir / "sbatch").read_text()
    (place / "sbatch").write_text(text.replace(old, new, 1))
    (place / "sbatch").chmod(0o755)
    env = {"PATH": f"{place}:{PROGRAM.parent}:{cli.cluster.env['PATH']}"}
    shim = by_name(cli, env, rc=int(status == "failed"))["shim"]
    assert (shim["status"], words in shim["detail"]) == (status, True), shim
    assert shim["next"] == f"sbatch-router install-shim {place}"


def test_switched_off(cli: Cli) -> None:
    cli.policy()
    checks = by_name(cli, {**with_shim(cli), "SBATCH_ROUTER": "off"})
    assert checks["switch"]["next"] == "unset SBATCH_ROUTER"


def test_slurmctld_is_down(cli: Cli) -> None:
    cli.policy()
    cli.cluster.stop_controller()
    try:
        checks = by_name(cli, rc=1)
    finally:
        cli.cluster.start_controller()
    assert checks["slurmctld"]["status"] == "failed"
    assert checks["slurmctld"]["next"] == "scontrol ping"
    for name in ("slurmdbd", "enforcement", "live usage"):
        assert checks[name]["status"] == "skipped"


def test_no_slurm(cli: Cli) -> None:
    checks = by_name(cli, {"PATH": "/nowhere"}, rc=1)
    commands = checks["Slurm's commands"]
    assert commands["status"] == "failed"
    assert commands["detail"].startswith("not in PATH: scontrol, squeue, sacctmgr, sacct")
    assert "load the Slurm module" in commands["next"]
    assert checks["real sbatch"]["status"] == "failed"


@pytest.mark.slow
def test_limits_are_not_enforced(cli: Cli) -> None:
    cli.policy()
    cli.cluster.reconfigure(restart=True, AccountingStorageEnforce="associations")
    try:
        checks = by_name(cli, with_shim(cli))
        cli.cluster.hold("bob", "-A", "clive", "--mem=250G", "-c2")
        status = cli.run("status")
        data = json.loads(cli.run("status", "--json").out)
    finally:
        cli.cluster.reconfigure(restart=True, AccountingStorageEnforce=None)
    assert checks["enforcement"]["status"] == "warning"
    assert "no limit binds here" in checks["enforcement"]["detail"]
    # slurmctld counts nothing then: bob's 250G are not 0 of a limit.
    words = "no limit binds here (AccountingStorageEnforce)"
    assert f"\n{words}: every job is passed through\n" in status.out
    assert "clive/clive    nothing is limited here (your default account)" in status.out
    assert " of " not in status.out.partition("clive/clive")[2]
    assert [(p["limits"], p["why"]) for p in data["pools"][:2]] == [([], words)] * 2


def test_a_broken_policy_and_old_blocks(cli: Cli) -> None:
    path = cli.policy("version: 1\naccounts: [a]\nwhen_ful: x\ncache: 5\n")
    checks = by_name(cli, rc=1)
    assert checks["policy"]["status"] == "failed"
    assert checks["policy"]["detail"] == (
        f"{path}:3: when_ful: unknown key; did you mean `when_full`? (and 1 more)"
    )
    assert checks["policy"]["next"] == f"sbatch-router check {path}"
    cli.policy(
        "version: 1\naccounts: [clive]\n"
        "blocked: [{account: brusko, reason: full, review: 2020-01-01}]\n"
    )
    assert by_name(cli)["review"]["status"] == "warning"
    cli.policy("version: 1\naccounts: [clive, nosuch]\n")
    policy = by_name(cli, rc=1)["policy"]
    assert "account nosuch does not exist" in policy["detail"]
    assert policy["next"] == f"sbatch-router check --live {path}"


def test_state_and_log(cli: Cli) -> None:
    cli.policy()
    alice = cli.cluster.uid("alice")
    bad = cli.run_dir("alice") / "sbatch-router"
    bad.symlink_to("/tmp")
    state = by_name(cli, rc=1)["state"]
    assert (state["status"], "not a directory of yours alone" in state["detail"]) == (
        "failed",
        True,
    )
    bad.unlink()
    log = cli.log()
    log.parent.mkdir(parents=True)
    for place in (log.parent.parent.parent, log.parent.parent, log.parent):
        os.chown(place, alice, -1)
    log.mkdir()
    assert by_name(cli)["log"]["status"] == "warning"
    log.rmdir()
    log.write_text("x" * (6 << 20))
    os.chown(log, alice, -1)
    large = by_name(cli)["log"]
    assert (large["status"], large["next"]) == ("warning", "sbatch-router history (sets it aside)")


#: A pyslurm that can tell what it is.
TELLS = """
__version__ = {!r}
def slurm_api_version(): return (26, 5, 5)
class PyslurmError(Exception): pass
"""
#: What a pyslurm does when it is imported; what doctor says where the policy asks for it, and
#: what to run next.
PYSLURMS = {
    "missing": (
        "raise ModuleNotFoundError(\"No module named 'pyslurm'\")",
        "No module named 'pyslurm'",
        "see docs/pyslurm.md",
    ),
    "another release": (
        TELLS.format("1.2.3"),
        "1.2.3 is not made for Slurm 26.5.5",
        "pip install 'pyslurm==26.5.*'",
    ),
    "exits": (
        "import sys; sys.stderr.write('fatal: no conf\\n'); sys.exit(1)",
        "fatal: no conf",
        "source: scontrol in the policy",
    ),
    "exits well": (
        "import os; os._exit(0)",
        "ended without an answer",
        "source: scontrol in the policy",
    ),
    "cannot read": (
        TELLS.format("26.5.0"),
        "AttributeError",
        "source: scontrol in the policy",
    ),
}


def with_pyslurm(cli: Cli, body: str, *argv: str, source: str = "pyslurm") -> str:
    """What a copy of our package with such a pyslurm beside it prints as alice."""
    import sbatch_router

    lib = cli.cluster.directory / "pyslurm-lib"
    shutil.rmtree(lib, ignore_errors=True)
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(sbatch_router.__file__).parent, lib / "sbatch_router", ignore=ignore)
    (lib / "pyslurm.py").write_text(body + "\n")
    cli.policy(SEED + f"source: {source}\n")
    code = f"import sys; sys.path[:0] = [{str(lib)!r}]; from sbatch_router.cli import main; main()"
    found = cli.run("-I", "-c", code, *argv, program=sys.executable)
    assert found.rc == 0, found
    return found.out


def pyslurm_of(text: str) -> dict[str, Any]:
    (found,) = [one for one in json.loads(text)["checks"] if one["name"] == "pyslurm"]
    return found  # type: ignore[no-any-return]


@pytest.mark.slow
@pytest.mark.parametrize("name", PYSLURMS)
def test_a_pyslurm_that_cannot_be_used(cli: Cli, name: str) -> None:
    body, words, next_ = PYSLURMS[name]
    asked = pyslurm_of(with_pyslurm(cli, body, "doctor", "--json"))
    assert asked["status"] == "warning"
    assert words in asked["detail"]
    assert "scontrol is used, though the policy asks for pyslurm" in asked["detail"]
    assert asked["next"] == next_
    # Where nobody asks for it nothing is wrong.
    other = pyslurm_of(with_pyslurm(cli, body, "doctor", "--json", source="auto"))
    assert (other["status"], other["next"]) == ("ok", "")
    assert "scontrol is used: it costs less than pyslurm" in other["detail"]


def test_explain_says_why_it_is_not_pyslurm(cli: Cli) -> None:
    body, words, _ = PYSLURMS["another release"]
    argv = ("explain", "--mem=1G", "--wrap", "true")
    told = " ".join(with_pyslurm(cli, body, *argv).split())
    assert re.search(
        rf"usage from scontrol, \d s old; the policy asks for pyslurm: .*{words}", told
    )
    told = with_pyslurm(cli, body, *argv, source="scontrol")
    assert "from scontrol" in told
    assert "pyslurm" not in told


@pytest.mark.slow
def test_a_pyslurm_that_hangs(cli: Cli) -> None:
    body = "import time; time.sleep(60)"
    text = with_pyslurm(cli, body, "doctor", "--json")
    assert re.search(r"did not answer within [\d.]+ s; ", pyslurm_of(text)["detail"])


def test_the_real_pyslurm(cli: Cli) -> None:
    try:
        importlib.metadata.version("pyslurm")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("pyslurm is not installed here: `containers/image test testing` has it")
    cli.policy(SEED + "source: pyslurm\n")
    pyslurm = by_name(cli)["pyslurm"]
    assert pyslurm["status"] == "ok", pyslurm
    assert pyslurm["detail"].endswith("; pyslurm is used: the policy asks for it")
    assert pyslurm["milliseconds"] > 0
    told = cli.run("explain", "--mem=1G", "--wrap", "true").out
    assert "from pyslurm, " in told
    assert "asks for pyslurm" not in told
