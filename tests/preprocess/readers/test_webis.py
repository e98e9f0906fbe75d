import gzip
from xml.etree import ElementTree

import pytest

from roberta_small.common.errors import UserError
from roberta_small.preprocess.readers import read_records
from roberta_small.preprocess.readers.webis import parse_reviews

ITEM = "<item><category>books</category><rating>{}</rating><text>{}</text><title>T</title></item>\n"


def write(path, *items, head='<?xml version="1.0" encoding="UTF-8"?>\n'):
    path.write_text(f"{head}<items>\n{''.join(items)}</items>\n", encoding="utf-8")
    return path


def parsed(path):
    with open(path, "rb") as stream:
        return [(record.text, int(record.label)) for record in parse_reviews(stream, str(path))]


def test_texts_and_labels(tmp_path):
    source = write(
        tmp_path / "train.review",
        ITEM.format("5.0", "Très  bon &amp; court.\nÀ lire !"),
        ITEM.format("1.0", "<![CDATA[Non <b>merci</b>]]>"),
        ITEM.format("3.0", "Ni l'un ni l'autre."),
        ITEM.format("4.0", "  \n"),
        ITEM.format("2.0", "Bof\r\nbof"),
        ITEM.format("4.0", "Un séparateur \u2028 reste."),
    )
    assert parsed(source) == [
        ("Très  bon & court. À lire !", 1),
        ("Non <b>merci</b>", 0),
        ("Bof bof", 0),
        ("Un séparateur \u2028 reste.", 1),
    ]
    packed = tmp_path / "train.xml.gz"
    packed.write_bytes(gzip.compress(source.read_bytes()))
    read = [(record.text, int(record.label)) for record in read_records(str(packed))]
    assert read == parsed(source)


def test_agrees_with_elementtree_across_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "roberta_small.preprocess.readers.webis.CHUNK_BYTES", 7
    )  # cuts inside tags, entities and letters
    texts = [f"Numéro {i} : été &lt; hiver, l'œuvre n°{i}" for i in range(50)]
    source = write(tmp_path / "x.review", *(ITEM.format(1 + 4 * (i % 2), t) for i, t in enumerate(texts)))
    items = ElementTree.parse(source).getroot().findall("item")
    expected = [(item.findtext("text"), int(float(item.findtext("rating")) > 3)) for item in items]
    assert parsed(source) == expected


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ("<items>\n<item><text>a</item>", "line 2, column 16: mismatched tag"),
        ("<items>\n<item><rating>5</rating>", "line 2, column 25: no element found"),
        ("<items>\n<item><text>a</text></item></items>", "line 2: the item's rating is 'missing'"),
        (
            "<items><item><rating>cinq</rating><text>a</text></item></items>",
            "line 1: the item's rating is 'cinq'",
        ),
        ("", "line 1, column 1: no element found"),
        (
            '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><items>&b;</items>',
            "line 1: contains a document type",
        ),
    ],
)
def test_bad_file_is_a_clear_error(tmp_path, content, place):
    source = tmp_path / "bad.review"
    source.write_text(content)
    with pytest.raises(UserError) as caught:
        parsed(source)
    assert f"{source}" in str(caught.value)
    assert place in str(caught.value)


def test_bytes_that_are_not_utf8(tmp_path):
    source = tmp_path / "latin.review"
    source.write_bytes(ITEM.format("5", "été").join(["<items>", "</items>"]).encode("latin-1"))
    with pytest.raises(UserError, match=r"line 1, column \d+"):
        parsed(source)
