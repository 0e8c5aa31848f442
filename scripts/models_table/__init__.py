"""Runs of all models, their tables and their picture; models.py is the script."""
