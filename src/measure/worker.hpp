// A worker runs cases: open, verify, sample, close. In this process (LocalWorker) or in another
// over one versioned line protocol (ProcessWorker ↔ serve_worker); scripts in other languages speak
// the same protocol.
//
// Protocol 1: one JSON object per line. The worker greets with
//   {"rooflane_worker":1,"name":"rooflane","version":"..."}
// to which it adds what it can run, so that foreign workers (other builds, plugins, Python peers)
// are found by asking them (foreign.hpp):
//   "variants":[{"kernel":"gemm","variant":"numpy","threads":"one|many|device","backend":"python",
//                "verifies":false,
//                "tunables":[{"name":"unroll","meaning":"...","least":1,"most":8}]},
//               {"kernel":"gemm","variant":"torch","absent":"no module torch"}, ...],
//   "build_commit":"...","git_dirty":"...","compiler":"..."  (where it is a build of its own)
// A worker that cannot do its work greets with "error":"why" and ends. It answers each request with
// {"ok":true,...} or {"ok":false,"status":"UNSUPPORTED","reason":"..."}. "restart":true means that
// its process cannot be used any more (a device was lost): it is ended, and the next case gets a
// new one. The requests:
//   {"op":"open","case":"gemm:m=8,n=8,k=8 variant=hwy threads=2","variant":"hwy","math":"fp32",
//    "threads":2,"cache":"warm","timer":"steady","seed":1,
//    "problem":{"kernel":"gemm","text":"gemm:m=8,n=8,k=8","parameters":{"m":8,...,"beta":0.0},
//               "tensors":[{"name":"a","role":"input","dtype":"float32","shape":[1,8,8],
//                           "seed_scale":1.0},...],"cost":{"flops":1024.0,...}}} -> Opened's fields
//        int32 tensors with "ids_below":"vocab" hold 0 to that parameter's value less one, with
//        "counts_to" the value itself; with "ascending":true they are sorted (core/seeds.hpp)
//        inputs of another distribution than uniform (core/distribution.hpp) are asked for by
//        "distribution":{"name":"wide","ranges":{"x":{"low":-126,"high":128,"least_normal":-126,
//        "far":4096.0,"largest":3.4e38},...}}, with the SeedRange of each tensor that follows it;
//        only of workers that greeted with "draws_distributions":true
//        "math":"int8-block" in the answer: it computes in that instead of the math asked for
//        the case's line is enough for a build of Rooflane; a worker without a parser for it uses
//        the resolved fields: every parameter with its value, every tensor, defaults filled in
//   {"op":"verify","reference":"/path"}  (path empty: compute it)  -> Verification's fields
//   {"op":"output","path":"/path","output_bytes":N}  (instead of verify, where "verifies" is false)
//        the worker makes its inputs from the seed again, fills its outputs with NaN, runs once,
//        and writes the outputs' values in their own formats, row-major, one output after the
//        other, into the existing file -> {"ok":true}; the caller compares them with the reference
//   {"op":"reproduce","output_hash":N,"follow":false} -> {"same":true}: another run computed the
//        outputs with the "output_hash" of a verification of the same problem and seed, and, with
//        "follow", other inputs gave other outputs; only asked if an answer had an "output_hash"
//   {"op":"calibrate"}            -> {"runs_per_sample":N,"run_ns":t}
//   {"op":"sample","n":1,"runs":N} -> {"ns":[...],"h2d_ns":[...],"kernel_ns":[...],"d2h_ns":[...],
//                                     "e2e_ns":[...]} (device lists empty on a CPU)
//        A worker of anybody's code (@rooflane.variant) changes inputs within its timed series:
//        "changes":[[{"tensor":"x","element":7,"from":123,"output":"y","row":3,"first":16,
//                     "bytes":"0000803f...","same":false},...],...]: for each sample, in order,
//        element 7 of x took the value of element 123, and a timed run then had these bytes in y's
//        row 3 from column 16 on; "same": as before the change. Behind a sample inputs are restored
//   {"op":"phases","threads":2,"runs":N,"events":M} -> where a run's time goes, as a
//        PhaseProfile: {"runs":N,"run_ns":t,"plain_ns":t,"phases":[[thread,"pack",ns,times],
//        ...],"events":[[thread,"pack",begin_ns,end_ns],...],"dropped":d,
//        "counters":[["cycles",n],...]}, or only {"ok":true} if that is not known; asked of
//        Rooflane's own workers only
//   {"op":"close"}                -> {"ok":true}
// A request with end of input ends the worker.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/status.hpp"
#include "measure/case.hpp"
#include "measure/phase_profile.hpp"
#include "measure/verify.hpp"

namespace rooflane {

// Why a worker's answer is not what was asked for; becomes the row's status and reason.
class WorkerError : public std::runtime_error {
 public:
  WorkerError(Status status, const std::string& reason)
      : std::runtime_error(reason), status_(status) {}
  Status status() const { return status_; }

