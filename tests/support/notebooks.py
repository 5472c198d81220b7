"""Runs notebooks in a kernel of Jupyter, as users do."""

from __future__ import annotations

from typing import Mapping, Sequence

from tests.support.processes import light_environment

__all__ = ["run_cells", "run_notebook"]


def run_notebook(text: str, *, timeout: float, env: Mapping[str, str] | None = None) -> list[str]:
    """Runs all cells of a notebook, in its JSON form, in a new kernel.

    Args:
        timeout: seconds for each cell.
        env: is added to `light_environment()`.

    Returns:
        The output of each cell of code, stdout and stderr as they came.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell has raised an exception that it does not announce.
    """
    import nbclient
    import nbformat

    notebook = nbformat.reads(text, as_version=4)
    client = nbclient.NotebookClient(notebook, timeout=timeout, kernel_name="python3")
    client.execute(env=light_environment(env))
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return ["".join(output.get("text", "") for output in cell.outputs) for cell in cells]


def run_cells(cells: Sequence[str], *, timeout: float, env: Mapping[str, str] | None = None) -> list[str]:
    """Runs sources as the cells of a notebook; see `run_notebook`."""
    import nbformat

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    return run_notebook(nbformat.writes(notebook), timeout=timeout, env=env)
