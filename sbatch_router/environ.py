"""What the caller's environment asks of us, and how we answer: one line on standard error.

The first module of every submission, so it imports builtin modules only.
"""

import posix

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Mapping, Optional, Tuple

#: Where `wrappers` notes what it cannot note in a file.
PASSED = b"SBATCH_ROUTER_PASSED"

#: The site's policy.
SITE = "/etc/sbatch-router/policy.yaml"


def switched_off(environ: "Mapping[bytes, bytes]") -> bool:
    """``SBATCH_ROUTER=off`` (or 0, no) passes one call through."""
    return environ.get(b"SBATCH_ROUTER", b"").lower() in (b"off", b"0", b"no")


def policy_paths(environ: "Mapping[bytes, bytes]") -> "Tuple[str, ...]":
    """The policy files that exist: the user's own (or the one named), then the site's."""
    named = environ.get(b"SBATCH_ROUTER_POLICY", b"")
    if named:
        # Named but missing is a mistake to be told of, not silence: always in the list.
        own: Optional[str] = named.decode("utf-8", "surrogateescape")
    else:
        home = environ.get(b"HOME", b"")
        base = environ.get(b"XDG_CONFIG_HOME") or (home and home + b"/.config")
        own = base.decode("utf-8", "surrogateescape") + "/sbatch-router/policy.yaml"
        own = own if own[:1] == "/" and _exists(own) else None
    found = [own] if own else []
    if SITE not in found and _exists(SITE):
        found.append(SITE)
    return tuple(found)


def _exists(path: str) -> bool:
    try:
        posix.stat(path)
    except (OSError, ValueError):
        return False
    return True


def say(text: str) -> None:
    """One line on standard error; a closed or full one is not our business."""
    say_text(f"sbatch-router: {text}\n")


def say_text(text: str) -> None:
    """`text` as it is on standard error."""
    try:
        posix.write(2, text.encode("utf-8", "surrogateescape"))
    except OSError:
        return
