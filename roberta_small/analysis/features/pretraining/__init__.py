"""Scores after fine-tuning against the number of pre-training tokens: table and figures."""
