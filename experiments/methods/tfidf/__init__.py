"""What a bag of words scores: the result that a neural classifier has to beat.

    text -> model -> store: a run folder like any other (common/manifest.py), arm `bow`

Neither torch nor fairseq is needed. `__main__.py` has the whole in one function.
"""
