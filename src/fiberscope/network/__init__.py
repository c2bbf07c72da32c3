"""A model as data: the frozen program, its loaders and savers, evaluation, group actions and neuron roles."""
