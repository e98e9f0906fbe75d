"""Classifiers as ONNX files: the graph, and its comparison with torch."""
