"""Which tensors travel together: a plan from sizes and dtypes alone. Imports no TensorFlow."""

from __future__ import annotations

from typing import Dict, Hashable, List, Optional, Sequence, Tuple

__all__ = ["plan_packs"]


def plan_packs(tensors: Sequence[Tuple[Hashable, Optional[int]]], bytes_per_pack: int) -> List[List[int]]:
    """Plans the packs of one batch of tensors, one collective each.

    Backprop finishes the last variable's gradient first, so packs are filled from the end of the list backwards: the first
    pack can leave while earlier layers are still being differentiated. A pack holds one dtype. A tensor of `bytes_per_pack`
    or more, or of unknown size, goes alone: it gains nothing from sharing and would have to be copied.

    Args:
        tensors: (dtype, bytes) of each tensor, in the order of the variables; bytes None where unknown.
        bytes_per_pack: a pack is closed before it would exceed this many bytes.

    Returns:
        The packs in the order of sending, each a list of positions in `tensors`; every position is in one pack.

    Example:
        >>> plan_packs([("float32", 100), ("float32", 4), ("float32", 4), ("float16", 2)], bytes_per_pack=64)
        [[3], [2, 1], [0]]
    """
    packs: List[List[int]] = []
    open_packs: Dict[Hashable, Tuple[List[int], int]] = {}
    for position in range(len(tensors) - 1, -1, -1):
        dtype, size = tensors[position]
        if size is None or size >= bytes_per_pack:
            packs.append([position])
            continue
        pack, filled = open_packs.get(dtype, ([], 0))
        if pack and filled + size <= bytes_per_pack:
            pack.append(position)
        else:
            pack, filled = [position], 0
            packs.append(pack)
        open_packs[dtype] = (pack, filled + size)
    return packs
