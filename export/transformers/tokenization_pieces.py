"""The tokenizer of this folder: text to the ids that the model was trained on.

It needs Transformers and sentencepiece alone, because a converted folder carries this file:
`AutoTokenizer.from_pretrained(FOLDER, trust_remote_code=True)`. Text is cut into the pieces of a
SentencePiece model, and a token that the smaller dictionary `dict.txt` lacks is `<unk>`. `BartphoTokenizer`
does the same and is what loads without `trust_remote_code`; this class adds what it cannot be told.
"""

from __future__ import annotations

from typing import Any

from transformers import BartphoTokenizer, BatchEncoding

APOSTROPHES = str.maketrans({"\u2019": "'", "\u02bc": "'"})  # right single quotation mark, modifier letter


class PieceTokenizer(BartphoTokenizer):
    """`BartphoTokenizer` with fairseq's way of cutting long text.

    Args (beside those of `BartphoTokenizer`, all kept in tokenizer_config.json):
        keep_eos: a row that truncation cuts ends in `</s>`. Otherwise it ends where it was cut, and
            `</s>` is lost, as in fairseq.
        normalize_apostrophes: read every apostrophe as `'`.
    """

    def __init__(
        self, *args: Any, keep_eos: bool = False, normalize_apostrophes: bool = False, **kwargs: Any
    ) -> None:
        self.keep_eos = keep_eos
        self.normalize_apostrophes = normalize_apostrophes
        super().__init__(*args, keep_eos=keep_eos, normalize_apostrophes=normalize_apostrophes, **kwargs)

    def prepare_for_tokenization(
        self, text: str, is_split_into_words: bool = False, **kwargs: Any
    ) -> tuple[str, dict[str, Any]]:
        """A line break within a text counts as a space; apostrophes as the training data were read."""
        text = text.replace("\n", " ")
        return (text.translate(APOSTROPHES) if self.normalize_apostrophes else text), kwargs

    def _tokenize(self, text: str, **kwargs: Any) -> list[str]:
        # fairseq reads the tokens as words of a line: one that is white space vanishes.
        return " ".join(super()._tokenize(text)).split()

    def prepare_for_model(
        self,
        ids: list[int],
        pair_ids: list[int] | None = None,
        add_special_tokens: bool = True,
        padding: Any = False,
        truncation: Any = False,
        max_length: int | None = None,
        **kwargs: Any,
    ) -> BatchEncoding:
        """As the base class; a row that is too long is built first and cut then, whatever is at its end."""
        row = self.build_inputs_with_special_tokens(ids, pair_ids)
        longest = self.model_max_length if max_length is None else max_length
        wanted = truncation not in (False, None, "do_not_truncate")
        if not (wanted and add_special_tokens and len(row) > longest):
            return super().prepare_for_model(
                ids, pair_ids, add_special_tokens, padding, truncation, max_length, **kwargs
            )
        row = row[:longest]
        if self.keep_eos:
            row[-1] = self.eos_token_id
        return super().prepare_for_model(row, None, False, padding, False, max_length, **kwargs)
