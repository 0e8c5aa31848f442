"""`rooflane tune`: from arguments (command.py) to a search (search.py), its last comparison
(final.py) and the file of tuned schedules (export.py)."""
