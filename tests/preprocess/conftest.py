import pytest
import sentencepiece

WORDS = """
un une le la les livre roman histoire auteur personnage lecture page chapitre style ennui plaisir
déçu ravi magnifique long court drôle triste original banal passionnant j'ai lu c'est très peu assez
"""


@pytest.fixture(scope="session")
def lines():
    """Sentences without surprise; each is different."""
    words = WORDS.split()
    return [
        " ".join(words[(i * 7 + j * (i % 5 + 1)) % len(words)] for j in range(4 + i % 9)) for i in range(400)
    ]


def train(path, lines, **options):
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_prefix=str(path), vocab_size=60, minloglevel=2, **options
    )
    return f"{path}.model"


@pytest.fixture(scope="session")
def model(tmp_path_factory, lines):
    """A SentencePiece model of 60 tokens with the usual normalization."""
    return train(tmp_path_factory.mktemp("model") / "usual", lines)


@pytest.fixture(scope="session")
def identity_model(tmp_path_factory, lines):
    """One that leaves white space and odd characters as they are, and knows two of them as tokens."""
    return train(
        tmp_path_factory.mktemp("model") / "identity",
        lines,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        user_defined_symbols=["\u0085", "\u2028"],
    )


@pytest.fixture
def workdir(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path
