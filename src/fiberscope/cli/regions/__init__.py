"""The command ``fiberscope regions``: its options, and the curves and surfaces it follows."""
