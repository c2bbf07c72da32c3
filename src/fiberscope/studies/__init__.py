"""The papers' studies, one file each; :mod:`fiberscope.studies.lab` finds and runs them."""
