"""What speed_vs_peers.py is made of; standard library only.

sides.py names ours and the peers, goals.py reads problems and goals, measuring.py runs the
benchmark, results.py reads its rows, estimates.py has the statistics, judging.py the verdicts,
table.py the text.
"""
