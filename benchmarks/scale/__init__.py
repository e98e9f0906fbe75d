"""How time and memory grow with the text and with the number of runs."""
