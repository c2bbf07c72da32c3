"""``python -m fiberscope``."""

from fiberscope.cli import main

main()
