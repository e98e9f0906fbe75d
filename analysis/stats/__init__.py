"""Statistics over runs, seeds and predictions: data frames in, data frames out."""
