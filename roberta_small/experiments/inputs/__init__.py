"""What runs read: data folders, files of labelled text, and initial checkpoints."""
