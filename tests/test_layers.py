"""Imports point down only: the table of layers, held against every import statement of the package."""

from __future__ import annotations

import ast
import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "hogwild"
FILES = sorted(PACKAGE.rglob("*.py"))

# Layers go by file, since a problem's folder holds both what workers run and what the parent asks. First match wins;
# all may import what is below zero. The package's __init__ names everything lazily and is exempt.
LAYERS = {
    **dict.fromkeys(["hogwild.errors", "hogwild.machine"], -1),
    "hogwild.methods": -1,
    "hogwild.kernels.losses": -1,
    "*kernel": 0,
    "hogwild.problems.*.options": 0.5,
    "hogwild.kernels*": 0,
    **dict.fromkeys(["hogwild.config", "hogwild.training.schedule"], 0),
    **dict.fromkeys(["hogwild.data.order", "hogwild.hosts.memory"], 0),
    "hogwild.training.stopwatch": 0,
    **dict.fromkeys(["hogwild.data*", "hogwild.serving*"], 1),
    **dict.fromkeys([f"hogwild.problems.{name}" for name in ("*.case", "*.model", "*.training", "trained")], 4),
    **dict.fromkeys(["hogwild.problems*", "hogwild.exchanges*"], 2),
    **dict.fromkeys(["hogwild.machines.agreement", "hogwild.machines.own_rows"], 4),
    **dict.fromkeys(["hogwild.hosts*", "hogwild.cuda*", "hogwild.machines*"], 3),
    **dict.fromkeys(["hogwild.model_file", "hogwild.metrics", "hogwild.rows_file"], 4),
    **dict.fromkeys(["hogwild.training*", "hogwild.interchange*"], 4),
    **dict.fromkeys(["hogwild.estimators*", "hogwild.compare*"], 5),
    **dict.fromkeys(["hogwild.cli*", "hogwild.__main__"], 6),
}


#: Files outside a problem's folder and the rooms of the command line, the GPU and comparisons that may name a problem.
NAMING = {
    "methods.py",
    "config.py",
    "__init__.py",
    "training/run.py",
    "data/public/fetch.py",
    "data/public/catalogue.py",
}


def within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def layer(module: str) -> int:
    for pattern, number in LAYERS.items():
        if fnmatch(module, pattern):
            return number
    raise AssertionError(f"{module} is in no layer: give it one in this table")


def modules_imported(tree: ast.AST) -> set[str]:
    """Dotted names of the package's modules in every import of the file, those inside functions included."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative import"
            base = node.module or ""
            for alias in node.names:  # either a module of the package `base` or a name in the module `base`
                path = PACKAGE.parent / base.replace(".", "/") / alias.name
                is_module = path.is_dir() or path.with_suffix(".py").exists()
                found.add(f"{base}.{alias.name}" if is_module else base)
    return {name for name in found if within(name, "hogwild")}


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    module = module_of(path)
    imported = modules_imported(ast.parse(path.read_text())) - {module}
    if module == "hogwild":
        return
    for name in sorted(imported):
        if name == "hogwild":
            assert layer(module) == 6, f"{module} imports the package's face; import the module that holds the name"
            continue
        assert name == "hogwild.errors" or allowed(module, name), f"{module} may not import {name}"


def is_kernel(module: str) -> bool:
    return within(module, "hogwild.kernels") or module.endswith("kernel")


def allowed(module: str, name: str) -> bool:
    mine, theirs = layer(module), layer(name)
    if is_kernel(module):
        return is_kernel(name)
    if mine == 0:
        return theirs < 0  # a leaf: needs nothing but errors and the registries
    siblings = ".".join(module.split(".")[:2])
    if theirs == mine and mine == 2:
        return within(name, siblings)  # problems and exchanges never import each other
    return theirs <= mine


def test_no_circle_of_imports() -> None:
    """Lazy imports and those for type checkers count: a circle is a wall in the wrong place."""
    imports = {module_of(path): modules_imported(ast.parse(path.read_text())) - {module_of(path)} for path in FILES}
    del imports["hogwild"]
    waiting = {module: {name for name in names if name in imports} for module, names in imports.items()}
    while free := [module for module, names in waiting.items() if not names]:
        for module in free:
            del waiting[module]
        for names in waiting.values():
            names.difference_update(free)
    assert not waiting, f"in a circle, or above one: {sorted(waiting)}"


def test_no_private_name_crosses_a_file() -> None:
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and within(node.module or "", "hogwild"):
                private = [alias.name for alias in node.names if re.match("_(?!_)", alias.name)]
                assert not private, f"{path}, line {node.lineno}: {private} of {node.module}"


def test_a_problem_is_named_in_few_places() -> None:
    """Its folder, the registries, the command line, the GPU's room, and what is made for one problem only."""
    rooms = ("problems", "cli", "cuda", "compare", "estimators")
    for path in FILES:
        place = path.relative_to(PACKAGE)
        nodes = () if place.parts[0] in rooms or str(place) in NAMING else ast.walk(ast.parse(path.read_text()))
        named = [
            node.value for node in nodes if isinstance(node, ast.Constant) and node.value in ("cuts", "completion")
        ]
        assert not named, f"{path} names {named}: it belongs to the problem's folder or to methods.py"
