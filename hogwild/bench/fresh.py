"""A fresh interpreter for what can be measured only once in a process: what loading costs, and how memory peaks."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from hogwild.errors import TrainingError

CODE = "import json, sys; from {module} import child; print(json.dumps(child(*json.loads(sys.argv[1]))))"


def run_child(module: str, arguments: list[Any], failure: str) -> Any:
    """What ``module.child(*arguments)`` returns in an interpreter of its own; both ways as JSON.

    Raises
    ------
    TrainingError
        ``failure`` and the last line of what that interpreter said.
    """
    command = [sys.executable, "-c", CODE.format(module=module), json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        reason = done.stderr.strip().rpartition("\n")[2]
        raise TrainingError(f"{failure}: {reason or f'status {done.returncode}'}")
    return json.loads(done.stdout)
