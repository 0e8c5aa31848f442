"""A stand-in for PyTorch on a GPU, as far as peer_workers/cuda_plan.py times with it: a device
whose clock moves by what is queued on it, and a list of what that was. For peers_test.py."""
import types

QUEUE = []  # what the device was given, in order
CLOCK_MS = 0.0


class Tensor:
    pass


class Event:
    def __init__(self, enable_timing):
        assert enable_timing
        self.at = None

    def record(self):
        QUEUE.append("event")
        self.at = CLOCK_MS

    def synchronize(self):
        assert self.at is not None

    def elapsed_time(self, end):
        return end.at - self.at


def work(ms):
    global CLOCK_MS
    QUEUE.append("work")
    CLOCK_MS += ms


def _sleep(cycles):
    global CLOCK_MS
    QUEUE.append("idle")
    CLOCK_MS += cycles / 2e6


def inference_mode():
    return lambda function: function


cuda = types.SimpleNamespace(Event=Event, _sleep=_sleep)
