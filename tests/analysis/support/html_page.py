"""The elements of an HTML page, for tests."""

from html.parser import HTMLParser

VOID = {"meta", "img", "input", "br", "wbr"}


class Page(HTMLParser):
    """The elements of a page, which must be closed in order; the text of scripts and tables."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.scripts, self.tables, self.ids = [], [], [], {}, []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.elements.append((tag, attributes))
        self.ids += [attributes["id"]] if "id" in attributes else []
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.rows = self.tables[attributes["id"]] = []
        elif tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
        elif tag == "script":
            self.scripts.append("")

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
