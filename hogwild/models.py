"""The function that reads the model file of any problem."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hogwild.errors import InputError
from hogwild.methods import PROBLEMS, located
from hogwild.model_file import MODEL, read_file

if TYPE_CHECKING:
    from hogwild.problems.completion.model import CompletionModel
    from hogwild.problems.cuts.model import Segmentation
    from hogwild.problems.linear.model import LinearModel
    from hogwild.problems.module.model import ModuleModel


def load_model(path: str | Path) -> LinearModel | CompletionModel | Segmentation | ModuleModel:
    """The model in the file ``path``: of the class of its problem.

    Raises
    ------
    InputError
        One line naming the file, if it is missing, no model, of a newer version, or damaged.
    """
    path = Path(path)
    arrays, header = read_file(path, MODEL)
    problem = str(header.get("problem"))
    if problem not in PROBLEMS:
        raise InputError(f"{path}: a model of problem {problem!r}: this version knows {', '.join(PROBLEMS)}")
    kind: Any = located(PROBLEMS[problem].model)
    found: LinearModel | CompletionModel | Segmentation | ModuleModel = kind.from_file(arrays, header, path)
    return found
