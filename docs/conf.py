"""Sphinx's settings. `scripts/docs` builds the site with them, without the network and with warnings as errors."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "_ext"))

import hogwild  # noqa: E402

project = "hogwild"
author = "hogwild developers"
project_copyright = author
version = release = hogwild.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
    "reference_pages",
    "mathml",
]
exclude_patterns = ["examples/*.ipynb", "examples/**sg_execution_times.rst", "sg_execution_times.rst"]
templates_path = ["_templates"]
html_static_path = ["_static"]
smartquotes = False  # options and quoted values stay as they are typed

myst_enable_extensions = ["attrs_block", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

autosummary_generate = True
autodoc_typehints = "none"  # the parameters' sections give the types
autodoc_member_order = "bysource"
toc_object_entries_show_parents = "hide"
autodoc_inherit_docstrings = False
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

sphinx_gallery_conf = {
    "examples_dirs": "../scripts/examples",
    "gallery_dirs": "examples",
    "filename_pattern": r"/examples/\w+\.py",  # those of distributed/ are shown only: they take their time by design
    "ignore_pattern": r"slowed\.py",  # what the examples beside it import
    "within_subsection_order": "FileNameSortKey",
    "backreferences_dir": "examples/backreferences",  # for the pictures on the start page
    "show_memory": False,
    "abort_on_example_error": True,
    "download_all_examples": False,
    "notebook_extensions": set(),
    "show_signature": False,
    "remove_config_comments": True,
}

copybutton_exclude = ".linenos, .gp, .go"  # prompts and what was printed

html_math_renderer = "mathml"
html_theme = "pydata_sphinx_theme"
html_title = "hogwild"
html_css_files = ["hogwild.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "logo": {"text": f"hogwild {release}"},
    "show_prev_next": True,
    "show_toc_level": 2,
    "navigation_depth": 2,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_sidebars = {name: [] for name in ("index", "extend", "measured", "stopwatch")}  # they have no pages below


def skip_member(app: Any, what: str, name: str, thing: Any, skip: bool, options: Any) -> bool | None:
    """Leave out what estimators have from scikit-learn: its documentation is there, and its links point there."""
    return True if (getattr(thing, "__module__", None) or "").startswith("sklearn.") else None


def without_pictures(app: Any, config: Any) -> None:
    """Miss no picture of an example where none is run (``-D plot_gallery=0``)."""
    if str(config.plot_gallery) in ("0", "False"):
        config.suppress_warnings = ["image.not_readable"]


def setup(app: Any) -> None:
    """Register what is above."""
    app.connect("autodoc-skip-member", skip_member)
    app.connect("config-inited", without_pictures)
