"""Paths inside a fiber."""
