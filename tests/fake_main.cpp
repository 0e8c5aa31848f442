// A worker with the fake variants beside the real ones. Tests start it; it is not installed.
#include "fakes.hpp"
#include "measure/worker.hpp"

int main() { return rooflane::serve_worker(rooflane::fake_catalogue()); }
