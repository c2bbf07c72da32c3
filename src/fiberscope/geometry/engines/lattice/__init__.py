"""Cells of every dimension on domains of any dimension, and the skeleton of vertices and edges alone."""
