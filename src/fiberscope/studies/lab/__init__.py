"""The laboratory: what a study is, how studies are found, and the runner that survives."""
