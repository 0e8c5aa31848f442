// GEMM, the ladder of `opencl`: lays out the grids of gemm_ladder.cl. gemm.hpp lists the ideas in
// order.
#include <fmt/format.h>

#include "gemm_ladder_cl.hpp"
#include "kernels/common/opencl_ladder.hpp"
#include "kernels/gemm/epilogue.hpp"
#include "kernels/gemm/gemm.hpp"

namespace rooflane::gemm {
namespace {

using std::int64_t;

class LadderPlan final : public common::OpenclRung {
 public:
  LadderPlan(const Problem& problem, const Tuning& step, const Environment& env,
             const Operands& constants)
      : OpenclRung(problem, step, env) {
    require_no_epilogue(problem, step);
    const Gemm g(problem);
    if (g.empty()) return;
    static constexpr const char* names[] = {"gemm_naive", "gemm_tiled", "gemm_registers",
                                            "gemm_vectors"};
    const int64_t k = g.reads_ab() ? g.k : 0;
    cl_mem c = copy_of("c");
    // Arguments that the kernel does not read still need a buffer.
    cl_mem b = k == 0 ? c : g.prepack ? constant(constants.at("b")) : copy_of("b");
    opencl::KernelCall call =
        kernel(gemm_ladder_cl, fmt::format(" -DV=4 -DSIDE={}", side()), names[this->step()]);
    call.set_args(context(), k == 0 ? c : copy_of("a"), b, g.reads_c0() ? copy_of("c0") : c, c,
                  cl_long{g.batch}, cl_long{g.m}, cl_long{g.n}, cl_long{k},
                  cl_long{g.trans_a ? 1 : g.k}, cl_long{g.trans_a ? g.m : 1},
                  cl_long{g.trans_b ? 1 : g.n}, cl_long{g.trans_b ? g.k : 1}, cl_float{g.alpha},
                  cl_float{g.beta});
    if (this->step() == 0) {
      set(std::move(call), common::enough(g.batch * g.m * g.n, side() * side()));
      return;
    }
    const int64_t tile = this->step() == 1 ? side() : 8 * side();  // TILE of gemm_ladder.cl
    const int64_t tiles = common::ceil_div(g.m, tile) * common::ceil_div(g.n, tile);
    set(std::move(call), common::enough(g.batch * tiles * side() * side(), side() * side()));
  }

 private:
  // A constant as it is: rungs pack nothing.
  cl_mem constant(const View& view) {
    cl_mem memory = packed(static_cast<std::size_t>(view.elements()) * sizeof(float));
    write_now(memory, view);
    return memory;
  }
};

constexpr auto rung = common::opencl_rung<LadderPlan>;

}  // namespace

const Rung opencl_ladder[] = {
    {"naive", "one work-item per element of c", Threads::device, rung},
    {"tiled", "a group shares 16×16 tiles of a and b in local memory", Threads::device, rung},
    {"registers", "8×8 elements per item in registers", Threads::device, rung},
    {"vectors", "accesses of 16 bytes, global and local", Threads::device, rung},
};

}  // namespace rooflane::gemm
