"""ReFrame runs `rooflane bench` and holds what it measured against references."""
import json

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import (
    parameter,
    performance_function,
    run_before,
    sanity_function,
    variable,
)


@rfm.simple_test
class RooflaneCheck(rfm.RunOnlyRegressionTest):
    """One problem. `-S RooflaneCheck.program=/opt/rooflane/bin/rooflane` names the program."""

    program = variable(str, value="rooflane")
    options = variable(str, value="")  # more for `bench`
    variant = variable(str, value="hwy")
    problem = parameter(["gemm:m=n=k=512", "softmax:rows=512,cols=2048"])

    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    time_limit = "10m"
    # A share of the roof says the same of every machine; a time says it of one alone, and a
    # reference for it belongs under "system:partition".
    least_share = variable(float, value=30.0)

    @run_before("run")
    def set_command(self):
        self.reference = {"*": {"roof_share": (self.least_share, 0, None, "%")}}
        self.executable = self.program
        self.executable_opts = [
            "bench", f"-v {self.variant}", f"--shape {self.problem}", "--threads 1", self.options,
            "--format bmf", "--output metrics.json"]

    @sanity_function
    def rows_passed(self):
        # Rows that failed are not in the file, and the exit status says so.
        return sn.all([sn.assert_eq(self.job.exitcode, 0), sn.assert_true(self.metrics())])

    def metrics(self):
        with open(f"{self.stagedir}/metrics.json", encoding="utf-8") as file:
            return json.load(file)

    def median(self, measure):
        values = sorted(row[measure]["value"] for row in self.metrics().values())
        return values[len(values) // 2]

    @performance_function("ns")
    def latency(self):
        return self.median("latency")

    @performance_function("%")
    def roof_share(self):
        return self.median("roof-share")
