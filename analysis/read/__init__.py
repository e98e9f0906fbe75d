"""Log files below a folder: found, assigned to runs, and read into the long table."""
