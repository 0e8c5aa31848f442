// Multiplies two matrices of one's own with a variant of the installed library.
// g++ -std=c++20 main.cpp -o example $(pkg-config --cflags --libs rooflane)
#include <rooflane/rooflane.hpp>

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

int main(int argc, char** argv) try {
  const std::string name = argc > 1 ? argv[1] : "hwy";  // which variant
  const rooflane::Catalogue catalogue = rooflane::Catalogue::built_in();

  // What to compute: c = a·b with a [m,k], b [k,n], c [m,n].
  constexpr std::int64_t m = 64, n = 48, k = 32;
  const rooflane::Problem problem =
      rooflane::parse_problem("gemm:m=64,n=48,k=32", catalogue.kernels());
  const rooflane::Variant& variant = *catalogue.variant(problem.kernel(), name).variant;

  // Planning once: two threads, the best ISA target of this CPU, the schedule that this machine
  // keeps for the problem, else the variant's own choice.
  rooflane::Environment environment;
  environment.threads = 2;
  if (variant.unsupported != nullptr) {
    if (const auto reason = variant.unsupported(problem, environment)) {
      std::fprintf(stderr, "%s: %s\n", name.c_str(), reason->c_str());
      return 3;
    }
  }
  const auto plan = rooflane::make_plan(variant, problem, {}, environment, {});

  // Binding our own memory; gemm's tensors have a batch axis in front.
  std::vector<float> a(m * k, 2.0f), b(k * n, 0.25f), c(m * n);
  rooflane::Operands operands;
  operands.set("a", rooflane::contiguous_view(a.data(), std::vector<std::int64_t>{1, m, k}));
  operands.set("b", rooflane::contiguous_view(b.data(), std::vector<std::int64_t>{1, k, n}));
  operands.set("c", rooflane::contiguous_view(c.data(), std::vector<std::int64_t>{1, m, n}));
  plan->bind(operands);

  // Running, as often as one likes. upload and download do nothing on a CPU.
  plan->upload();
  plan->run();
  plan->download();

  for (const float value : c) {
    if (std::fabs(value - 0.5f * k) > 1e-4f) {
      std::fprintf(stderr, "%s: got %g, want %g\n", name.c_str(), value, 0.5 * k);
      return 1;
    }
  }
  std::printf("%s: c[0] = %g\n", name.c_str(), c[0]);
  return 0;
} catch (const rooflane::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return static_cast<int>(error.kind());
}
