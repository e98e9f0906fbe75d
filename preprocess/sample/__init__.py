"""A small French corpus of book reviews, generated from word lists and sentence frames."""
