"""Certificates of equality as files: written, and read in any of their formats."""
