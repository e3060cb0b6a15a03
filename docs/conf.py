"""How the site is made: ``make docs``. Nothing is fetched while it is built or read."""

from __future__ import annotations

import sys
from importlib.metadata import version as version_of
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

project = "noisewise"
author = "The noisewise developers"
copyright = "The noisewise developers, BSD-3-Clause"
release = version = version_of("noisewise")

extensions = [
    "myst_parser", "numpydoc", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx_design",
    "sphinx_copybutton", "commands", "mathml",
]  # fmt: skip
exclude_patterns = ["_build", "_templates", "auto_examples/*.ipynb", "auto_examples/*.py"]
templates_path = ["_templates"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
nitpicky = True
suppress_warnings = ["toc.empty_glob", "myst.strikethrough"]

myst_enable_extensions = ["colon_fence", "dollarmath", "deflist", "attrs_inline", "attrs_block"]
myst_heading_anchors = 4
myst_dmath_double_inline = True
html_math_renderer = "mathml"

autosummary_generate = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_validation_checks: set[str] = set()
# What scikit-learn adds to every estimator, and what only authors of models call.
autosummary_context = {
    "hidden": {
        "get_metadata_routing", "set_fit_request", "set_partial_fit_request",
        "set_predict_request", "set_predict_proba_request", "set_score_request",
        "set_transform_request", "cells", "finished", "observed", "restore", "schema",
        "name_columns", "unknown",
        "score", "get_params", "set_params", "set_output", "wanted", "refitted", "mode_number",
    }
}  # fmt: skip

if any((HERE.parent / "examples").glob("plot_*.py")):
    extensions.append("sphinx_gallery.gen_gallery")
    sphinx_gallery_conf = {
        "examples_dirs": "../examples",
        "gallery_dirs": "auto_examples",
        "filename_pattern": r"/plot_",
        "within_subsection_order": "order.ByAudience",
        "download_all_examples": False,
        "show_memory": False,
        "write_computation_times": False,  # pages that fetch scripts from elsewhere
        "min_reported_time": 10**6,
        "remove_config_comments": True,
        "abort_on_example_error": True,
        "reset_modules": ("matplotlib",),
    }

html_theme = "pydata_sphinx_theme"
html_title = "noisewise"
toc_object_entries_show_parents = "hide"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = "_static/icon.svg"
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "noisewise"},
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "secondary_sidebar_items": {"**": ["page-toc"], "index": []},
    "show_prev_next": True,
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "tango",
    "pygments_dark_style": "monokai",
}
html_sidebars = {"index": [], "changelog": []}
copybutton_exclude = ".linenos, .gp, .go"
