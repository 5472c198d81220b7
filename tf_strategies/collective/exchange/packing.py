"""Plans which tensors are sent together, by their sizes and dtypes. Imports no TensorFlow."""

from __future__ import annotations

from typing import Dict, Hashable, List, NamedTuple, Optional, Sequence, Tuple

__all__ = ["SMALL_BYTES", "plan_packs"]

SMALL_BYTES = (
    64 << 10
)  # the collective copies smaller tensors into one buffer, and sends larger ones from where they are


class _OpenPack(NamedTuple):
    positions: List[int]
    bytes: int
    opened_at: int  # bytes of all tensors before


def plan_packs(tensors: Sequence[Tuple[Hashable, Optional[int]]], bytes_per_pack: int) -> List[List[int]]:
    """Plans the packs of one batch of tensors, one collective each.

    Backpropagation computes the gradient of the last variable first, so packs are filled from the end of the
    list. A pack of large tensors is closed early, so that it is sent while earlier layers are still being
    differentiated. Small tensors, such as gradients of biases, wait until their pack is full, because a
    message for each would cost more than it saves. A pack has one dtype. A tensor of `bytes_per_pack` or
    more, or of unknown size, has a pack of its own.

    Args:
        tensors: (dtype, bytes) of each tensor, in the order of the variables. Unknown bytes are None.
        bytes_per_pack: a pack is closed before it exceeds this many bytes. A pack of large tensors is also
            closed after this many bytes of tensors of any kind.

    Returns:
        The packs, in the order in which they are complete. Each is a list of positions in `tensors`, and
        every position is in exactly one pack.

    Example:
        >>> large = 100_000
        >>> plan_packs([("float32", large), ("float32", large), ("float32", 4), ("float32", large)], bytes_per_pack=200_000)
        [[2], [3, 1], [0]]
    """
    packs: List[List[int]] = []
    open_packs: Dict[Tuple[Hashable, bool], _OpenPack] = {}
    passed = 0
    for position in range(len(tensors) - 1, -1, -1):
        dtype, size = tensors[position]
        if size is None or size >= bytes_per_pack:
            packs.append([position])
            passed += size or 0
            continue
        small = size < SMALL_BYTES
        pack = open_packs.get((dtype, small))
        late = pack is not None and not small and passed - pack.opened_at >= bytes_per_pack
        if pack is None or late or pack.bytes + size > bytes_per_pack:
            pack = _OpenPack([], 0, passed)
            packs.append(pack.positions)
        pack.positions.append(position)
        open_packs[dtype, small] = pack._replace(bytes=pack.bytes + size)
        passed += size
    return sorted(packs, key=lambda pack: -pack[-1])
