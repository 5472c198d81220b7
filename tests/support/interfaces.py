"""What the network interfaces of this host have carried, as the kernel counts it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Dict

__all__ = ["carried"]

_COLUMNS = {"received": 0, "received packets": 1, "sent": 8, "sent packets": 9}
_COMMAND_SECONDS = 20


def carried() -> Dict[str, int]:
    """Returns the bytes and packets since the host is up, of all interfaces but loopback.

    "sent" leaves out what TCP sent a second time: on a busy machine an acknowledgement may come so late that it does.
    """
    lines = Path("/proc/self/net/dev").read_text().splitlines()
    numbers = [
        line.split(":")[1].split() for line in lines if ":" in line and not line.strip().startswith("lo:")
    ]
    found = {name: sum(int(each[column]) for each in numbers) for name, column in _COLUMNS.items()}
    found["sent"] -= _sent_again()
    return found


def _sent_again() -> int:
    """Returns the bytes that the open TCP connections of this host have sent more than once."""
    command = ["ss", "--tcp", "--info", "--numeric", "--no-header"]
    text = subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=_COMMAND_SECONDS
    ).stdout
    return sum(int(number) for number in re.findall(r"\bbytes_retrans:(\d+)", text))
