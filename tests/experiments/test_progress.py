import pytest

from roberta_small.experiments import progress
from roberta_small.experiments.recipe.recipe import Recipe

FLAGS = "--valid-subset valid,test --best-checkpoint-metric accuracy --max-epoch 5 --max-update 20"
RECIPE = Recipe("test", tuple(FLAGS.split()))
STAMP = "2026-11-21 04:35:36 | INFO | "
INNER = STAMP + 'train_inner | {"epoch": 1, "update": 0.5, "loss": "0.9", "wps": "9.5", "num_updates": "2"}\n'
# fairseq logs no best value at the first validation.
FIRST = STAMP + 'valid | {"epoch": 1, "valid_accuracy": "62.5", "valid_num_updates": "4"}\n'
OTHER = STAMP + 'test | {"epoch": 1, "test_accuracy": "99", "test_num_updates": "4"}\n'
SAVED = f"{STAMP}fairseq.checkpoint_utils | Saved checkpoint a b/c.pt (epoch 1 @ 4 updates, score 62.5) (w\n"
TRAIN = STAMP + 'train | {"epoch": 1, "train_loss": "0.8"}\n'
WORSE = STAMP + (
    'valid | {"epoch": 2, "valid_accuracy": "60", "valid_num_updates": "8", "valid_best_accuracy": "62.5"}\n'
)
TIE = WORSE.replace('"epoch": 2', '"epoch": 3').replace('"60"', '"62.5"')


def read(text):
    state = progress.Progress(RECIPE)
    for line in text.splitlines():
        state.read_line(line)
    return state


def test_values_of_log_records():
    state = read(INNER)
    assert (state.epoch, state.epochs_done, state.update) == (1, 0.5, 2)
    assert (state.loss, state.words_per_second, state.best) == (0.9, 9.5, None)
    state = read(INNER + FIRST + OTHER + SAVED + TRAIN)
    assert (state.update, state.epochs_done, state.saved) == (4, 1.0, (1, 4))
    assert (state.best, state.best_epoch, state.validations) == (62.5, 1, 1)


def test_the_value_on_other_subsets_is_that_of_the_best_validation():
    other = [OTHER.replace("99", str(value)) for value in (1, 2, 3)]
    assert read(FIRST).at_best == {}
    assert (read(FIRST + WORSE).best, read(FIRST + WORSE).best_epoch) == (62.5, 1)
    assert read(FIRST + WORSE + TIE).best_epoch == 3  # the later epoch wins a tie
    assert read(FIRST + other[0] + WORSE + other[1]).at_best == {"test": 1}
    assert read(FIRST + other[0] + WORSE + other[1] + TIE + other[2]).at_best == {"test": 3}
    assert read(FIRST + other[0] + TIE).at_best == {}


def test_the_fraction_refers_to_the_limit_reached_first():
    assert read(INNER).fraction() == pytest.approx(0.1)
    assert read(FIRST + TRAIN).fraction() == pytest.approx(0.2)
    assert progress.Progress(Recipe("none", ("--lr", "1"))).fraction() == 0.0


def test_lines_that_are_not_records_are_ignored():
    state = read(STAMP + "valid | {not json}\n" + STAMP + "fairseq_cli.train | {'_name': None}\nprinted\n")
    assert state == progress.Progress(RECIPE)


def test_follower_reads_complete_lines_only(tmp_path):
    log = tmp_path / "train.log"
    follower = progress.Follower(log, RECIPE)
    assert list(follower.poll()) == []
    log.write_text(INNER + FIRST[:40])
    assert list(follower.poll()) == []
    assert follower.progress.update == 2
    with open(log, "a") as stream:
        stream.write(FIRST[40:] + WORSE)
    assert len(list(follower.poll())) == 2
    assert follower.progress == progress.read_log(log, RECIPE)


def test_without_a_terminal_each_validation_is_printed(tmp_path, capsys):
    log = tmp_path / "train.log"
    follower, line = progress.Follower(log, RECIPE), progress.ProgressLine("random/seed1", position=0)
    log.write_text(INNER)
    line.show(follower)
    log.write_text(INNER + FIRST + TRAIN + WORSE)
    line.show(follower)
    line.close()
    first, second = capsys.readouterr().out.splitlines()
    assert "random/seed1  epoch 1/5  update 4/20  loss 0.900  valid accuracy 62.5  best 62.5" in first
    assert "epoch 2/5  update 8/20" in second
    assert "valid accuracy 60  best 62.5" in second


def test_on_a_terminal_the_line_is_redrawn(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "100")
    (tmp_path / "train.log").write_text(INNER + FIRST)
    line = progress.ProgressLine("random/seed1", position=0)
    line.show(progress.Follower(tmp_path / "train.log", RECIPE))
    line.close()
    captured = capsys.readouterr()
    assert "\r" in captured.err
    assert "valid accuracy 62.5" in captured.err
    assert captured.out == ""
