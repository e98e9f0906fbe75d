"""Recipes parsed for the Transformers Trainer, and their learning rates against fairseq."""

import pytest
import torch
from fairseq import tasks
from fairseq.optim.lr_scheduler import build_lr_scheduler

from roberta_small.common.errors import UserError
from roberta_small.experiments.methods.transformers.recipe import parse
from roberta_small.experiments.methods.transformers.train_run import initial_model
from roberta_small.experiments.methods.transformers.trainer import ClassifierTrainer, training_arguments
from roberta_small.experiments.recipe import length as run_length
from roberta_small.experiments.recipe import recipe as recipes
from roberta_small.fairseq_plugin.training.optimizer import FairseqFusedAdam
from tests.support.data_folders import write_data
from tests.support.method_runs import parsed, words


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("data"))


def test_the_recipe_reference_has_the_published_hyperparameters(data, tmp_path):
    recipe = parse(str(data), run_length.resolve(recipes.load("reference"), 1800).words)
    found = training_arguments(recipe, tmp_path, sentences=1800, seed=3, bf16=False, cpu=True)
    assert (found.max_steps, found.learning_rate, found.seed) == (1125, 1e-5, 3)
    assert (found.per_device_train_batch_size, found.max_grad_norm) == (8, 0)
    adam = (found.adam_beta1, found.adam_beta2, found.adam_epsilon, found.weight_decay)
    assert adam == (0.9, 0.98, 1e-8, 0.01)
    assert recipe.lr_scheduler.warmup_updates == 67
    model = initial_model(recipe, tasks.setup_task(recipe.task), None, seed=1).config
    sizes = (model.num_hidden_layers, model.hidden_size, model.intermediate_size, model.num_attention_heads)
    assert (*sizes, model.max_position_embeddings) == (4, 512, 512, 8, 256 + 2)
    dropout = (model.hidden_dropout_prob, model.attention_probs_dropout_prob, model.classifier_dropout)
    assert dropout == (0.1, 0.1, 0.0)


def test_the_architecture_of_a_checkpoint_is_supported(data):
    changes = {"--arch": "roberta_base", "--layer-norm-eps": "1e-12", "--encoder-attention-heads": "4"}
    model = initial_model(*parsed(data, changes), None, seed=1).config
    assert (model.num_hidden_layers, model.num_attention_heads, model.layer_norm_eps) == (2, 4, 1e-12)
    assert parse(str(data), words({"--arch": "roberta_base"})).model.layer_norm_eps == 1e-5


def test_sizes_of_batches_and_numbers_of_updates(data, tmp_path):
    def arguments(**changes):
        cfg = parse(str(data), words({f"--{name.replace('_', '-')}": x for name, x in changes.items()}))
        return training_arguments(cfg, tmp_path, sentences=48, seed=1, bf16=False, cpu=True)

    small = arguments(batch_size_valid="64", max_tokens_valid="100")
    assert small.per_device_eval_batch_size == 3  # of 32 tokens
    assert arguments(batch_size_valid="5").per_device_eval_batch_size == 5
    assert arguments(update_freq="4").max_steps == 3 * 2  # of 6 batches an epoch


@pytest.mark.parametrize(
    ("changes", "facts"),
    [
        ({"--ddp-backend": "no_c10d"}, ["--ddp-backend"]),
        ({"--optimizer": "sgd"}, ["--optimizer sgd", "adam, fused_adam"]),
        ({"--lr-scheduler": "fixed"}, ["--lr-scheduler fixed", "polynomial_decay"]),
        ({"--batch-size": "eight"}, ["--max-sentences", "'eight'"]),
        ({"--batch-size": None}, ["--batch-size"]),
        ({"--max-epoch": None}, ["--max-epoch", "--max-update"]),
        ({"--activation-fn": "linear"}, ["--activation-fn linear", "gelu"]),
        ({"--adam-betas": "0.9"}, ["0.9"]),
    ],
)
def test_an_unsupported_or_missing_flag_is_an_error(data, changes, facts):
    with pytest.raises(UserError) as caught:
        parse(str(data), words(changes))
    assert all(fact in str(caught.value) for fact in facts), caught.value


def test_the_learning_rate_equals_fairseqs_at_every_update(data):
    cfg = parse(str(data), words({"--total-num-update": "30", "--warmup-updates": "7"}))
    parameter = torch.nn.Parameter(torch.ones(1))
    theirs = build_lr_scheduler(cfg.lr_scheduler, FairseqFusedAdam(cfg.optimizer, [parameter]))
    optimizer = torch.optim.AdamW([parameter], lr=cfg.optimization.lr[0])
    trainer = ClassifierTrainer.__new__(ClassifierTrainer)
    trainer.cfg, trainer.lr_scheduler = cfg, None
    ours = ClassifierTrainer.create_scheduler(trainer, 18, optimizer)
    for update in range(30):
        assert ours.get_last_lr()[0] == pytest.approx(theirs.step_update(update), abs=1e-12), update
        optimizer.step()
        ours.step()
