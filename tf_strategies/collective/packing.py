"""Which tensors travel together: a plan from sizes and dtypes alone. Imports no TensorFlow."""

from __future__ import annotations

from typing import Dict, Hashable, List, NamedTuple, Optional, Sequence, Tuple

__all__ = ["plan_packs"]


class _OpenPack(NamedTuple):
    positions: List[int]
    bytes: int
    opened_at: int  # bytes of all tensors that had passed


def plan_packs(tensors: Sequence[Tuple[Hashable, Optional[int]]], bytes_per_pack: int) -> List[List[int]]:
    """Plans the packs of one batch of tensors, one collective each.

    Backprop finishes the last variable's gradient first, so packs are filled from the end of the list backwards, and none is
    held open for what comes much later: a pack can leave while earlier layers are still being differentiated. A pack holds one
    dtype. A tensor of `bytes_per_pack` or more closes the pack it falls into; one of unknown size goes alone.

    Args:
        tensors: (dtype, bytes) of each tensor, in the order of the variables; bytes None where unknown.
        bytes_per_pack: tensors are added to a pack up to this many bytes, and until so many, of any dtype, have passed.

    Returns:
        The packs in the order of sending, each a list of positions in `tensors`; every position is in one pack.

    Example:
        >>> plan_packs([("float32", 8), ("float32", 100), ("float32", 4), ("float16", 2)], bytes_per_pack=64)
        [[3], [2, 1], [0]]
    """
    packs: List[List[int]] = []
    open_packs: Dict[Hashable, _OpenPack] = {}
    passed = 0
    for position in range(len(tensors) - 1, -1, -1):
        dtype, size = tensors[position]
        if size is None:
            packs.append([position])
            continue
        pack = open_packs.get(dtype)
        fits = pack is not None and (size >= bytes_per_pack or pack.bytes + size <= bytes_per_pack)
        if pack is None or not fits or passed - pack.opened_at >= bytes_per_pack:
            pack = _OpenPack([], 0, passed)
            packs.append(pack.positions)
        pack.positions.append(position)
        open_packs[dtype] = pack._replace(bytes=pack.bytes + size)
        passed += size
    return packs
