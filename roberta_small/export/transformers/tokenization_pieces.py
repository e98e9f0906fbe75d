"""The tokenizer of this folder: text to the ids that the model was trained on.

Load it with `AutoTokenizer.from_pretrained(FOLDER, trust_remote_code=True)`. It needs only Transformers and
sentencepiece. Text is segmented with a SentencePiece model, and tokens that are not in the smaller dictionary
`dict.txt` become `<unk>`, as in `BartphoTokenizer`, which is loaded without `trust_remote_code`. This class
adds fairseq's truncation and normalization of apostrophes.
"""

from __future__ import annotations

from typing import Any

from transformers import BartphoTokenizer, BatchEncoding

APOSTROPHES = str.maketrans({"\u2019": "'", "\u02bc": "'"})  # right single quotation mark, modifier letter


def kept_lengths(first: int, second: int, available: int) -> tuple[int, int]:
    """How many tokens are kept of two texts, as in training: the longer one is truncated first."""
    if first + second <= available:
        return first, second
    short, long = sorted((first, second))
    if 2 * short <= available:
        long = available - short
    else:
        short, long = available // 2, available - available // 2
    return (short, long) if first <= second else (long, short)


class PieceTokenizer(BartphoTokenizer):
    """`BartphoTokenizer` with fairseq's truncation of long texts.

    Args (in addition to those of `BartphoTokenizer`; all are stored in tokenizer_config.json):
        keep_eos: truncated texts end in `</s>`. By default they end with the last token that fits, as in
            fairseq.
        normalize_apostrophes: replace every apostrophe by `'`.
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
        """Replace line breaks by spaces, and normalize apostrophes if requested."""
        text = text.replace("\n", " ")
        return (text.translate(APOSTROPHES) if self.normalize_apostrophes else text), kwargs

    def _tokenize(self, text: str, **kwargs: Any) -> list[str]:
        # fairseq splits a line of tokens at white space, so tokens of white space are dropped.
        return " ".join(super()._tokenize(text)).split()

    def _encode_plus(self, *args: Any, return_offsets_mapping: bool = False, **kwargs: Any) -> BatchEncoding:
        """As in the base class, which ignores `return_offsets_mapping`; here it raises an error."""
        if return_offsets_mapping:
            raise NotImplementedError("return_offsets_mapping: a tokenizer in Python has no offsets")
        return super()._encode_plus(*args, **kwargs)

    def prepare_for_model(  # type: ignore[override]  # arguments of the base class that nobody passes here
        self,
        ids: list[int],
        pair_ids: list[int] | None = None,
        add_special_tokens: bool = True,
        padding: Any = False,
        truncation: Any = False,
        max_length: int | None = None,
        stride: int = 0,
        return_tensors: Any = None,
        return_overflowing_tokens: bool = False,
        return_special_tokens_mask: bool = False,
        prepend_batch_axis: bool = False,
        **kwargs: Any,
    ) -> BatchEncoding:
        """As in the base class, but truncate as training did.

        One text is truncated after adding special tokens; of a pair the longer text is truncated first.

        Raises `ValueError` for the overflowing tokens of a truncated pair: the base class has them neither.
        """
        row = self.build_inputs_with_special_tokens(ids, pair_ids)
        longest = self.model_max_length if max_length is None else max_length
        wanted = truncation not in (False, None, "do_not_truncate")
        truncate = wanted and add_special_tokens and len(row) > longest
        if truncate and pair_ids is not None:
            if return_overflowing_tokens:
                raise ValueError("return_overflowing_tokens: not supported for truncated pairs of sentences")
            special_tokens = len(row) - len(ids) - len(pair_ids)
            first, second = kept_lengths(len(ids), len(pair_ids), max(0, longest - special_tokens))
            ids, pair_ids, truncation, truncate = ids[:first], pair_ids[:second], False, False
        if not truncate:
            return super().prepare_for_model(
                ids,
                pair_ids,
                add_special_tokens,
                padding,
                truncation,
                max_length,
                stride=stride,
                return_tensors=return_tensors,
                return_overflowing_tokens=return_overflowing_tokens,
                return_special_tokens_mask=return_special_tokens_mask,
                prepend_batch_axis=prepend_batch_axis,
                **kwargs,
            )
        special = self.get_special_tokens_mask(ids, pair_ids)[:longest]
        removed = len(row) - longest
        row = row[:longest]
        if self.keep_eos:
            row[-1], special[-1] = self.eos_token_id, 1
        encoded = dict(super().prepare_for_model(row, None, False, padding, False, max_length, **kwargs))
        if return_special_tokens_mask:
            encoded["special_tokens_mask"] = special + [1] * (len(encoded["input_ids"]) - len(special))
        if return_overflowing_tokens and not return_tensors:
            kept = special.count(0)
            encoded["overflowing_tokens"] = ids[max(0, kept - stride) :]
            encoded["num_truncated_tokens"] = removed
        return BatchEncoding(encoded, tensor_type=return_tensors, prepend_batch_axis=prepend_batch_axis)