 private:
  Status status_;
};

struct Opened {
  PlanFacts facts;
  double plan_ns = 0;  // with packing of constants
  // Where the tuning came from: model, store or given. Empty: the variant has no tunables, or the
  // worker does not say.
  std::string tuning_source = {};
  // The arithmetic that a foreign worker says it computes in, where that is not the one asked for;
  // empty: it is. Its result is then judged by both, see Worker::verify.
  std::string math = {};
};

struct Calibration {
  std::int64_t runs_per_sample = 1;  // so that a warm sample lasts >= 1 ms; 1 when cold
  double run_ns = 0;
};

struct Samples {
  std::vector<double> ns;                                 // mean of one run
  std::vector<double> h2d_ns, kernel_ns, d2h_ns, e2e_ns;  // devices only
};

class Worker {
 public:
  virtual ~Worker() = default;
  virtual Opened open(const Case& c) = 0;
  // `reference_path` empty: the worker computes the reference itself. The second call of an open
  // case, or one after reproduces(), asks also whether the outputs follow the inputs, and may
  // compare bits with the output that the first one verified. What misses the bound of the math
  // asked for and keeps that of the math that open() told is INACCURATE.
  virtual Verification verify(const std::string& reference_path) = 0;
  // Whether one run more gives the very outputs, bit for bit, that an earlier verification of the
  // same problem and seed compared, by this worker or another; inputs and guard zones must be as
  // they were. With `follow` they must also follow the inputs: NaN in the inputs gives NaN in the
  // outputs. False also where the worker cannot know; then verify() decides.
  virtual bool reproduces(std::uint64_t output_hash, bool follow) = 0;
  virtual Calibration calibrate() = 0;
  // Untimed runs until two agree within 5 %, then n samples of `runs` back-to-back runs each.
  virtual Samples sample(int n, std::int64_t runs) = 0;
  // Where the time of the open case's runs goes; nothing where that is not known, as of a library.
  virtual std::optional<PhaseProfile> profile(const PhaseRequest& request) = 0;
  // Whether it makes inputs of this distribution: asked before a case with it is opened. May start
  // the worker's process.
  virtual bool draws(const Distribution& distribution) = 0;
  virtual void close() = 0;
  // Waits until the worker uses no more CPU time (a runtime may spin for a while after a run), at
  // most a second. False when it was busy to the end: then it takes CPUs from whoever is next.
  virtual bool settle() = 0;
  // The process in which runs take place; below 0 when there is none.
  virtual pid_t process() = 0;
  // Peak resident memory of its process since open().
  virtual std::int64_t peak_rss_bytes() = 0;
};

std::unique_ptr<Worker> local_worker(const Catalogue& catalogue);

// One variant of a worker's greeting.
struct OfferedTunable {
  std::string name, meaning;
  std::int64_t least = 0, most = 0;
};
struct Offer {
  std::string kernel;
  std::string variant;
  std::string absent;  // why it cannot be had; the rest is meaningless then
  Threads threads = Threads::one;
  std::string backend;
  bool verifies = true;  // else whoever asks compares its output with the reference
  std::vector<OfferedTunable> tunables = {};
};

// What a worker says when it starts.
struct Greeting {
  std::string name, version;
  std::string error;                           // not empty: it cannot serve
  std::optional<std::vector<Offer>> variants;  // nothing: a worker that does not say
  Build build;
  bool draws_distributions = false;  // all that this build knows, not uniform inputs alone
};

// How a worker process is started and when it is given up.
struct ProcessSettings {
  std::vector<std::string> argv;                                 // {"/proc/self/exe", "worker"}
  std::vector<std::pair<std::string, std::string>> environment;  // laid over this process's own
  std::vector<int> cpus;                      // it may use these only; empty: all
  std::chrono::duration<double> timeout{60};  // for each answer
  std::size_t memory_bytes = 0;               // resident at most; 0: what is available now
  std::string variant;                        // the worker's own name for it; empty: the case's
};

// Every call throws WorkerError: TIMEOUT after `timeout` (the process is killed), RUNTIME_ERROR
// with signal or exit status when it dies, "out of memory" when it outgrows `memory_bytes`, or with
// the offending line when it prints rubbish. After an error the worker is dead; the next open()
// starts a new process. The process also ends when this one does.
std::unique_ptr<Worker> process_worker(ProcessSettings settings);

// Starts a worker, reads its greeting and ends it. Throws WorkerError as above.
Greeting greeting_of(const ProcessSettings& settings);

// Serves the protocol until end of input. Standard output is kept for the protocol: whatever
// libraries print there goes to standard error. Returns the exit status.
int serve_worker(const Catalogue& catalogue, const Build& build);
// Greets with the error only; returns the exit status of arguments that are wrong.
int refuse_to_serve(const std::string& error);

}  // namespace rooflane
