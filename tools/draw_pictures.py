"""Draws the pictures of the documentation: the architecture, and binary blocks among six ranks.

Usage: python3 tools/draw_pictures.py [--check]. Writes docs/pictures/*.svg; with --check it writes nothing, and fails where a
picture is not what would be drawn. The schedule is read from what `print_schedule binary_blocks --size 6` prints, as kept in
tests/core/analysis/golden/, which a test holds equal to the algorithm.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Dict, List, NamedTuple, Sequence, Tuple

__all__ = ["ARCHITECTURE", "architecture", "messages_of", "schedule"]

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "pictures"
SCHEDULE = ROOT / "tests" / "core" / "analysis" / "golden" / "binary_blocks_6.txt"

INK, FAINT, ADD, COPY = "#1f2933", "#9aa5b1", "#1d4ed8", "#b45309"
FONT = 'font-family="Helvetica, Arial, sans-serif"'

# From the top down: the title of a layer, and its folders with what they do.
ARCHITECTURE: Sequence[Tuple[str, Sequence[Tuple[str, str]]]] = (
    (
        "Python: commands",
        (
            ("tf_strategies/launcher", "tfs-run, tfs.launch: start a cluster"),
            ("tf_strategies/doctor", "tfs-doctor: before a job"),
            ("tf_strategies/trace", "tfs-trace: who waited for whom"),
        ),
    ),
    (
        "Python: strategies",
        (
            ("tf_strategies/collective", "all-reduce strategy"),
            ("tf_strategies/parameter_server", "asynchronous, SyncReplicas"),
            ("tf_strategies/elastic", "fit after a loss"),
            ("tf_strategies/local_steps", "averages of weights"),
            ("tf_strategies/callbacks", "backup, stop, summaries"),
        ),
    ),
    (
        "Python: large batches",
        (
            ("tf_strategies/optimizers", "LARS, LAMB, SGD for every Keras"),
            ("tf_strategies/schedules", "warm-up to the scaled rate; decays"),
            ("tf_strategies/large_batch", "finds known pitfalls"),
        ),
    ),
    (
        "Python: bridges",
        (
            ("tf_strategies/keras", "one table of patches"),
            ("tf_strategies/row_checks", "losses that are no means"),
            ("tf_strategies/compression", "what is sent of a gradient"),
            ("tf_strategies/session_graphs", "v1 sessions, Estimator"),
            ("tf_strategies/evaluator", "the evaluator task"),
        ),
    ),
    (
        "Python: foundation",
        (
            ("tf_strategies/control_plane", "who is in the group"),
            ("tf_strategies/arbiter", "which half of it goes on"),
            ("tf_strategies/gateway", "keeps strangers from servers"),
            ("tf_strategies/native", "the operations"),
            ("tf_strategies/_tf", "TensorFlow's private names"),
        ),
    ),
    ("C++: TensorFlow", (("ops/kernels", "operations and their kernels"),)),
    (
        "C++: runtime",
        (
            ("ops/communicator", "runs schedules; deadlines, failures"),
            ("ops/channel", "one tensor, worker to server"),
            ("ops/confine", "TensorFlow's server, on loopback alone"),
            ("ops/ledger", "whose gradients count"),
            ("ops/staging", "copies between GPU and host"),
        ),
    ),
    (
        "C++: parts",
        (
            ("ops/transport", "shared memory, TCP, RDMA"),
            ("ops/schedule", "the algorithms, as integers"),
            ("ops/reduce", "vectorised sums"),
            ("ops/compress", "top-k, quantizers"),
            ("ops/cuda", "the same on GPUs, a library apart"),
        ),
    ),
    ("C++: base", (("ops/base", "the standard library only"),)),
)


class Message(NamedTuple):
    """One message of a schedule. `adds` says whether the receiver adds it to what it has, or copies it."""

    step: int
    sender: int
    receiver: int
    range: str
    adds: bool


def messages_of(printed: str) -> List[Message]:
    """Returns the messages of a schedule as `print_schedule` prints it, each once."""
    found, rank = [], -1
    for line in printed.splitlines():
        heading = re.fullmatch(r"rank (\d+)", line.strip())
        if heading:
            rank = int(heading[1])
        step = re.match(r"\s*step (\d+) ", line)
        if step:
            for kind, part, sender in re.findall(r"(add|copy) (\[\d+,\d+\)) from rank (\d+)", line):
                found.append(Message(int(step[1]), int(sender), rank, part, kind == "add"))
    return found


def schedule(printed: str) -> str:
    """Returns a drawing of a schedule: a row for each rank, a column for each step, an arrow for each message."""
    messages = messages_of(printed)
    ranks = max(max(each.sender, each.receiver) for each in messages) + 1
    row, lane, left, top = 70, 30, 80, 70
    lanes = _lanes(messages)
    widths = [
        1 + max(number for message, number in lanes.items() if message.step == step)
        for step in range(max(each.step for each in messages) + 1)
    ]
    starts = [left + sum(widths[:step]) * lane + step * 40 for step in range(len(widths))]
    width, height = starts[-1] + widths[-1] * lane + 20, top + (ranks - 1) * row + 60
    drawn = [
        _text(
            left - 70, 24, "Binary blocks among six ranks, 24 elements: blocks of 4 and 2", 15, weight="bold"
        )
    ]
    for rank in range(ranks):
        y = top + rank * row
        drawn.append(f'<line x1="{left - 10}" y1="{y}" x2="{width - 10}" y2="{y}" stroke="{FAINT}"/>')
        drawn.append(_text(left - 70, y + 5, f"rank {rank}", 13))
    for step, start in enumerate(starts):
        drawn.append(_text(start, top - 20, f"step {step}", 13, weight="bold"))
    for message, number in lanes.items():
        drawn.append(_arrow(starts[message.step] + number * lane + 8, top, row, message))
    foot = height - 16
    for x, color, meaning in ((left, ADD, "the receiver adds"), (left + 200, COPY, "the receiver copies")):
        drawn.append(
            f'<line x1="{x}" y1="{foot - 4}" x2="{x + 30}" y2="{foot - 4}" stroke="{color}" stroke-width="2"/>'
        )
        drawn.append(_text(x + 38, foot, meaning, 13))
    return _svg(
        width, height, drawn, "Messages of the binary-blocks all-reduce among six ranks, step by step"
    )


def architecture() -> str:
    """Returns a drawing of the layers: each may use what is below it."""
    width, row, left, top = 1000, 84, 170, 20
    drawn = []
    for number, (title, folders) in enumerate(ARCHITECTURE):
        y = top + number * row
        drawn.append(_text(10, y + 34, title, 14, weight="bold"))
        each = (width - left - 10) / len(folders)
        color = ADD if title.startswith("Python") else COPY
        for place, (folder, meaning) in enumerate(folders):
            x = left + place * each
            drawn.append(
                f'<rect x="{x:g}" y="{y}" width="{each - 10:g}" height="58" rx="6" fill="none" stroke="{color}"/>'
            )
            drawn.append(_text(x + 10, y + 24, folder.removeprefix("tf_strategies/"), 14, weight="bold"))
            drawn.append(_text(x + 10, y + 44, meaning, 12))
        if number:
            drawn.append(
                f'<path d="M 85 {y - 22} v 14 m -5 -6 l 5 6 l 5 -6" fill="none" stroke="{FAINT}" stroke-width="2"/>'
            )
    return _svg(
        width, top + len(ARCHITECTURE) * row, drawn, "The layers of tf_strategies; each uses those below it"
    )


def _lanes(messages: Sequence[Message]) -> Dict[Message, int]:
    """Returns the lane of each message within its step: messages that cross have lanes of their own."""
    lanes: Dict[Message, int] = {}
    for message in sorted(
        messages, key=lambda each: (each.step, abs(each.sender - each.receiver), each.sender)
    ):
        taken = {
            number
            for other, number in lanes.items()
            if other.step == message.step
            and min(message.sender, message.receiver) <= max(other.sender, other.receiver)
            and min(other.sender, other.receiver) <= max(message.sender, message.receiver)
        }
        lanes[message] = next(number for number in range(len(messages)) if number not in taken)
    return lanes


def _arrow(x: float, top: float, row: float, message: Message) -> str:
    begin, end = top + message.sender * row, top + message.receiver * row
    down = 1 if end > begin else -1
    color = ADD if message.adds else COPY
    tip = end - 3 * down
    middle = begin + row / 2 * down
    return (
        f'<circle cx="{x}" cy="{begin}" r="3" fill="{color}"/>'
        f'<line x1="{x}" y1="{begin}" x2="{x}" y2="{tip}" stroke="{color}" stroke-width="2"/>'
        f'<path d="M {x - 5} {tip - 8 * down} L {x} {tip} L {x + 5} {tip - 8 * down}" '
        f'fill="none" stroke="{color}" stroke-width="2"/>'
        f'<text x="{x + 5}" y="{middle}" {FONT} font-size="11" fill="{INK}" text-anchor="middle" '
        f'transform="rotate(-90 {x + 5} {middle}) translate(0 9)">{message.range}</text>'
    )


def _text(x: float, y: float, text: str, size: int, weight: str = "normal") -> str:
    return f'<text x="{x:g}" y="{y:g}" {FONT} font-size="{size}" font-weight="{weight}" fill="{INK}">{text}</text>'


def _svg(width: float, height: float, drawn: Sequence[str], label: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{label}">\n'
        f'<rect width="{width:g}" height="{height:g}" fill="#ffffff"/>\n' + "\n".join(drawn) + "\n</svg>\n"
    )


def main() -> int:
    pictures = {"binary_blocks.svg": schedule(SCHEDULE.read_text()), "architecture.svg": architecture()}
    check = sys.argv[1:] == ["--check"]
    stale = [
        name
        for name, drawn in pictures.items()
        if not (PICTURES / name).exists() or (PICTURES / name).read_text() != drawn
    ]
    for name in stale:
        print(f"docs/pictures/{name} {'is not what tools/draw_pictures.py draws' if check else 'drawn'}")
        if not check:
            (PICTURES / name).write_text(pictures[name])
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
