"""The methods of equality, one file each: its search, its evidence and the check of the evidence."""
