"""Sphinx settings of the site. Nothing is loaded from other hosts, and nothing is executed."""

project = "pagecage"
author = "the pagecage authors"
html_title = "pagecage"
extensions = ["myst_nb"]
html_theme = "furo"
html_favicon = "_static/favicon.svg"
html_static_path = ["_static"]
html_extra_path = ["_extra"]
html_css_files = ["parts.css", "site.css"]
html_js_files = ["site.js"]
html_copy_source = False
html_show_sphinx = False
html_last_updated_fmt = None
nb_execution_mode = "off"
nb_ipywidgets_js: dict[str, dict[str, str]] = {}
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
myst_links_external_new_tab = False
pygments_style = "friendly"
pygments_dark_style = "monokai"
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#0072b2",
        "color-brand-content": "#0072b2",
        "color-background-primary": "#fcfcfa",
        "color-background-secondary": "#f1f3f1",
        "color-background-border": "#d8dde2",
        "color-foreground-primary": "#1d2329",
        "color-foreground-secondary": "#5b6670",
    },
    "dark_css_variables": {
        "color-brand-primary": "#6cb8ee",
        "color-brand-content": "#6cb8ee",
        "color-background-primary": "#14181c",
        "color-background-secondary": "#1d2329",
        "color-background-border": "#38414a",
        "color-foreground-primary": "#dfe4e8",
        "color-foreground-secondary": "#97a3ad",
    },
}
