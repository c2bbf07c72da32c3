"""Why directions of the parameters do nothing: the kernel of the Jacobian by reasons, on a batch and everywhere."""
