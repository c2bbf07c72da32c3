"""Which neuron is which? Realisation and swap costs of symmetry-breaking layers, coherence, chord deviations."""
