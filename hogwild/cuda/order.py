"""The sequence of examples as a Triton function: which one is visited at a position, and with what step.

An epoch's order is a bijection of the numbers below n, computed from a key alone. So nothing is stored or read that
grows with the data, and a resumed run goes on at any position. Rounds of ``x = (x ^ key) * odd; x ^= x >> half``
permute the numbers below the next power of two; a number that is not below n is permuted again until it is, twice at
most in the mean. ``TOGETHER`` neighbours stay together, as a block, and what is left for the last one stays last, as in
``kernels/order``.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, disable-error-code="misc"

from __future__ import annotations

import triton
import triton.language as tl

GOLDEN, MIX = tl.constexpr(0x9E3779B9), tl.constexpr(0x7FEB352D)

# Arguments of a kernel that describe its visits; only a launch's constants may select another compiled kernel
VISITS = ("start", "count", "n", "bits", "key")  # int32, but key, uint32


@triton.jit
def permuted(x, bits, random):
    """Permute the numbers below ``2**bits``, uint32, as four random numbers say, which follow from one."""
    mask, half = (1 << bits) - 1, (bits + 1) // 2
    for _ in tl.static_range(4):
        x = ((x ^ (random >> 12)) * (random >> 4 | 1)) & mask
        x = x ^ (x >> half)
        random = random * GOLDEN + MIX
    return x


@triton.jit
def visit_at(v, n, bits, key, scale, since, power, SHUFFLED: tl.constexpr, TOGETHER: tl.constexpr):
    """Examples, int32, and steps, float32, at positions ``v`` of an epoch (see ``streams.Visits``)."""
    row = v.to(tl.uint32)
    if SHUFFLED:
        block, blocks = row // TOGETHER, n.to(tl.uint32) // TOGETHER
        bits, random = bits.to(tl.uint32), key.to(tl.uint32)
        x = permuted(block, bits, random)
        out = (x >= blocks) & (block < blocks)
        while tl.max(out.to(tl.int32), 0) > 0:
            x = tl.where(out, permuted(x, bits, random), x)
            out = (x >= blocks) & (block < blocks)
        row = tl.where(block < blocks, x * TOGETHER + row % TOGETHER, row)
    return row.to(tl.int32), scale * tl.exp2(-power * tl.log2(since + v.to(tl.float32)))
