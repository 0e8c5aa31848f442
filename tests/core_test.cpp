// Core: text, problems, views, seeds, threads. What all rooms rely on.
#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <cmath>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "core/buffer.hpp"
#include "core/cpu_model.hpp"
#include "core/error.hpp"
#include "core/json_text.hpp"
#include "core/kernel.hpp"
#include "core/machine.hpp"
#include "core/parallel.hpp"
#include "core/seeds.hpp"
#include "core/status.hpp"
#include "core/text.hpp"
#include "core/variant.hpp"

using namespace rooflane;

namespace {

// y[r,c] = x[r,c] * w[c], a kernel of the test's own, so that core is tested without any room.
const std::array<ParamSpec, 5> params = {{
    {.name = "rows", .kind = ParamKind::size, .required = true},
    {.name = "cols", .kind = ParamKind::size, .required = true, .least = 1},
    {.name = "width",
     .kind = ParamKind::size,
     .default_from = [](const Problem& p) { return p.value("cols"); }},
    {.name = "flip", .kind = ParamKind::flag, .always_printed = true},
    {.name = "scale", .kind = ParamKind::real, .default_value = 1},
}};

const Kernel toy = {
    .name = "toy",
    .summary = "y = x * w",
    .params = params,
    .tensors =
        [](const Problem&) {
          return std::vector<TensorSpec>{
              {"x", Role::input, {{"rows", Axis::Form::leading}, {"cols"}}},
              {"w", Role::input, {{"cols"}}},
              {.name = "y",
               .role = Role::output,
               .axes = {{"rows", Axis::Form::leading}, {"cols"}},
               .like = "x"}};
        },
    .cost =
        [](const Problem& p) {
          return Cost{p.value("rows") * p.value("cols"), 0, 0};
        },
    .check = nullptr,
    .reference = nullptr,
    .in_place_input = "x",
};
const Kernel* const kernels[] = {&toy};

std::string message_of(auto&& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

class ToyPlan : public Plan {
 public:
  using Plan::Plan;
  void run() override {}
  PlanFacts facts() const override { return {}; }

 protected:
  void on_bind(const Operands&) override {}
};

}  // namespace

TEST_CASE("numbers parse strictly and print in the shortest form that reads back") {
  CHECK(parse_integer("12") == 12);
  for (const char* bad : {"", " 12", "12x", "1.5", "99999999999999999999"}) {
    CHECK_FALSE(parse_integer(bad).has_value());
  }
  CHECK(parse_real("1e-5") == 1e-5);
  CHECK_FALSE(parse_real("1e-5x").has_value());
  CHECK(print_real(1e-5) == "1e-05");
  CHECK(print_real(0.1) == "0.1");
  CHECK(print_real(3) == "3");
}

TEST_CASE("an unknown name is answered with the nearest valid one") {
  CHECK(nearest_name("sofmax", {"gemm", "softmax"}) == "softmax");
  CHECK(nearest_name("x", {}) == "");
  CHECK(unknown_name("kernel", "gem", {"gemm", "softmax"}) ==
        "unknown kernel 'gem'; nearest is 'gemm'; valid: gemm, softmax");
}

TEST_CASE("status names read back") {
  for (const Status status :
       {Status::passed, Status::inaccurate, Status::failed, Status::skipped, Status::unsupported,
        Status::timeout, Status::build_error, Status::runtime_error, Status::suspect}) {
    CHECK(parse_status(name_of(status)) == status);
  }
  CHECK_FALSE(parse_status("GOOD").has_value());
  CHECK_FALSE(is_bad(Status::unsupported));
  CHECK(is_bad(Status::suspect));
  CHECK_FALSE(is_bad(Status::inaccurate));
}

TEST_CASE("a problem prints in the kernel's order without defaults and reads back") {
  const Problem p = parse_problem("toy:scale=0.5,cols=4,rows=3", kernels);
  CHECK(p.text() == "toy:rows=3,cols=4,flip=0,scale=0.5");
  CHECK(parse_problem(p.text(), kernels) == p);
  CHECK(p.size("width") == 4);
  CHECK(parse_problem("toy:rows=3,cols=4,width=4,scale=1,flip=0", kernels).text() ==
        "toy:rows=3,cols=4,flip=0");
  CHECK(parse_problem("toy:rows=3,cols=4,width=5", kernels).text() ==
        "toy:rows=3,cols=4,width=5,flip=0");
}

TEST_CASE("ranges are inclusive, multiply, and can be tied") {
  const auto texts = [](std::string_view text) {
    std::vector<std::string> out;
    for (const Problem& p : parse_shapes(text, kernels)) out.push_back(p.shape());
    return out;
  };
  CHECK(texts("toy:rows=1..4*2,cols=8") == std::vector<std::string>{"rows=1,cols=8,flip=0",
                                                                    "rows=2,cols=8,flip=0",
                                                                    "rows=4,cols=8,flip=0"});
  CHECK(texts("toy:rows=cols=1..5+2").size() == 3);
  CHECK(texts("toy:rows=0..2+1,cols=1..2+1").size() == 6);
  CHECK(texts("toy:rows=0..2+1,cols=1..2+1")[1] == "rows=0,cols=2,flip=0");
  CHECK(texts("toy:rows=5..5*2,cols=1").size() == 1);
}

TEST_CASE("a bad shape is refused with a message that names the place") {
  const auto message = [](std::string_view text) {
    return message_of([&] { parse_shapes(text, kernels); });
  };
  CHECK(message("rows=1") ==
        "shape 'rows=1' has no kernel: write KERNEL:key=value,..., for example "
        "gemm:m=8,n=8,k=8");
  CHECK(message("toi:rows=1").find("nearest is 'toy'") != std::string::npos);
  CHECK(message("toy:rows=1,colls=2").find("nearest is 'cols'") != std::string::npos);
  CHECK(message("toy:rows=1") == "toy needs cols=: it is missing");
  CHECK(message("toy:rows=1,cols=0").find("cols=0: allowed is an integer from 1") == 0);
  CHECK(message("toy:rows=-1,cols=2").find("rows=-1") == 0);
  CHECK(message("toy:rows=1.5,cols=2").find("rows=1.5") == 0);
  CHECK(message("toy:rows=99999999999999999999,cols=2").find("rows=9999") == 0);
  CHECK(message("toy:rows=1,cols=2,flip=2").find("flip=2: allowed is 0 or 1") == 0);
  CHECK(message("toy:rows=1,cols=2,scale=nan").find("scale=nan") == 0);
  CHECK(message("toy:rows=1,cols=2,rows=3").find("given twice") != std::string::npos);
  CHECK(message("toy:rows=1,,cols=2").find("does not parse") != std::string::npos);
  CHECK(message("toy:").find("does not parse") != std::string::npos);
  CHECK(message("toy:rows=4..1*2,cols=2").find("does not parse") != std::string::npos);
  CHECK(message("toy:rows=1..4,cols=2").find("does not parse") != std::string::npos);
  CHECK(message("toy:rows=0..4*2,cols=2").find("does not parse") != std::string::npos);
  CHECK(message("toy:rows=1..4*1,cols=2").find("does not parse") != std::string::npos);
  CHECK(message("toy:rows=1..100000+1,cols=1").find("more than") != std::string::npos);
  CHECK(message("toy:rows=4503599627370496,cols=4503599627370496").find("elements") !=
        std::string::npos);
}

TEST_CASE("JSON is refused where its nesting would end the process") {
  const auto nested = [](std::size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  CHECK(parse_json(nested(most_nesting)).is_array());
  CHECK_THROWS_AS(parse_json(nested(most_nesting + 1)), nlohmann::json::exception);
  CHECK_THROWS_AS(parse_json("{\"a\":" + nested(1000000) + "}"), nlohmann::json::exception);
  CHECK_THROWS_AS(parse_json(std::string(1000000, '[')), nlohmann::json::exception);
  CHECK(parse_json("\"\\\"" + std::string(100, '[') + "\"").is_string());
}

TEST_CASE("sizes come from arrays, and a disagreement names both axes") {
  const Problem known(toy);
  const Problem p = infer_problem(known, {{"x", {2, 3, 5}}, {"w", {5}}});
  CHECK(p.text() == "toy:rows=6,cols=5,flip=0");
  CHECK(output_array_shape(p, toy.tensors(p).back(), {{"x", {2, 3, 5}}, {"w", {5}}}) ==
        Shape{2, 3, 5});
  CHECK(infer_problem(known, {{"x", {5}}, {"w", {5}}}).size("rows") == 1);
  CHECK(message_of([&] {
          infer_problem(known, {{"x", {3, 4}}, {"w", {5}}});
        }) == "cols is 4 by axis 1 of x [3,4] but 5 by axis 0 of w [5]");
  CHECK(message_of([&] {
          infer_problem(known, {{"x", {3, 4}}});
        }) == "toy needs input w [cols]: it is missing");
  CHECK(message_of([&] {
          infer_problem(known, {{"x", {3, 4}}, {"w", {4}}, {"z", {4}}});
        }).find("nearest is 'x'") != std::string::npos);
  CHECK(message_of([&] {
          infer_problem(known, {{"x", {3, 4}}, {"w", {1, 4}}});
        }) == "w [1,4] has 2 axes, allowed are 1: [cols]");
  Problem fixed(toy);
  fixed.set("rows", "7");
  CHECK(message_of([&] {
          infer_problem(fixed, {{"x", {3, 4}}, {"w", {4}}});
        }) == "rows is 7 by the given parameter but 3 by axis 0 of x [3,4]");
}

TEST_CASE("views of one matrix overlap only where their elements do") {
  std::vector<float> data(100);
  const auto block = [&](std::int64_t offset, std::int64_t rows, std::int64_t cols) {
    View v = contiguous_view(data.data() + offset, std::array{rows, cols});
    v.strides[0] = 10;
    return v;
  };
  CHECK_FALSE(overlap(block(0, 10, 5), block(5, 10, 5)));
  CHECK_FALSE(overlap(block(5, 10, 5), block(0, 10, 5)));
  CHECK(overlap(block(0, 10, 6), block(5, 10, 5)));
  CHECK(overlap(block(5, 9, 6), block(0, 9, 5)));
  CHECK_FALSE(overlap(block(0, 5, 10), block(50, 5, 10)));
  CHECK_FALSE(overlap(block(0, 0, 10), block(0, 5, 10)));
  CHECK(same_elements(block(0, 10, 5), block(0, 10, 5)));
  CHECK_FALSE(same_elements(block(0, 10, 5), block(0, 10, 4)));
}

TEST_CASE("bind refuses what a plan could not compute") {
  std::vector<float> data(100);
  ToyPlan plan(parse_problem("toy:rows=3,cols=4", kernels));
  const auto view = [&](std::int64_t offset, std::initializer_list<std::int64_t> shape) {
    const std::vector<std::int64_t> axes(shape);
    return contiguous_view(data.data() + offset, axes);
  };
  const auto message = [&](const View& x, const View& w, const View& y) {
    return message_of([&] {
      Operands operands;
      operands.set("x", x);
      operands.set("w", w);
      operands.set("y", y);
      plan.bind(operands);
    });
  };
  CHECK(message(view(0, {3, 4}), view(12, {4}), view(20, {3, 4})) == "no error");
  CHECK(message(view(0, {3, 4}), view(12, {4}), view(0, {3, 4})) == "no error");
  CHECK(message(view(0, {3, 4}), view(12, {4}), view(4, {3, 4})).find("overlaps input x") !=
        std::string::npos);
  CHECK(message(view(0, {3, 4}), view(12, {4}), view(14, {3, 4})).find("overlaps input w") !=
        std::string::npos);
  CHECK(message(view(0, {3, 5}), view(15, {4}), view(20, {3, 4})) ==
        "tensor x has shape [3,5], expected [3,4]");
  View gaps = view(20, {3, 4});
  gaps.strides[1] = 2;
  CHECK(message(view(0, {3, 4}), view(12, {4}), gaps).find("contiguous") != std::string::npos);
  View folded = view(20, {3, 4});
  folded.strides[0] = 3;
  CHECK(message(view(0, {3, 4}), view(12, {4}), folded).find("overlap one another") !=
        std::string::npos);
  View null = view(0, {3, 4});
  null.data = nullptr;
  CHECK(message(null, view(12, {4}), view(20, {3, 4})) == "tensor x is null");
  Operands lacking;
  lacking.set("x", view(0, {3, 4}));
  CHECK(message_of([&] { plan.bind(lacking); }) == "tensor 'w' is missing");
}

TEST_CASE("inputs from a seed match the published test vectors") {
  // Computed from the definition with 64-bit integers and double arithmetic in Python.
  CHECK(fnv1a64("gemm/a") == 0xb197435a07baf19f);
  CHECK(splitmix64(0x9e3779b97f4a7c15) == 0xe220a8397b1dcdaf);  // first output of SplitMix64(0)
  CHECK(seeded_value(1, "gemm", "a", 0) == 0x1.046bb20000000p-1f);
  CHECK(seeded_value(1, "gemm", "a", 1) == 0x1.5309a80000000p-3f);
  CHECK(seeded_value(1, "gemm", "b", 0) == 0x1.3a9fb20000000p-1f);
  CHECK(seeded_value(42, "softmax", "x", 1000000) == -0x1.141fd00000000p-4f);
  CHECK(seeded_value(0, "attention", "v", 8589934592) == 0x1.6af5b60000000p-1f);
  CHECK(seeded_integer(1, "embed", "ids", 0, 49152) == 29389);
  CHECK(seeded_integer(1, "embed", "ids", 1, 49152) == 43718);
  CHECK(seeded_integer(42, "segment_sum", "segment", 999999, 100000) == 62621);
  CHECK(seeded_integer(7, "attention", "lengths", 3, 2147483648) == 522545893);
}

TEST_CASE("a strided tensor gets the same values as a dense one, whatever the threads") {
  const Problem p = parse_problem("toy:rows=300,cols=700", kernels);
  const TensorSpec x = toy.tensors(p)[0];
  Buffer dense(300 * 700 * 4), strided(300 * 901 * 4);
  View d = contiguous_view(dense.data(), std::array<std::int64_t, 2>{300, 700});
  View s = contiguous_view(strided.data(), std::array<std::int64_t, 2>{300, 700});
  s.strides[0] = 901;
  fill_from_seed(7, p, x, d, 1);
  fill_from_seed(7, p, x, s, 3);
  bool equal = true;
  for (int r = 0; r < 300; ++r) {
    for (int c = 0; c < 700; ++c) {
      equal = equal && d.f32()[r * 700 + c] == s.f32()[r * 901 + c] &&
              d.f32()[r * 700 + c] == seeded_value(7, "toy", "x", r * 700 + c);
    }
  }
  CHECK(equal);
}

TEST_CASE("parallel_for runs every task once") {
  for (const int threads : {1, 2, 3, 8}) {
    for (const int tasks : {0, 1, 2, 1000}) {
      std::vector<std::atomic<int>> runs(tasks);
      std::atomic<int> largest_thread{0};
      parallel_for(nullptr, threads, tasks, [&](std::int64_t task, int thread) {
        ++runs[task];
        int seen = largest_thread;
        while (thread > seen && !largest_thread.compare_exchange_weak(seen, thread)) {
        }
      });
      for (const auto& count : runs) CHECK(count == 1);
      CHECK(largest_thread < threads);
    }
  }
}

TEST_CASE("regions of fewer threads do not end the others, which a later region needs again") {
  std::mutex mutex;
  std::set<std::thread::id> seen;
  const auto region_of = [&](int threads) {
    std::set<int> numbers;
    parallel_region(nullptr, threads, [&](const Team& team) {
      const std::scoped_lock lock(mutex);
      seen.insert(std::this_thread::get_id());
      if (team.threads == threads) numbers.insert(team.thread);
    });
    return static_cast<int>(numbers.size());
  };
  for (int i = 0; i < 20; ++i) {
    for (const int threads : {5, 2, 3}) CHECK(region_of(threads) == threads);
  }
  CHECK(seen.size() == 5);
  // So many that a team becomes smaller.
  for (int i = 0; i < 300; ++i) CHECK(region_of(i % 2 == 0 ? 2 : 3) == 2 + i % 2);
  CHECK(region_of(5) == 5);
}

TEST_CASE("parallel_for_static runs every task once, also with more threads than chunks") {
  for (const int threads : {1, 2, 3, 8, 70}) {
    for (const int tasks : {0, 1, 2, 71, 1000}) {
      std::vector<std::atomic<int>> runs(tasks);
      std::atomic<bool> strange_thread{false};
      parallel_for_static(nullptr, threads, tasks, [&](std::int64_t task, int thread) {
        ++runs[task];
        if (thread < 0 || thread >= threads) strange_thread = true;
      });
      for (const auto& count : runs) CHECK(count == 1);
      CHECK(!strange_thread);
    }
  }
}

TEST_CASE("parallel_for_static gives a thread its own chunk first and leaves none to absent ones") {
  struct OneByOne final : Pool {
    std::vector<int> order;
    void run(int threads, FunctionRef<void(int, int)> body) override {
      for (int thread : order) body(thread, threads);
    }
  } pool;
  const auto tasks_in_order = [&](std::vector<int> order) {
    pool.order = std::move(order);
    std::vector<std::int64_t> tasks;
    parallel_for_static(&pool, 3, 7, [&](std::int64_t task, int) { tasks.push_back(task); });
    return tasks;
  };
  CHECK(tasks_in_order({0}) == std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6});
  CHECK(tasks_in_order({1}) == std::vector<std::int64_t>{2, 3, 4, 5, 6, 0, 1});
  CHECK(tasks_in_order({2, 0, 1}) == std::vector<std::int64_t>{4, 5, 6, 0, 1, 2, 3});
}

TEST_CASE("chunks that begin again hand out every task once more") {
  for (const int count : {1, 3, 100}) {
    StaticChunks chunks(count, 7);
    for (int run = 0; run < 3; ++run) {
      std::vector<int> times(7);
      for (const int thread : {2, 0, 1}) {
        chunks.work(thread, [&](std::int64_t task) { ++times[task]; });
      }
      CHECK(times == std::vector<int>(7, 1));
      chunks.begin();
    }
    chunks.work(0, [](std::int64_t) {});
    chunks.work(0, [](std::int64_t) { FAIL_CHECK("handed out again"); });
  }
}

TEST_CASE("a barrier separates the phases of a region") {
  for (const int threads : {1, 2, 4}) {
    std::atomic<int> arrived{0};
    std::atomic<bool> early{false};
    parallel_region(nullptr, threads, [&](const Team& team) {
      for (int phase = 1; phase <= 100; ++phase) {
        ++arrived;
        team.barrier();
        if (arrived < phase * team.threads) early = true;
        team.barrier();
      }
    });
    CHECK_FALSE(early);
    CHECK(arrived == 100 * threads);
  }
}

TEST_CASE("a caller's pool replaces the default one") {
  struct Serial : Pool {
    int runs = 0;
    void run(int, FunctionRef<void(int, int)> body) override {
      ++runs;
      body(0, 1);
    }
  } serial;
  set_default_pool(&serial);
  int sum = 0;
  parallel_for(nullptr, 4, 10, [&](std::int64_t task, int) { sum += static_cast<int>(task); });
  set_default_pool(nullptr);
  CHECK(sum == 45);
  CHECK(serial.runs == 1);
  parallel_region(&serial, 4, [&](const Team& team) { CHECK(team.threads == 1); });
  CHECK(serial.runs == 2);
}

TEST_CASE("buffers are aligned and movable") {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{64}, std::size_t{5} << 20}) {
    Buffer a(bytes);
    CHECK(reinterpret_cast<std::uintptr_t>(a.data()) % 64 == 0);
    void* data = a.data();
    Buffer b(std::move(a));
    CHECK(b.data() == data);
    CHECK(b.bytes() == bytes);
  }
  CHECK(Buffer(0).data() == nullptr);
  CHECK_THROWS_AS(Buffer(~std::size_t{0}), std::bad_alloc);
}

