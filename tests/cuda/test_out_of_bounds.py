"""No kernel reads or writes where it must not: ``test_adds.py`` under compute-sanitizer, where there is one.

In a file of its own: what it starts must not select it again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

LONGEST = 400.0  # seconds


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available() or "TRITON_INTERPRET" in os.environ, reason="no GPU, or no -m gpu")
@pytest.mark.skipif(shutil.which("compute-sanitizer") is None, reason="compute-sanitizer is not installed")
def test_no_access_is_out_of_bounds():
    command = ["compute-sanitizer", "--error-exitcode", "9", "--report-api-errors", "no"]
    command += [sys.executable, "-m", "pytest", "-q", "-m", "gpu"]
    here = Path(__file__)
    done = subprocess.run(
        [*command, here.with_name("test_adds.py")], cwd=here.parents[2], capture_output=True, text=True, timeout=LONGEST
    )
    assert done.returncode == 0, done.stdout[-4000:]
