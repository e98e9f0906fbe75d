"""The folder that fairseq adds to `sys.path`; it contains nothing but the folder for --user-dir."""
