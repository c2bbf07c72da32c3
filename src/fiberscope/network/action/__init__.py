"""One group action: its elements as data, and what they do to a chain; modules are acted on in ``modules``."""
