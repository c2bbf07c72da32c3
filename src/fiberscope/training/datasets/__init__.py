"""Data sets with one interface: arrays, where they come from, and a checksum."""
