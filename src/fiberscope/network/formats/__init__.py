"""Foreign formats, one module each; every module imports its own foreign library and is loaded only when needed."""
