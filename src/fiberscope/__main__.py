"""``python -m fiberscope``."""

from fiberscope.cli.app import main

main()
