"""Pages: self-contained HTML made from results."""
