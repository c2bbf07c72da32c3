"""What changed between two models, modulo the symmetries that change nothing."""
