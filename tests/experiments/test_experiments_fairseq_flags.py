import pytest

from common.errors import UserError
from experiments import recipes
from experiments.methods.fairseq_flags import check


def test_flags_of_a_recipe_are_accepted():
    check(recipes.load("tuned").words)


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        (["--word-dropot", "0.1"], ["--word-dropot", "--word-dropout"]),
        (["--max-epoch", "x"], ["--max-epoch"]),
    ],
)
def test_a_wrong_flag_raises_with_the_nearest(words, facts):
    with pytest.raises(UserError) as caught:
        check(recipes.load("tuned", words).words)
    assert all(fact in str(caught.value) for fact in facts)
