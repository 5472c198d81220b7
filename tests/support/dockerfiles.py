"""Finds mistakes in a Dockerfile that a build would stop at, without a build."""

from __future__ import annotations

import re
from typing import List, Set, Tuple

import dockerfile

__all__ = ["copied_sources", "problems_of", "stages"]

_INSTRUCTION = re.compile(
    "ADD|ARG|CMD|COPY|ENTRYPOINT|ENV|EXPOSE|FROM|HEALTHCHECK|LABEL|ONBUILD|RUN|SHELL|STOPSIGNAL|USER|VOLUME|WORKDIR"
)
_OF_THE_BASE = frozenset({"PATH"})
_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)")


def stages(text: str) -> List[Tuple[str, List[dockerfile.Command]]]:
    """Returns the name of each stage, "" if it has none, with its instructions. The first stage is what precedes FROM.

    Raises:
        dockerfile.GoParseError: the text is no Dockerfile.
    """
    found: List[Tuple[str, List[dockerfile.Command]]] = [("", [])]
    for command in dockerfile.parse_string(text):
        if command.cmd == "FROM":
            name = command.value[2] if len(command.value) == 3 else ""
            found.append((name, []))
        found[-1][1].append(command)
    return found


def copied_sources(text: str) -> List[str]:
    """Returns what the instructions COPY take from the build context."""
    commands = [command for _, stage in stages(text) for command in stage if command.cmd == "COPY"]
    return [
        source
        for command in commands
        if not any(flag.startswith("--from=") for flag in command.flags)
        for source in command.value[:-1]
    ]


def problems_of(text: str, present: Set[str]) -> List[str]:
    """Returns the mistakes, each with the number of its line.

    Args:
        text: of the Dockerfile.
        present: the files and folders of the build context.
    """
    problems: List[str] = []
    (_, before), *rest = stages(text)
    of_all = {_argument(command) for command in before if command.cmd == "ARG"}
    problems += [f"line {each.start_line}: {each.cmd} before FROM" for each in before if each.cmd != "ARG"]
    earlier: Set[str] = set()
    used: Set[str] = set()
    declared = set(of_all)
    for name, commands in rest:
        known = set(_OF_THE_BASE)
        for command in commands:
            place = f"line {command.start_line}: "
            if not _INSTRUCTION.fullmatch(command.cmd):
                problems.append(f"{place}{command.cmd} is unknown")
                continue
            asked = set(_VARIABLE.findall(command.original))
            used |= asked
            available = of_all if command.cmd == "FROM" else known
            problems += [f"{place}{each} is not declared" for each in sorted(asked - available)]
            if command.cmd == "ARG":
                known.add(_argument(command))
                declared.add(_argument(command))
            elif command.cmd == "ENV":
                known |= set(command.value[::2])
            for flag in command.flags:
                if flag.startswith("--from=") and flag[len("--from=") :] not in earlier:
                    problems.append(f"{place}no earlier stage {flag[len('--from=') :]}")
        earlier.add(name)
    problems += [
        f"{each} is not in the build context" for each in copied_sources(text) if each not in present
    ]
    problems += [f"the argument {each} is not used" for each in sorted(declared - used)]
    return problems


def _argument(command: dockerfile.Command) -> str:
    return command.value[0].partition("=")[0]