TEST_CASE("the machine has cores, placement and memory") {
  const Machine& m = machine();
  CHECK(m.physical_cores >= 1);
  CHECK(m.logical_cpus >= m.physical_cores);
  const std::set<int> distinct(m.placement.begin(), m.placement.end());
  CHECK(distinct.size() == m.placement.size());
  CHECK(m.l1d_bytes > 0);
  CHECK(available_memory_bytes() > 0);
  CHECK(available_memory_bytes() <= m.memory_bytes);
}

TEST_CASE("a CPU's name is its model's, an ARM part's, or a board's") {
  const auto name_of = [](const char* text) {
    std::istringstream cpuinfo(text);
    return cpu_model(cpuinfo);
  };
  CHECK(name_of("processor\t: 0\nmodel name\t: AMD EPYC 9B45\nmodel name\t: other\n") ==
        "AMD EPYC 9B45");
  CHECK(name_of("CPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd4f\n") ==
        "Arm Neoverse-V2");
  // Little cores come first.
  CHECK(name_of("CPU implementer\t: 0x61\nCPU part\t: 0x022\n\n"
                "CPU implementer\t: 0x61\nCPU part\t: 0x023\n") == "Apple M1 Firestorm");
  CHECK(name_of("CPU implementer\t: 0x41\nCPU part\t: 0xfff\nModel\t\t: A board\n") ==
        "ARM implementer 0x41 part 0xfff");
  CHECK(name_of("Hardware\t: x\nModel\t\t: Some Board Rev 1.4\n") == "Some Board Rev 1.4");
  CHECK(name_of("CPU implementer\t:\n") == "unknown CPU");
}
