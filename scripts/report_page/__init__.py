"""The page of report.py: results.py reads, charts.py draws, page.py writes HTML."""
