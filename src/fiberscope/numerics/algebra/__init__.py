"""What a walk over a program computes in: floats, floats with bounds, balls, residues, bits."""
