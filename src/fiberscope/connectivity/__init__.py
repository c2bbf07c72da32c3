"""Can two trainings be joined? Paths, barriers, permutation structure and matching."""
