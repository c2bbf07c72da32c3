"""Networks as sums of ReLUs of sums of ReLUs, exactly, and their comparison."""
