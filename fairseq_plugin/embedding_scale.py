"""The same model with smaller embeddings, which a small learning rate takes further.

Adam moves every weight by about the learning rate, so how far a step turns a vector depends on how long
the vector is. The embeddings of tokens and positions are added up and normalised: a common factor is lost
in that, and only sets how much a step counts ("effective learning rate": van Laarhoven 2017, arXiv
1706.05350; of Adam: Roburin et al. 2020, arXiv 2006.13382). Pre-training makes them long, and the 1,125
steps of 1e-5 of a short fine-tuning then hardly turn them. Divided by 8 they compute nearly what they
did, and each step turns them 8 times as far.

The head of the language model reads the same table, so its norm is multiplied by what the table is divided
by. What differs is the epsilon of the embeddings' norm, 1e-5 beside their variance; where it is the larger
one, the model would be another.
"""

from __future__ import annotations

import math

from torch import Tensor

from common.errors import UserError

ENCODER, HEAD = "encoder.sentence_encoder.", "encoder.lm_head."
EMBEDDINGS = (f"{ENCODER}embed_tokens.weight", f"{ENCODER}embed_positions.weight")
NORM = f"{ENCODER}layernorm_embedding.weight"
EPSILON = 1e-5
"""Of that norm, as torch and fairseq have it."""


def scale_embeddings(weights: dict[str, Tensor], scale: float) -> dict[str, Tensor]:
    """The weights of a RoBERTa with its embeddings times `scale`; tied ones stay tied, the argument as it is.

    Raises `UserError` for a scale that is not a positive number or too small for the norm to take back, and
    for a model without learned positions or without a norm after its embeddings: there a scale is another
    function.
    """
    if not 0.0 < scale < math.inf:
        raise UserError(f"--embedding-scale {scale}: must be above 0")
    missing = [name for name in (*EMBEDDINGS, NORM) if name not in weights]
    if missing:
        raise UserError(
            f"--embedding-scale: it would change what the model computes, which has no {missing[0]}"
        )
    smallest = math.sqrt(EPSILON / sum(float(weights[name].float().var(1).mean()) for name in EMBEDDINGS))
    if scale < smallest:
        raise UserError(
            f"--embedding-scale {scale}: the norm's epsilon would outweigh the embeddings; "
            f"take {smallest:.2g} or more"
        )
    tokens = weights[EMBEDDINGS[0]]
    factors = dict.fromkeys(EMBEDDINGS, scale)
    tied = [name for name, weight in weights.items() if weight.data_ptr() == tokens.data_ptr()]
    if f"{HEAD}weight" in tied:
        factors |= {f"{HEAD}layer_norm.{part}": 1 / scale for part in ("weight", "bias")}
    scaled = {name: weights[name] * factor for name, factor in factors.items()}
    return weights | scaled | dict.fromkeys(tied, scaled[EMBEDDINGS[0]])
