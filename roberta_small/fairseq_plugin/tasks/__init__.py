"""Task, criteria, and the data sets that they read."""
