"""`rooflane bisect`: which commit made a kernel slower or faster. builds.py makes the program of a
commit and keeps it, search.py asks `git bisect`, command.py prints the answer."""
