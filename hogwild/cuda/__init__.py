"""Asynchronous replicas on CUDA streams against one device-resident parameter array.

``streams.Streams`` is the host of these workers, as ``hosts.threads.Threads`` is of others; a problem's kernels are in
a launcher of its own (``linear``, ``completion``, ``module``). Whatever differs between a GPU and the stand-in of the
tests is behind ``backend.Backend``.
"""
