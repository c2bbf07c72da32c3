"""Which parameters are one function? Canonical forms, equality, simplification, and the evidence for each."""
