"""From the function back to the parameters, as a fiber."""
