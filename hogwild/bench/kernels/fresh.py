"""A fresh interpreter for what can be measured only once per process, such as loading times and peak memory."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from hogwild.errors import TrainingError

CODE = "import json, sys; from {module} import child; print(json.dumps(child(*json.loads(sys.argv[1]))))"


def run_child(module: str, arguments: list[Any], failure: str) -> Any:
    """Return ``module.child(*arguments)`` from a new interpreter; arguments and result travel as JSON.

    Raises
    ------
    TrainingError
        ``failure`` and the last line of the interpreter's error output.
    """
    command = [sys.executable, "-c", CODE.format(module=module), json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        reason = done.stderr.strip().rpartition("\n")[2]
        raise TrainingError(f"{failure}: {reason or f'status {done.returncode}'}")
    return json.loads(done.stdout)
