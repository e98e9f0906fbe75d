"""Speed of this project compared with the usual tools on the same task."""
