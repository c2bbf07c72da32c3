"""What neurons do on a domain: ranges of their values, and their roles."""
