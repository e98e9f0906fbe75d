"""The method `frozen`: a linear classifier of the vectors of a pretrained encoder, which is not trained."""
