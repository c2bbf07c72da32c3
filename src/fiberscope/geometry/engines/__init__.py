"""Engines that list the cells of a network: which one is asked (:mod:`choose`), and one folder for each."""
