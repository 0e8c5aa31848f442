#!/usr/bin/env python3
"""A stand-in for scripts/peers.py whose peers cheat, die or hang: fake_peers.py --serve NAME.

Each computes softmax in plain Python and then does what its name says; `honest` does nothing else.
Those of ROUNDING compute gemm of rounded operands instead.
END-MOMENT is killed, crashes or hangs: before it greets (`start`), when it would greet for the
second time (`restart`: its first greeting leaves a file in the current folder), at the first
request of a kind (`open`...), or at the Nth (`output2`). Standard library only; foreign_test.py
says what must come of each.
"""
import ctypes
import json
import math
import os
import signal
import struct
import sys
import time

ENDS = ["killed", "crashes", "hangs"]
MOMENTS = ["start", "restart", "open", "output", "output2", "calibrate", "sample", "sample2",
           "close"]
WORKERS = ["honest", "zeros", "short", "long", "untouched", "forgetful", "leaves", "nonsense",
           "no-time", "no-runs", "refuses", "absent", "taken", "rubbish", "outdated", "complaint",
           "rounded", "rounded-too-far", "rounded-in-secret",
           *(f"{end}-{moment}" for end in ENDS for moment in MOMENTS)]
# Peer -> the bits of its operands' significands, and the math that it says it computes in.
ROUNDING = {"rounded": (8, "bf16"), "rounded-too-far": (3, "bf16"), "rounded-in-secret": (8, "")}
LIBRARIES = ["mkl", "openblas"]
MASK = 2**64 - 1


def seeded(seed, name, count):
    """The contract's inputs: a pure function of seed, "kernel/NAME" and the element's index."""
    z = 0xcbf29ce484222325
    for byte in name.encode():
        z = (z ^ byte) * 0x100000001b3 & MASK
    z ^= seed
    values = []
    for i in range(count):
        u = (z + (i + 1) * 0x9E3779B97F4A7C15) & MASK
        u = (u ^ u >> 30) * 0xBF58476D1CE4E5B9 & MASK
        u = (u ^ u >> 27) * 0x94D049BB133111EB & MASK
        u ^= u >> 31
        value = ((u >> 40) + 0.5) * 2.0**-23 - 1
        values.append(struct.unpack("f", struct.pack("f", value))[0])
    return values


def softmax(case):
    """The output of a request's problem, as bytes of float32."""
    x, y = case["problem"]["tensors"]
    assert (x["dtype"], x["shape"]) == (y["dtype"], y["shape"]) and x["dtype"] == "float32", case
    rows, cols = x["shape"]
    x = [x["seed_scale"] * value for value in seeded(case["seed"], "softmax/x", rows * cols)]
    y = []
    for row in range(rows):
        line = x[row * cols:(row + 1) * cols]
        powers = [math.exp(value - max(line)) for value in line]
        y += [power / sum(powers) for power in powers]
    return struct.pack(f"{len(y)}f", *y)


def rounded_gemm(case, bits):
    """The output of a product of two matrices, as bytes of float32."""
    sizes = case["problem"]["parameters"]
    m, n, k = (sizes[name] for name in "mnk")

    def near(value):
        fraction, exponent = math.frexp(value)
        return math.ldexp(round(fraction * 2**bits), exponent - bits)

    a, b = ([near(value) for value in seeded(case["seed"], f"gemm/{name}", count)]
            for name, count in (("a", m * k), ("b", k * n)))
    c = [sum(a[i * k + p] * b[p * n + j] for p in range(k)) for i in range(m) for j in range(n)]
    return struct.pack(f"{len(c)}f", *c)


def end(name):
    """The end that a peer's name names."""
    how = name.split("-")[0]
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "crashes":
        ctypes.string_at(0)
    time.sleep(1000)


def greeting(name):
    hello = {"rooflane_worker": 1, "name": "fake", "version": "1"}
    kernel = "gemm" if name in ROUNDING else "softmax"
    variant = {"kernel": kernel, "variant": "scalar" if name == "taken" else name,
               "threads": "many", "backend": "python", "verifies": False}
    if name == "rubbish":
        return "hello"
    if name == "complaint":
        return json.dumps({**hello, "error": "no such luck"})
    if name == "absent":
        variant = {"kernel": "softmax", "variant": name, "absent": "no module of that name"}
    elsewhere = {"kernel": "no-such-kernel", "variant": name, "threads": "one", "backend": "x"}
    return json.dumps(hello if name == "outdated" else {**hello, "variants": [variant, elsewhere]})


class Worker:
    def __init__(self, name):
        self.name, self.case, self.outputs = name, {}, 0

    def open(self, request):
        self.case = request
        assert request["variant"] == self.name, request
        assert f"variant={self.name}" in request["case"].split(" "), request
        if self.name == "refuses":
            return {"ok": False, "status": "UNSUPPORTED", "reason": "not in the mood"}
        _, math_of_its_own = ROUNDING.get(self.name, (0, ""))
        return {"isa": "", "library": "Fake 1.0", "math": math_of_its_own, "device": "",
                "driver": "", "tuning": [], "workspace_bytes": 0, "packed_bytes": 0, "plan_ns": 1.0}

    def compute(self):
        if self.name in ROUNDING:
            return rounded_gemm(self.case, ROUNDING[self.name][0])
        return softmax(self.case)

    def output(self, request):
        self.outputs += 1
        data = self.compute()
        assert request["output_bytes"] == len(data)
        if self.name == "leaves":
            os._exit(5)
        if self.name == "zeros" or (self.name == "forgetful" and self.outputs > 1):
            data = bytes(len(data))
        if self.name == "short":
            data = data[:-4]
        if self.name == "long":
            data += data
        if self.name != "untouched":
            with open(request["path"], "r+b") as file:
                file.write(data)
                file.truncate()
        return {}

    def calibrate(self, _):
        return {"runs_per_sample": 0 if self.name == "no-runs" else 1, "run_ns": 1e6}

    def sample(self, request):
        times = []
        for _ in range(request["n"]):
            begin = time.perf_counter_ns()
            self.compute()
            times.append(-1 if self.name == "no-time" else time.perf_counter_ns() - begin)
        return {"ns": times, "h2d_ns": [], "kernel_ns": [], "d2h_ns": [], "e2e_ns": []}

    def close(self, _):
        return {}


def serve(name):
    how, _, moment = name.partition("-")
    if how not in ENDS:
        moment = ""
    first = f"{name}.started"
    if moment == "start" or (moment == "restart" and os.path.exists(first)):
        end(name)
    if moment == "restart":
        open(first, "x", encoding="utf-8").close()
    print(greeting(name), flush=True)
    worker = Worker(name)
    requests = {}
    for line in sys.stdin:
        request = json.loads(line)
        count = requests[request["op"]] = requests.get(request["op"], 0) + 1
        if moment == f"{request['op']}{count if count > 1 else ''}":
            end(name)
        if name == "nonsense" and request["op"] == "sample":
            print("nonsense", flush=True)
            continue
        answer = getattr(worker, request["op"])(request)
        print(json.dumps({"ok": True, **answer}), flush=True)


def main():
    action, names = sys.argv[1], sys.argv[2:]
    if action == "--names":
        print("\n".join(WORKERS + LIBRARIES))
    elif action == "--prepare":
        print("prepared", *names)  # on standard output: it must not reach the caller's
    elif action == "--library":
        if names != ["openblas"] or "FAKE_LIBRARY" not in os.environ:
            sys.exit(3)
        print(os.environ["FAKE_LIBRARY"])
    elif action == "--serve":
        serve(names[0])


if __name__ == "__main__":
    main()
