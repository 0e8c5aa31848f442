"""`rooflane judge` over the Model Context Protocol, on standard input and output:
`python3 -m rooflane.mcp`, with the package `mcp`. SKILL.md teaches a program how to use it.
"""
