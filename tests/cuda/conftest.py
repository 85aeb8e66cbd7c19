"""Triton's kernels run in its interpreter here, on the CPU, but for ``pytest -m gpu`` where there is a GPU.

The variable must be set before any module with kernels in it is imported. Tests of kernels give them tensors of the
CPU, which only the interpreter takes, so with a GPU those and the ones marked ``gpu`` are two runs.
"""

import os

import torch


def pytest_configure(config):
    if not torch.cuda.is_available() or config.getoption("markexpr") != "gpu":
        os.environ["TRITON_INTERPRET"] = "1"
