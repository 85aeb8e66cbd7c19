"""Triton's kernels run in its interpreter here, on the CPU, unless there is a GPU.

The variable must be set before any module with kernels in it is imported.
"""

import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
