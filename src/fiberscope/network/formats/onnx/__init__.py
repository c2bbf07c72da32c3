"""ONNX files: a graph read node by node, and written."""
