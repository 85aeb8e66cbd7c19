"""What runs inside the workers' loops: losses, writes to shared memory, orders, vectors, and their compilation."""

from __future__ import annotations

from collections.abc import Callable

announce: list[Callable[[], None]] = []  # called once, when a kernel must be compiled while a person waits
