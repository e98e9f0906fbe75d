"""The method tfidf: TF-IDF of word n-grams and logistic regression. Needs neither torch nor fairseq."""
