"""The falsifiers: a folder for each family of claims, and in it a module for each claim."""
