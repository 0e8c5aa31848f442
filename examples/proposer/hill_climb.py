#!/usr/bin/env python3
"""A hill climber for rooflane tune --strategy proposer: one tunable, one step from the best."""
import json
import random
import sys

first = json.loads(sys.stdin.readline())
chance, space = random.Random(first["seed"]), first["space"]
values = {tunable["name"]: tunable["values"] for tunable in space["tunables"]}
seen = set()


def steps(centre):
    """All configurations that differ from `centre` by one place in one tunable's list."""
    for name, listed in values.items():
        at = min(range(len(listed)), key=lambda i: abs(listed[i] - centre[name]))
        for value in listed[max(0, at - 1):at] + listed[at + 1:at + 2]:
            yield {**centre, name: value}


for line in sys.stdin:
    ask = json.loads(line)["ask"]
    seen.update(str(trial["configuration"]) for trial in ask["history"])
    left = [step for step in steps(ask["best"] or space["default"]) if str(step) not in seen]
    # At the top, anywhere.
    proposed = chance.choice(left or [{name: chance.choice(values[name]) for name in values}])
    seen.add(str(proposed))
    print(json.dumps({"configurations": [proposed]}), flush=True)
