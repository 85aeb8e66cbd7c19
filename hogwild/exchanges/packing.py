"""Which entries of a delta are sent, and how: ascending indices in a Golomb-Rice code or plainly, and their values.

The code is used where it is the shorter one. Packed entries begin with two numbers, how many they are and the code's
parameter; all parts of a message are multiples of four bytes.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from hogwild.exchanges import deltas_kernel

PLAIN = 255  # instead of the code's parameter: every entry takes four bytes
MOST_BITS = 30  # of a gap that the code does not write in unary
SAMPLE = 1 << 14  # weights by which tau is found
FEWEST = 64  # entries: their code is as long as the header of a message


class Own(NamedTuple):
    """One replica's arrays, (size,) float32."""

    mine: np.ndarray
    base: np.ndarray  # start + moved; mine - base is owed
    moved: np.ndarray  # the sum of what it has sent and received
    start: np.ndarray  # the model at the start of the task


def parameter(count: int, size: int) -> int:
    """The lowest bits of a gap to write as they are, if ``count`` random ones of ``size`` weights are sent."""
    return min(max(round(math.log2(math.log(2) * size / max(count, 1))), 0), MOST_BITS)


def pack_entries(entries: np.ndarray, size: int, signs: bool, golomb: bool) -> np.ndarray:
    """Pack ascending entries (n,) uint32, indices below ``size`` with a sign in the highest bit if there are ``signs``.

    Returns
    -------
    ndarray, uint32
    """
    count, k = len(entries), parameter(len(entries), size)
    if golomb and count:
        words = np.empty((size >> k) // 32 + count * (k + 2) // 32 + 3, np.uint32)
        used = deltas_kernel.rice_encode(entries, int(signs), k, words)
        if used < count:
            return np.concatenate((np.array([count, k], np.uint32), words[:used]))
    return np.concatenate((np.array([count, PLAIN], np.uint32), entries))


def unpack_entries(data: np.ndarray, signs: bool) -> np.ndarray:
    """Return the entries that :func:`pack_entries` packed at the beginning of ``data`` (uint32)."""
    count, k = int(data[0]), int(data[1])
    if k == PLAIN:
        return data[2 : 2 + count]
    entries = np.empty(count, np.uint32)
    words = np.append(data[2:], np.uint32(0))  # the decoder reads one ahead
    deltas_kernel.rice_decode(words, int(signs), k, entries)
    return entries


def pack_values(values: np.ndarray, bits: int) -> np.ndarray:
    """Pack float32 values as they are, or (``bits`` 16) as bfloat16, in words of four bytes."""
    if bits == 32:
        return values.view(np.uint32)
    halves = np.zeros(-(-len(values) // 2) * 2, np.uint16)
    deltas_kernel.to_bfloat16(values, halves)
    return halves.view(np.uint32)


def unpack_values(data: np.ndarray, count: int, bits: int) -> np.ndarray:
    """Return the ``count`` values at the end of ``data``."""
    if bits == 32:
        return data[len(data) - count :].view(np.float32)
    values = np.empty(count, np.float32)
    deltas_kernel.from_bfloat16(data[len(data) - -(-count // 2) :].view(np.uint16)[:count], values)
    return values


def pack_delta(delta: np.ndarray, golomb: bool) -> np.ndarray:
    """Pack a whole delta (size,) float32: as it is, or the bytes (uint8) of its entries, whichever is shorter."""
    indices = np.flatnonzero(delta).astype(np.uint32)  # NaN is not zero
    if 4 * len(indices) < delta.nbytes:
        entries = pack_entries(indices, len(delta), signs=False, golomb=golomb)
        if entries.nbytes + 4 * len(indices) < delta.nbytes:
            return np.concatenate((entries, pack_values(delta[indices], 32))).view(np.uint8)
    return delta


def unpack_delta(packed: np.ndarray, size: int) -> np.ndarray:
    """Return the delta (size,) float32 that :func:`pack_delta` packed."""
    if packed.dtype == np.float32:
        return packed
    data, delta = packed.view(np.uint32), np.zeros(size, np.float32)
    entries = unpack_entries(data, signs=False)
    delta[entries] = unpack_values(data, len(entries), 32)
    return delta


def pack_signs(own: Own, tau: np.float32, density: float, golomb: bool) -> np.ndarray:
    """Take plus or minus ``tau`` from each weight that owes more, and pack that, (n,) uint8.

    ``tau`` is rounded to three bits, so that sums of many are exact. A ``tau`` of 0 stands for the one that a share
    ``density`` of the weights exceeds, or half of those that owe anything, if these are fewer.
    """
    size = len(own.mine)
    if not tau:
        stride = max(size // SAMPLE, 1) | 1  # odd: weights may lie in rows of even length
        tau = _magnitude(own, stride, max(density, FEWEST / size), 0.5)
    bins = tau.view(np.int32) + (1 << deltas_kernel.SHIFT - 1) >> deltas_kernel.SHIFT
    tau = np.int32(bins << deltas_kernel.SHIFT).view(np.float32)
    entries = np.empty(size, np.uint32)
    count = deltas_kernel.quantised(*own, tau, entries) if tau else 0
    packed = pack_entries(entries[:count], size, signs=True, golomb=golomb)
    return np.concatenate((tau.reshape(1).view(np.uint32), packed)).view(np.uint8)


def pack_top(own: Own, top: int, bits: int, golomb: bool) -> np.ndarray:
    """Take the ``top`` largest entries, rounded to ``bits``, from what is owed, and pack them, (n,) uint8."""
    size = len(own.mine)
    bound = _magnitude(own, 1, top / size, 1.0).view(np.int32)
    least = np.maximum(bound - (1 << deltas_kernel.SHIFT) - 1, 0).astype(np.int32).view(np.float32)
    entries = np.empty(size, np.uint32)
    count = deltas_kernel.changed(own.mine, own.base, least, entries)
    indices = (entries[:count] & deltas_kernel.INDEX).view(np.int32)
    values = own.mine[indices] - own.base[indices]
    if count > top:
        those = np.sort(np.argpartition(np.abs(values), count - top)[count - top :])
        indices, values = indices[those], values[those]
    packed = pack_values(values, bits)
    own.moved[indices] += unpack_values(packed, len(values), bits)
    own.base[indices] = own.start[indices] + own.moved[indices]
    entries = pack_entries(indices.view(np.uint32), size, signs=False, golomb=golomb)
    return np.concatenate((entries, packed)).view(np.uint8)


def absorb(own: Own, packed: np.ndarray, top: bool, bits: int) -> None:
    """Add what another replica packed, the largest entries (``top``) or plus and minus tau."""
    data = packed.view(np.uint32)
    if top:
        entries = unpack_entries(data, signs=False)
        deltas_kernel.absorb(*own, entries, unpack_values(data, len(entries), bits))
    else:
        entries = unpack_entries(data[1:], signs=True)
        deltas_kernel.absorb_signs(*own, entries, len(entries), data[:1].view(np.float32)[0])


def _magnitude(own: Own, stride: int, share: float, part: float) -> np.float32:
    bins = np.empty(deltas_kernel.BINS, np.int64)
    return np.float32(deltas_kernel.magnitude(own.mine, own.base, stride, share, part, bins))
