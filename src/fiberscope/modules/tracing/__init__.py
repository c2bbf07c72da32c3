"""Which axes of a module's tensors move together: a trace of the operations that run, and what each does to axes."""
