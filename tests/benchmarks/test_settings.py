"""Settings of the benchmarks."""


def test_other_batches_have_the_same_timed_sentences(settings):
    large = settings.with_batch_size(2 * settings.batch_size)
    assert large.batch_size == 2 * settings.batch_size
    assert 2 * (large.updates - large.warm_up) in (settings.updates - settings.warm_up, 4)
    assert settings.with_batch_size(settings.batch_size) == settings
