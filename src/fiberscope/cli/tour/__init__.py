"""The command ``fiberscope tour``."""
