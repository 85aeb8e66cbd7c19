"""Imports point down only: the table of layers, held against every import statement of the package."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "hogwild"
FILES = sorted(PACKAGE.rglob("*.py"))

# First match wins. `errors` may be imported by all; the package's __init__ names everything lazily and is exempt.
LAYERS = {
    "hogwild.errors": -1,
    "hogwild.options": 0,
    **dict.fromkeys(["hogwild.config", "hogwild.schedule", "hogwild.machine", "hogwild.kernels"], 0),
    **dict.fromkeys(["hogwild.data.examples", "hogwild.data.order", "hogwild.hosts.shared", "hogwild.stopwatch"], 0),
    "hogwild.data": 1,
    **dict.fromkeys(["hogwild.problems", "hogwild.exchanges"], 2),
    **dict.fromkeys(["hogwild.hosts", "hogwild.cuda"], 3),
    **dict.fromkeys(["hogwild.model", "hogwild.model_file", "hogwild.metrics", "hogwild.probe", "hogwild.training"], 4),
    **dict.fromkeys(["hogwild.resume", "hogwild.stopping", "hogwild.json_rows", "hogwild.cases"], 4),
    **dict.fromkeys(["hogwild.screen", "hogwild.exclusive"], 4),
    **dict.fromkeys(["hogwild.recommender", "hogwild.segmentation", "hogwild.ranking", "hogwild.cut_picture"], 4),
    **dict.fromkeys(["hogwild.module_model", "hogwild.module_training", "hogwild.interchange"], 4),
    **dict.fromkeys(["hogwild.estimators", "hogwild.compare", "hogwild.bench"], 5),
    **dict.fromkeys(["hogwild.cli", "hogwild.__main__"], 6),
}


def within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def layer(module: str) -> int:
    for package, number in LAYERS.items():
        if within(module, package):
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


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
    imported = modules_imported(ast.parse(path.read_text())) - {module}
    if module == "hogwild":
        return
    for name in sorted(imported):
        if name == "hogwild":
            assert layer(module) == 6, f"{module} imports the package's face; import the module that holds the name"
            continue
        assert name == "hogwild.errors" or allowed(module, name), f"{module} may not import {name}"


def allowed(module: str, name: str) -> bool:
    mine, theirs = layer(module), layer(name)
    if within(module, "hogwild.kernels"):
        return within(name, "hogwild.kernels")
    if mine == 0:
        return False  # a leaf: needs nothing but errors
    siblings = ".".join(module.split(".")[:2])
    if theirs == mine and mine == 2:
        return within(name, siblings)  # problems and exchanges never import each other
    return theirs <= mine


def test_every_file_has_a_layer_and_a_docstring() -> None:
    for path in FILES:
        module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
        if module != "hogwild":
            assert layer(module) <= 6
        text = path.read_text()
        assert not text or ast.get_docstring(ast.parse(text)), f"{module} opens without a docstring"
