"""The classifier of this folder: a vector of an encoder's hidden states, a dense layer, and an output.

Load it with `AutoModelForSequenceClassification.from_pretrained(FOLDER, trust_remote_code=True)`. It needs
only Transformers, whose own classifiers use the first token, and one activation.

B texts, L tokens, C width, K classes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput


class MeanPoolingConfig(PreTrainedConfig):
    """The configuration of the encoder, and the head's."""

    model_type = "mean-pooling"

    def __init__(
        self,
        encoder: dict[str, Any] | None = None,
        pooling: str = "mean",
        pooler_activation: str = "tanh",
        pooler_dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        self.encoder = encoder or {"model_type": "roberta"}
        self.pooling = pooling
        self.pooler_activation, self.pooler_dropout = pooler_activation, pooler_dropout
        super().__init__(**kwargs)


class MeanPoolingForSequenceClassification(PreTrainedModel):
    """An encoder with a classification head on the mean of all tokens, or on the first one."""

    config_class = MeanPoolingConfig
    base_model_prefix = "encoder"
    _supports_sdpa = True

    def __init__(self, config: MeanPoolingConfig) -> None:
        super().__init__(config)
        self.encoder = AutoModel.from_config(AutoConfig.for_model(**config.encoder))
        if getattr(self.encoder, "pooler", None) is not None:
            self.encoder.pooler = None
        width = self.encoder.get_input_embeddings().embedding_dim
        self.dropout = nn.Dropout(config.pooler_dropout)
        self.dense = nn.Linear(width, width)
        self.out_proj = nn.Linear(width, len(config.id2label or ()))
        self.post_init()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        **unused: Any,
    ) -> SequenceClassifierOutput:
        """Ids, int64 (B, L) -> logits (B, K), and the loss of labels by `problem_type`."""
        mask_BL = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        types = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        hidden_BLC = self.encoder(input_ids=input_ids, attention_mask=mask_BL, **types)[0]
        weight_BL1 = mask_BL.unsqueeze(-1).to(hidden_BLC.dtype)
        vector_BC = (hidden_BLC * weight_BL1).sum(1) / weight_BL1.sum(1).clamp(min=1)
        if self.config.pooling == "first":
            vector_BC = hidden_BLC[:, 0]
        activation = {"tanh": torch.tanh, "relu": torch.relu, "gelu": nn.functional.gelu}.get(
            self.config.pooler_activation, lambda x: x
        )
        x_BC = activation(self.dense(self.dropout(vector_BC)))
        logits_BK = self.out_proj(self.dropout(x_BC))
        loss = None
        if labels is not None:
            loss = self.loss_function(labels=labels, pooled_logits=logits_BK, config=self.config)
        return SequenceClassifierOutput(loss=loss, logits=logits_BK)
