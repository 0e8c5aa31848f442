"""The library exports exactly the C functions that its header declares.

usage: c_symbols_test.py LIBRARY HEADER
"""
import re
import subprocess
import sys
import unittest
from pathlib import Path


class CSymbols(unittest.TestCase):
    library: Path
    header: Path

    def test_library_and_header_agree(self) -> None:
        listing = subprocess.run(["nm", "--dynamic", "--defined-only", str(self.library)],
                                 capture_output=True, text=True, check=True).stdout
        exported = {line.split()[-1].split("@")[0] for line in listing.splitlines()}
        exported = {name for name in exported if name.startswith("rooflane_")}
        header = self.header.read_text()
        declared = set(re.findall(r"ROOFLANE_API [^;]*?\b(rooflane_\w+)\(", header))
        self.assertGreater(len(declared), 15)
        self.assertEqual(exported, declared)


if __name__ == "__main__":
    CSymbols.library, CSymbols.header = Path(sys.argv[1]), Path(sys.argv[2])
    unittest.main(argv=sys.argv[:1])
