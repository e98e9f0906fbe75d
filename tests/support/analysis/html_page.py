"""The elements of an HTML page, for tests."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "img", "input", "br", "wbr"}


@dataclass
class Section:
    """A section of a page: its tag and link target, its text, list items, tables and tags."""

    tag: str
    target: str
    text: str = ""
    items: list = field(default_factory=list)
    tables: list = field(default_factory=list)
    tags: list = field(default_factory=list)


class Page(HTMLParser):
    """The elements of a page, which must be closed in order; the text of scripts, sections and tables.

    `tables` has the rows of each table by its name.
    """

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.scripts, self.tables, self.ids = [], [], [], {}, []
        self.sections = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.elements.append((tag, attributes))
        self.ids += [attributes["id"]] if "id" in attributes else []
        if tag in ("section", "details") and not {"section", "details"} & set(self.open):
            self.sections.append(Section(tag, attributes["id"]))
        elif self.in_section():
            self.sections[-1].tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            name = attributes["id"].removeprefix("table-")
            self.rows = self.tables[name] = []
            self.sections[-1].tables.append(name)
        elif tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
        elif tag == "script":
            self.scripts.append("")
        elif tag == "li" and self.in_section():
            self.sections[-1].items.append("")

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.ids += [value for key, value in attrs if key == "id"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "tr" in self.open:
            self.rows[-1][-1] += data
        elif self.open and self.open[-1] == "script":
            self.scripts[-1] += data
        if self.in_section():
            self.sections[-1].text += data
            if "li" in self.open:
                self.sections[-1].items[-1] += data

    def in_section(self):
        """Whether the parser is inside a section."""
        return bool({"section", "details"} & set(self.open))
