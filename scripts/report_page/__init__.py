"""The pages of report.py: results.py reads, groups.py compares, charts.py and roofline.py draw,
page.py writes HTML, readme.py Markdown."""
