"""What speed_vs_peers.py is made of; standard library only.

sides.py names ours and the peers, goals.py reads problems and goals, measuring.py runs the
benchmark, results.py takes ratios, means and intervals from `rooflane roofline --json`, judging.py
holds them against the goals, table.py writes the text.
"""
