"""How the documentation is built: ``make docs``, or ``sphinx-build -W -b html docs docs/_build``."""

import a2a_sync

project = "a2a_sync"
author = "the a2a_sync authors"
copyright = "the a2a_sync authors; Apache-2.0"
release = version = a2a_sync.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"a2a_sync {release}"
html_copy_source = html_show_sourcelink = False

myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3

# What stands in single backquotes in a docstring is a name.
default_role = "py:obj"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
# Under these names the signatures are readable; what they stand for is said on the page of the data model.
autodoc_type_aliases = {
    name: name for name in ("Auth", "Content", "Event", "JSON", "Metadata", "Part", "StreamResponse")
}
napoleon_use_rtype = False
python_use_unqualified_type_names = True
