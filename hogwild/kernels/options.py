"""JIT options of every kernel, in one place.

``error_model="numpy"`` drops the division-by-zero branch, ``nogil`` lets threads run, ``cache`` keeps machine code on
disk. With ``_nrt`` off there are no reference counts: Numba would take and drop one, atomically, for each array handed
to a helper, which costs half a microsecond a merge, and 340 MB/s instead of 830 in the parser. No kernel allocates, so
none are needed.

Fast math is off: it turns the sparse dot product into gathers, which stall on the scatter of the row before (1.8-2.5x
slower), deletes every NaN test, and lets two disciplines round differently. Its gains are written out by hand instead:
four accumulators in a dot product, and ``fma.py``.
"""

from __future__ import annotations

from typing import Any

import hogwild.kernels.cache  # noqa: F401  # a full disk then stops no kernel

JIT: dict[str, Any] = {"nogil": True, "error_model": "numpy", "cache": True, "_nrt": False, "no_cfunc_wrapper": True}
