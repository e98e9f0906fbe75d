"""A small BLOOM and questions to try `lora-causal` without a download.

faq.json contains 40 questions and answers of a lending library. bloom/ is a BLOOM with 0.2 million parameters
and its tokenizer, trained for some seconds on the answers as plain sentences; the format of questions and
answers is left for LoRA to learn. Repeated calls on the same machine write the same bytes.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from tokenizers import ByteLevelBPETokenizer
from transformers import BloomConfig, BloomForCausalLM, PreTrainedTokenizerFast

from roberta_small.common.errors import UserError
from roberta_small.common.files import atomic_folder, atomic_write

THINGS = {
    "novels": ("three weeks", "ten", "on the ground floor"),
    "comics": ("two weeks", "twenty", "beside the stairs"),
    "atlases": ("one week", "two", "in the map room"),
    "dictionaries": ("four days", "three", "in the reading room"),
    "films": ("five days", "four", "on the first floor"),
    "records": ("ten days", "six", "in the music room"),
    "scores": ("five weeks", "eight", "behind the piano"),
    "board games": ("one month", "one", "in the hall"),
}
"""Things to borrow -> loan period, maximum number, place."""

QUESTIONS = {
    "How long can I keep {thing}?": "You can keep {thing} for {time}. We write to you two days before.",
    "How many {thing} can I borrow?": "You can borrow up to {number} {thing} at a time.",
    "Where do I find {thing}?": "You find {thing} {place}. Ask at the desk if the shelf is empty.",
    "What does it cost to return {thing} late?": "After {time} we ask for ten cents a day for {thing}.",
    "Can I reserve {thing}?": "Yes. Reserve {thing} at the desk and collect them {place}.",
}


def sample_pairs() -> list[dict[str, str]]:
    """All pairs, each with the keys `question` and `answer`."""
    return [
        {"question": question.format(thing=thing),
         "answer": answer.format(thing=thing, time=time, number=number, place=place)}
        for thing, (time, number, place) in THINGS.items()
        for question, answer in QUESTIONS.items()
    ]  # fmt: skip


def write(destdir: Path, updates: int = 150) -> None:
    """Write faq.json and bloom/, trained for `updates`; raises `UserError` if bloom/ exists."""
    if (destdir / "bloom").exists():
        raise UserError(f"{destdir / 'bloom'}: exists; delete it or choose another folder")
    pairs = sample_pairs()
    bpe = ByteLevelBPETokenizer()  # as that of BLOOM
    texts = [text for pair in pairs for text in pair.values()]
    special = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    bpe.train_from_iterator(texts, vocab_size=400, special_tokens=[*special.values()], show_progress=False)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe._tokenizer, **special)
    config = BloomConfig(
        vocab_size=len(tokenizer), hidden_size=64, n_layer=2, n_head=4,
        bos_token_id=1, eos_token_id=2, pad_token_id=3,
    )  # fmt: skip
    rows = [torch.tensor([*tokenizer(pair["answer"])["input_ids"], tokenizer.eos_token_id]) for pair in pairs]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = BloomForCausalLM(config).train()
        optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
        for _ in range(updates):
            batch = [rows[i] for i in torch.randint(len(rows), (8,))]
            ids_BL = torch.nn.utils.rnn.pad_sequence(batch, batch_first=True, padding_value=3)
            mask_BL = (ids_BL != 3).long()
            loss = model(ids_BL, attention_mask=mask_BL, labels=ids_BL.masked_fill(mask_BL == 0, -100)).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    atomic_write(destdir / "faq.json", json.dumps({"questions": pairs}, indent=2, ensure_ascii=False) + "\n")
    with atomic_folder(destdir / "bloom") as folder:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
