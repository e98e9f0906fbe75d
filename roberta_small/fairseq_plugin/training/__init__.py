"""Optimizer, precision, schedule, multi-process training, and how training resumes and ends."""
