"""A figure as SVG that can stand in a page beside others."""

from __future__ import annotations

import html
import io
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def inline_svg(figure: Figure, name: str) -> str:
    """The `<svg>` element, its ids unique to `name` (letters, digits, _), its text drawn as outlines.

    Comments, metadata and namespaces go: they hold the text once more and addresses that nobody asks for.
    """
    from matplotlib import rc_context

    stream = io.StringIO()
    with rc_context({"svg.hashsalt": name, "svg.fonttype": "path"}):
        figure.savefig(stream, format="svg", metadata={"Date": None})
    text = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", stream.getvalue(), flags=re.DOTALL)
    text = text[text.index("<svg") :]
    text = re.sub(r' xmlns(:\w+)?="[^"]*"', "", text).replace("xlink:href", "href")
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r'(href="#|url\(#)', rf"\1{name}-", text)
    text = re.sub(r"\n\s*", "\n", text)
    label = html.escape(name.replace("_", " "))
    return text.replace("<svg", f'<svg role="img" aria-label="{label}"', 1).strip()
