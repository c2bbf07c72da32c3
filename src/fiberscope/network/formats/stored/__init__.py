"""Files that hold numbers by name: with the program that ``save`` wrote, or as a bare state dict."""
