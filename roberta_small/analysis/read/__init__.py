"""Find the log files below a folder, assign them to runs and read them into the long table."""
