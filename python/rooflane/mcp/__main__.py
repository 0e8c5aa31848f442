"""python3 -m rooflane.mcp [OPTION...]."""
import sys

from rooflane.mcp.command import main

sys.exit(main(sys.argv[1:]))
