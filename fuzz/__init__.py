"""A differential fuzzer: the library against an independent exact judge, see CONTRIBUTING.md."""
