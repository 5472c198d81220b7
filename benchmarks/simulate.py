"""All-reduce on clusters that need not exist: the verified schedules, played by a model of the network.

    make tools
    python -m benchmarks.simulate [--sizes 8,24,4096] [--bytes 1024,1048576] [--out out/simulate]

The C++ tool `simulate_schedule` builds and verifies each schedule and plays all its messages: on "alpha_beta" by the α-β-γ
model of Thakur, Rabenseifner and Gropp 2005, on the others with hosts of 8 GPUs whose messages share links (max-min fair;
`ops/analysis/topology.cc` is the table of them). "halving_doubling" is folded to a power of two at other P; "hierarchical" runs
inside the hosts first, then binary blocks across, "hierarchical:NAME" any other. A step starts when the one before is complete.
`auto` is what a communicator chooses on that topology.
Then what it chooses is held against the model it was made with: one host, chunks and steps overlap.

Writes simulate.csv, choice.csv, simulate.md and a plot for each topology (needs matplotlib; `--no-plots` does without). Takes
some two minutes on an idle core, and 0.7 GB for the 33 million messages of a ring of 4096 ranks.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import ending

_ROOT = Path(__file__).resolve().parents[1]
_TOOL = _ROOT / ".build" / "core" / "bin" / "simulate_schedule"
_SECONDS = 3600

_FLAT = ("ring", "recursive_doubling", "halving_doubling", "binary_blocks")
_ALGORITHMS = (*_FLAT, "hierarchical", "hierarchical:ring")
_TOPOLOGIES = ("alpha_beta", "pcie", "nvlink", "nvlink_tree")
_SIZES = (8, 24, 64, 256, 600, 1024, 4096)
_BYTES = (1 << 10, 1 << 15, 1 << 20, 1 << 25, 1 << 30)
_CHOICE_SIZES = (2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 64, 100)
_CHOICE_BYTES = tuple(1 << power for power in range(8, 27))
_COLORS = dict(zip(_ALGORITHMS, ("tab:red", "tab:gray", "tab:blue", "tab:green", "tab:purple", "tab:orange")))


class SimulationError(RuntimeError):
    """simulate_schedule is missing, refused its input, or did not end in time."""


def simulate(
    algorithms: Sequence[str],
    topologies: Sequence[str],
    sizes: Sequence[int],
    lengths: Sequence[int],
    seconds: float = _SECONDS,
) -> Iterator[dict]:
    """Yields a row for each prediction as it is made.

    Args:
        algorithms: names; `simulate_schedule --help` lists them.
        topologies: names.
        sizes: numbers of ranks.
        lengths: bytes of the message, float32.
        seconds: how long the tool may take in all.

    Yields:
        dict of topology, algorithm, size, bytes, seconds, messages, busiest_link, busy (the part of the time in which that
        link carries), chosen (whether `auto` takes this algorithm).

    Raises:
        SimulationError: with what to do.
    """
    if not _TOOL.exists():
        raise SimulationError(f"{_TOOL} is missing: run `make tools`")
    command = [str(_TOOL)]
    for option, values in (
        ("--algorithms", algorithms), ("--topologies", topologies), ("--sizes", sizes), ("--bytes", lengths),
    ):  # fmt: skip
        command += [option, ",".join(map(str, values))]
    # timeout(1) ends the tool also while nothing comes that could be read.
    with subprocess.Popen(
        ["timeout", str(seconds), *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as tool:
        try:
            for row in csv.DictReader(tool.stdout):
                yield {
                    **row, "size": int(row["size"]), "bytes": int(row["bytes"]), "seconds": float(row["seconds"]),
                    "messages": int(row["messages"]), "busy": float(row["busy"]), "chosen": row["chosen"] == "1",
                }  # fmt: skip
        except BaseException:
            tool.terminate()  # timeout(1) passes it on
            raise
        errors = tool.stderr.read()
    if tool.returncode == 124:
        raise SimulationError(f"{_TOOL.name} did not end within {seconds:.0f} s: ask for fewer sizes")
    if tool.returncode:
        raise SimulationError(errors.strip())


def points(rows: Sequence[dict]) -> dict:
    """Returns {(topology, size, bytes): {algorithm: row}}, in the order of the rows."""
    found: dict = {}
    for row in rows:
        found.setdefault((row["topology"], row["size"], row["bytes"]), {})[row["algorithm"]] = row
    return found


def table(rows: Sequence[dict], algorithms: Sequence[str]) -> str:
    """Milliseconds as Markdown, the fastest of a line in bold, with what `auto` takes and how much longer that is."""
    lines = [
        f"| topology | P | bytes | {' | '.join(algorithms)} | `auto`, over the best |",
        "|" + "---|" * (len(algorithms) + 4),
    ]
    for (topology, size, length), of in sorted(points(rows).items()):
        best = min(row["seconds"] for row in of.values())
        cells = []
        for algorithm in algorithms:
            text = f"{1e3 * of[algorithm]['seconds']:.3g}" if algorithm in of else ""
            cells.append(f"**{text}**" if text and of[algorithm]["seconds"] == best else text)
        chosen = [row for row in of.values() if row["chosen"]]
        over = f"{chosen[0]['algorithm']}, {chosen[0]['seconds'] / best:.2f}×" if chosen else ""
        lines.append(f"| {topology} | {size} | {length:,} | {' | '.join(cells)} | {over} |")
    return "\n".join(lines)


def crossings(rows: Sequence[dict]) -> list[dict]:
    """Where the choice and the model's best change with the bytes.

    Returns:
        For each P: size, chosen and best (lists of (bytes from which, algorithm)), worst (the largest ratio of the choice's time
        to the best's) and at (the bytes of it).
    """
    found: dict = {}
    for (_, size, length), of in sorted(points(rows).items()):
        chosen = next(row for row in of.values() if row["chosen"])
        best = min(of.values(), key=lambda row: row["seconds"])
        if best["seconds"] > 0.999 * chosen["seconds"]:
            best = chosen
        entry = found.setdefault(size, {"size": size, "chosen": [], "best": [], "worst": 0.0, "at": 0})
        for name, row in (("chosen", chosen), ("best", best)):
            if not entry[name] or entry[name][-1][1] != row["algorithm"]:
                entry[name].append((length, row["algorithm"]))
        ratio = chosen["seconds"] / best["seconds"]
        if ratio > entry["worst"]:
            entry.update(worst=ratio, at=length)
    return list(found.values())


def crossings_table(found: Sequence[dict]) -> str:
    lines = [
        "| P | `auto` takes, from bytes | the model's best, from bytes | worst ratio | at bytes |",
        "|---|---|---|---|---|",
    ]
    for entry in found:
        ways = [
            ", ".join(f"{algorithm} {length:,}" for length, algorithm in entry[name])
            for name in ("chosen", "best")
        ]
        lines.append(f"| {entry['size']} | {ways[0]} | {ways[1]} | {entry['worst']:.2f} | {entry['at']:,} |")
    return "\n".join(lines)


def plot(rows: Sequence[dict], topology: str, path: Path) -> None:
    """Four log-log panels: time against P for the middle and the longest message, and against bytes.

    The latter for the largest P that is not a power of two and for the largest of all.

    Raises:
        ModuleNotFoundError: matplotlib is missing.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    mine = [row for row in rows if row["topology"] == topology]
    sizes = sorted({row["size"] for row in mine})
    lengths = sorted({row["bytes"] for row in mine})
    figure, panels = pyplot.subplots(2, 2, figsize=(12, 9), layout="constrained")
    middle, longest = lengths[len(lengths) // 2], lengths[-1]
    uneven = [size for size in sizes if size & (size - 1)]
    few, many = uneven[-1] if uneven else sizes[len(sizes) // 2], sizes[-1]
    for panel, axis, held, value, title in (
        (panels[0][0], "size", "bytes", middle, f"{middle:,} bytes"),
        (panels[0][1], "size", "bytes", longest, f"{longest:,} bytes"),
        (panels[1][0], "bytes", "size", few, f"P = {few}"),
        (panels[1][1], "bytes", "size", many, f"P = {many}"),
    ):
        for algorithm in dict.fromkeys(row["algorithm"] for row in mine):
            line = sorted(
                (row[axis], row["seconds"])
                for row in mine
                if row["algorithm"] == algorithm and row[held] == value
            )
            if line:
                # Binary blocks lies on halving-doubling at a power of two.
                style = "--" if algorithm == "halving_doubling" else "-"
                panel.loglog(*zip(*line), style, marker=".", label=algorithm, color=_COLORS.get(algorithm))
        panel.set(title=title, xlabel="P" if axis == "size" else "bytes", ylabel="seconds")
        if axis == "size":
            panel.set_xticks(sizes, labels=[str(size) for size in sizes])
            panel.xaxis.minorticks_off()
        panel.grid(True, which="both", alpha=0.3)
    lines = {line.get_label(): line for panel in panels.flat for line in panel.get_lines()}
    figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=6)
    figure.suptitle(f"all-reduce, {topology} (halving_doubling is folded where P is not a power of two)")
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


def _write_csv(rows: Sequence[dict], path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def _names(text: str) -> list[str]:
    return text.split(",")


def _integers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--algorithms", type=_names, default=list(_ALGORITHMS))
    parser.add_argument("--topologies", type=_names, default=list(_TOPOLOGIES))
    parser.add_argument("--sizes", type=_integers, default=list(_SIZES))
    parser.add_argument("--bytes", type=_integers, default=list(_BYTES))
    parser.add_argument("--choice-sizes", type=_integers, default=list(_CHOICE_SIZES))
    parser.add_argument("--no-plots", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("out/simulate"))
    options = parser.parse_args(arguments)
    ending.at_sigterm()

    started = time.monotonic()
    try:
        if not options.no_plots:
            import matplotlib  # noqa: F401
        choice = list(simulate(_FLAT, ["executor"], options.choice_sizes, _CHOICE_BYTES))
        rows = []
        for row in simulate(options.algorithms, options.topologies, options.sizes, options.bytes):
            rows.append(row)
            if sys.stderr.isatty():
                print(
                    f"\r{row['topology']} {row['algorithm']} {row['size']} {row['bytes']:,}\033[K",
                    end="",
                    file=sys.stderr,
                )
    except ModuleNotFoundError as error:
        print(f"{error}: install matplotlib, or give --no-plots", file=sys.stderr)
        return 1
    except SimulationError as error:
        print(error, file=sys.stderr)
        return 1

    if not rows or not choice:
        print("nothing to simulate: hierarchical needs a topology with several ranks a host, and sizes that fill hosts, and "
              "--choice-sizes are 128 at most", file=sys.stderr)  # fmt: skip
        return 1

    text = (
        f"Milliseconds of one all-reduce:\n\n{table(rows, options.algorithms)}\n\n"
        f"`auto` and the model of one host it was made with:\n\n{crossings_table(crossings(choice))}\n"
    )
    options.out.mkdir(parents=True, exist_ok=True)
    _write_csv(rows, options.out / "simulate.csv")
    _write_csv(choice, options.out / "choice.csv")
    (options.out / "simulate.md").write_text(text)
    if not options.no_plots:
        for topology in options.topologies:
            plot(rows, topology, options.out / f"{topology}.png")
    print(text)
    messages = sum(row["messages"] for row in rows)
    print(f"{len(rows)} points, {messages:,} messages, {time.monotonic() - started:.0f} s. In {options.out}: CSV, Markdown"
          f"{'' if options.no_plots else ', plots'}")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
