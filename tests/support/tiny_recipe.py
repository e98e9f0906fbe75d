"""What recipes for tiny classifiers have in common: the task, and sizes that train in no time."""

SIZES = """\
--encoder-embed-dim 16
--encoder-ffn-embed-dim 16
--encoder-attention-heads 2
"""

CLASSIFIER = f"""
--task sentence_classification
--criterion sentence_classification
--arch roberta_small
{SIZES}--init-token 0
--separator-token 2
--max-positions 32
--shorten-method truncate
--batch-size 8
--lr 1e-2
--lr-scheduler polynomial_decay
--optimizer fused_adam
--adam-betas "(0.9, 0.98)"
--precision fp32
--valid-subset valid,test
--best-checkpoint-metric accuracy
--maximize-best-checkpoint-metric
"""
