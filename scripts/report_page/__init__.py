"""The pages of report.py: results.py reads what `rooflane roofline --json` says, charts.py and
roofline.py draw, page.py and readme.py write."""
