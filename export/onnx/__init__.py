"""Classifiers to ONNX: the graph, and its comparison with PyTorch."""
