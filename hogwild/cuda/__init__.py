"""Asynchronous replicas on CUDA streams against one device-resident parameter array.

``streams.Streams`` is the host of these workers, as ``hosts.threads.Threads`` is for the CPU. Each problem's kernels
have a launcher (``linear``, ``completion``, ``module``). All differences between a GPU and the tests' substitute are
behind ``backend.Backend``.
"""
