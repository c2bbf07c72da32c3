"""An independent judge: exact answers about tiny networks in plain Python integers and fractions.

Nothing here imports the library or NumPy, nothing is rounded, nothing is clever. Floats are taken as the exact
numbers that they are.
"""
