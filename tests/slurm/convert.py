"""`scontrol show assoc_mgr` as printed for people, turned into what ``-o`` prints.

The recordings of 24.11 and 26.05 have QOS in the first form only. The real cluster's tests
prove on the release at hand that the result is the same as what ``-o`` prints.
"""

from __future__ import annotations


def oneline(text: str) -> str:
    lines: list[str] = []
    for line in text.split("\n"):
        indent = len(line) - len(line.lstrip(" "))
        word = line.strip()
        if not word:
            continue
        if indent == 0:
            lines.append(line)
        elif word in ("Account Limits", "User Limits"):
            lines[-1] += f" {word}="
        elif indent == 6:
            lines[-1] += f" {word}={{"
        elif word in ("No Accounts", "No Users"):
            lines[-1] += word
        elif indent == 8:
            more = lines[-1].endswith("}")
            lines[-1] = (lines[-1][:-1] + " " if more else lines[-1]) + word + "}"
        else:
            lines[-1] += " " + line[4:]
    return "".join(line + "\n" for line in lines)
