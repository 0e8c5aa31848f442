// The OpenCL backend and what is particular to the opencl variants: devices, programs, errors,
// tilings for CPUs and GPUs, events. Shapes and memory layouts: conformance_test.cpp.
#include "backends/opencl.hpp"
#include "backends/opencl_plan.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "backends/opencl_ceilings.hpp"
#include "backends/opencl_features.hpp"
#include "core/catalogue.hpp"
#include "core/error.hpp"
#include "measure/verify.hpp"
#include "opencl_device.hpp"
#include "part_of_cases.hpp"

using namespace rooflane;
using test::has_device;

namespace {

constexpr std::uint64_t seed = 99;

const Catalogue& catalogue() {
  static const Catalogue built_in = Catalogue::built_in();
  return built_in;
}

Problem problem_of(const std::string& text) { return parse_problem(text, catalogue().kernels()); }

const Variant& variant_of(const Problem& problem) {
  return *catalogue().variant(problem.kernel(), "opencl").variant;
}

// Plans, runs and verifies one case.
void check_right(const std::string& text, const std::string& tuning_text,
                 const Environment& env = {}) {
  const Problem problem = problem_of(text);
  const Variant& variant = variant_of(problem);
  INFO(text, " ", tuning_text, " threads=", env.threads);
  OwnedOperands operands(problem, seed, 1);
  const Tuning tuning = tuning_text.empty() ? Tuning() : parse_tuning(variant, tuning_text);
  const auto plan = variant.plan(problem, tuning, env, operands.all());
  plan->bind(operands.all());
  plan->upload();
  plan->run();
  plan->download();
  const Math& math = *find_math(problem.kernel(), math_for(problem, env.math));
  const Reference reference = compute_reference(problem, operands.all(), seed, math);
  const Verification result = verify_output(problem, operands.all(), reference, seed, math);
  CHECK_MESSAGE(result.passed(), result.reason);
}

Environment whole_device() {
  Environment env;
  env.threads = 0;
  return env;
}

// Tiles as the models choose them for CPUs with 16, 8 and 4 lanes and for GPUs, on edges of each.
struct TiledCase {
  const char* problem;
  const char* tuning;
};
constexpr TiledCase tiled_cases[] = {
    {"gemm:m=13,n=50,k=9,beta=2", "v=16,tm=8,tv=3,mt=2,nt=2,wx=1,wy=1,bk=4,pad=0,resident=0"},
    {"gemm:m=13,n=37,k=9,trans_a=1", "v=8,tm=6,tv=2,mt=8,nt=4,wx=1,wy=1,bk=8,pad=0,resident=0"},
    {"gemm:m=9,n=17,k=19,trans_b=1", "v=4,tm=4,tv=1,mt=2,nt=2,wx=4,wy=4,bk=8,pad=4,resident=1"},
    {"gemm:m=19,n=35,k=21,batch=2,trans_a=1,trans_b=1,alpha=0.5,beta=-1",
     "v=4,tm=4,tv=1,mt=1,nt=1,wx=4,wy=4,bk=16,pad=4,resident=1"},
    {"gemm:m=9,n=33,k=18,batch=2,prepack=1",
     "v=4,tm=4,tv=1,mt=2,nt=2,wx=4,wy=4,bk=8,pad=4,resident=1"},
    {"gemm:m=9,n=33,k=18,trans_b=1,prepack=1",
     "v=16,tm=8,tv=1,mt=1,nt=1,wx=1,wy=1,bk=8,pad=0,resident=0"},
    {"gemm:m=37,n=35,k=21,beta=2",
     "path=1,code_path=0,wm=1,wn=1,wk=1,lm=4,tm=4,tn=4,bk=8,stages=2,raster=2,rearranged=0,splits="
     "1"},
    {"gemm:m=70,n=66,k=50,trans_a=1,trans_b=1,batch=2",
     "path=1,code_path=0,wm=2,wn=2,wk=2,lm=8,tm=4,tn=8,bk=8,stages=4,raster=1,rearranged=1,splits="
     "3"},
    {"gemm:m=37,n=35,k=21,batch=2",
     "path=1,code_path=0,wm=1,wn=1,wk=1,lm=4,tm=4,tn=4,bk=8,stages=2,raster=2,rearranged=3,splits="
     "1"},
    {"gemm:m=37,n=67,k=45,trans_a=1,trans_b=1,prepack=1",
     "path=1,code_path=0,wm=1,wn=1,wk=1,lm=4,tm=4,tn=4,bk=8,stages=2,raster=2,rearranged=2,splits="
     "2"},
    {"gemm:m=66,n=68,k=20,trans_b=1,alpha=0.5",
     "path=1,code_path=0,wm=1,wn=2,wk=4,lm=8,tm=8,tn=4,bk=16,stages=4,raster=8,rearranged=0,"
     "splits=1"},
    {"gemm:m=3,n=70,k=300,beta=-1", "path=2,code_path=0,rows=1,warps=2,kc=128,unroll=2,splits=2"},
    {"gemm:m=130,n=7,k=262,batch=2", "path=2,code_path=0,rows=4,warps=2,kc=128,unroll=1,splits=1"},
    {"gemm:m=16,n=45,k=264,trans_b=1,prepack=1",
     "path=2,code_path=0,rows=2,warps=4,kc=128,unroll=1,splits=1"},
    {"gemm:m=132,n=5,k=264,trans_a=1,trans_b=1",
     "path=2,code_path=0,rows=1,warps=4,kc=128,unroll=4,splits=2"},
    {"softmax:rows=5,cols=67", "v=16,chunk=2,lx=1,ly=2,ry=1,form=0,splits=1,code_path=0"},
    {"softmax:rows=5,cols=67", "v=4,chunk=4,lx=4,ly=4,ry=1,form=0,splits=1,code_path=0"},
    {"softmax:rows=3,cols=67", "v=4,chunk=2,lx=16,ly=1,ry=1,form=0,splits=1,code_path=0"},
    {"softmax:rows=3,cols=5", "v=1,chunk=1,lx=2,ly=2,ry=1,form=0,splits=1,code_path=0"},
    {"softmax:rows=3,cols=67", "v=4,chunk=2,lx=1,ly=1,ry=1,form=0,splits=4,code_path=0"},
    {"softmax:rows=5,cols=67,type=bf16", "v=8,chunk=2,lx=1,ly=2,ry=1,form=0,splits=1,code_path=0"},
    {"softmax:rows=3,cols=67,type=f16", "v=4,chunk=2,lx=16,ly=1,ry=1,form=0,splits=1,code_path=0"},
    {"softmax:rows=3,cols=67,type=f16", "v=4,chunk=2,lx=1,ly=1,ry=1,form=0,splits=4,code_path=0"},
    {"softmax:rows=3,cols=5,type=bf16", "v=1,chunk=1,lx=2,ly=2,ry=1,form=0,splits=1,code_path=0"},
    {"softmax:rows=7,cols=68", "v=4,chunk=5,lx=4,ly=2,ry=2,form=1,splits=1,code_path=0"},
    {"softmax:rows=7,cols=67", "v=4,chunk=5,lx=4,ly=2,ry=2,form=1,splits=1,code_path=0"},
    {"softmax:rows=5,cols=381", "v=4,chunk=1,lx=128,ly=1,ry=1,form=1,splits=1,code_path=0"},
    {"softmax:rows=19,cols=66", "v=4,chunk=5,lx=4,ly=4,ry=1,form=1,splits=1,code_path=0"},
    {"softmax:rows=3,cols=259", "v=4,chunk=2,lx=8,ly=1,ry=2,form=1,splits=5,code_path=0"},
    {"softmax:rows=6,cols=329", "v=4,chunk=3,lx=16,ly=1,ry=1,form=1,splits=2,code_path=0"},
    {"softmax:rows=5,cols=131", "v=4,chunk=3,lx=16,ly=2,ry=1,form=1,splits=1,code_path=0"},
    {"softmax:rows=19,cols=33", "v=4,chunk=17,lx=2,ly=4,ry=1,form=2,splits=1,code_path=0"},
    {"softmax:rows=5,cols=509", "v=4,chunk=4,lx=128,ly=2,ry=1,form=2,splits=1,code_path=0"},
    {"softmax:rows=9,cols=3", "v=4,chunk=3,lx=1,ly=8,ry=1,form=2,splits=1,code_path=0"},
    {"layernorm:rows=5,cols=67", "v=16,chunk=2,lx=1,ly=2,ry=1,form=0,splits=1,code_path=0"},
    {"layernorm:rows=5,cols=67", "v=4,chunk=4,lx=4,ly=4,ry=1,form=0,splits=1,code_path=0"},
    {"layernorm:rows=3,cols=67", "v=4,chunk=2,lx=16,ly=1,ry=1,form=0,splits=1,code_path=0"},
    {"layernorm:rows=3,cols=5", "v=1,chunk=1,lx=2,ly=2,ry=1,form=0,splits=1,code_path=0"},
    {"layernorm:rows=3,cols=67", "v=4,chunk=2,lx=1,ly=1,ry=1,form=0,splits=4,code_path=0"},
    {"layernorm:rows=5,cols=67,type=f16", "v=8,chunk=2,lx=1,ly=2,ry=1,form=0,splits=1,code_path=0"},
    {"layernorm:rows=3,cols=67,type=bf16",
     "v=4,chunk=2,lx=1,ly=1,ry=1,form=0,splits=4,code_path=0"},
    {"layernorm:rows=3,cols=5,type=f16", "v=1,chunk=1,lx=2,ly=2,ry=1,form=0,splits=1,code_path=0"},
    {"layernorm:rows=7,cols=68", "v=4,chunk=5,lx=4,ly=2,ry=2,form=1,splits=1,code_path=0"},
    {"layernorm:rows=7,cols=67", "v=4,chunk=5,lx=4,ly=2,ry=2,form=1,splits=1,code_path=0"},
    {"layernorm:rows=5,cols=381", "v=4,chunk=1,lx=128,ly=1,ry=1,form=1,splits=1,code_path=0"},
    {"layernorm:rows=19,cols=66", "v=4,chunk=5,lx=4,ly=4,ry=1,form=1,splits=1,code_path=0"},
    {"layernorm:rows=3,cols=259", "v=4,chunk=2,lx=8,ly=1,ry=2,form=1,splits=5,code_path=0"},
    {"layernorm:rows=6,cols=329", "v=4,chunk=3,lx=16,ly=1,ry=1,form=1,splits=2,code_path=0"},
    {"layernorm:rows=5,cols=131", "v=4,chunk=3,lx=16,ly=2,ry=1,form=1,splits=1,code_path=0"},
    {"layernorm:rows=19,cols=33", "v=4,chunk=17,lx=2,ly=4,ry=1,form=2,splits=1,code_path=0"},
    {"layernorm:rows=5,cols=509", "v=4,chunk=4,lx=128,ly=2,ry=1,form=2,splits=1,code_path=0"},
    {"layernorm:rows=9,cols=3", "v=4,chunk=3,lx=1,ly=8,ry=1,form=2,splits=1,code_path=0"},
    {"attention:batch=1,heads=2,kv_heads=1,q_len=7,kv_len=11,head_dim=10,causal=1",
     "path=0,code_path=0,w=1,bq=8,bk=8,v=16,vq=4,tk=8,tq=2,tm=4,tv=1,pad=0,k_local=0,resident=0,"
     "splits="
     "1"},
    {"attention:batch=1,heads=2,kv_heads=1,q_len=7,kv_len=11,head_dim=10,causal=1",
     "path=0,code_path=0,w=8,bq=8,bk=8,v=4,vq=4,tk=2,tq=1,tm=4,tv=1,pad=4,k_local=1,resident=1,"
     "splits="
     "1"},
    {"attention:batch=2,heads=4,kv_heads=1,q_len=1,kv_len=21,head_dim=5,causal=0",
     "path=0,code_path=0,w=1,bq=4,bk=8,v=4,vq=4,tk=8,tq=1,tm=4,tv=1,pad=0,k_local=0,resident=0,"
     "splits="
     "2"},
    {"attention:batch=1,heads=2,q_len=3,kv_len=19,head_dim=6,causal=1",
     "path=0,code_path=0,w=4,bq=4,bk=4,v=4,vq=4,tk=4,tq=1,tm=4,tv=1,pad=4,k_local=1,resident=1,"
     "splits="
     "3"},
    // Values narrower than keys in the same local memory, a mask read by several items a row.
    {"attention:batch=1,heads=2,q_len=7,kv_len=19,head_dim=10,causal=1,v_dim=3,window=5,softcap=3,"
     "mask=1,lengths=1",
     "path=0,code_path=0,w=16,bq=8,bk=8,v=4,vq=4,tk=2,tq=1,tm=4,tv=1,pad=4,k_local=1,resident=1,"
     "splits=2"},
    {"attention:batch=1,heads=2,q_len=7,kv_len=19,head_dim=10,causal=1,v_dim=3,type=bf16",
     "path=0,code_path=0,w=16,bq=8,bk=8,v=4,vq=4,tk=2,tq=1,tm=4,tv=1,pad=4,k_local=1,resident=1,"
     "splits=2"},
    {"attention:batch=1,heads=2,kv_heads=1,q_len=7,kv_len=11,head_dim=10,causal=1,type=f16",
     "path=0,code_path=0,w=1,bq=8,bk=8,v=16,vq=4,tk=8,tq=2,tm=4,tv=1,pad=0,k_local=0,resident=0,"
     "splits=1"},
    // The kernels of NVIDIA's code path in portable form: warps of items, parts of tiles, merging.
    {"attention:batch=1,heads=4,kv_heads=2,q_len=21,kv_len=45,head_dim=20,causal=1",
     "path=1,code_path=0,w=32,bq=32,bk=32,tm=8,cd=8,cn=16,stages=3,unroll=8,splits=2"},
    {"attention:batch=2,heads=2,q_len=35,kv_len=30,head_dim=21,causal=0",
     "path=1,code_path=0,w=32,bq=16,bk=32,tm=4,cd=24,cn=32,stages=2,unroll=4,splits=1"},
    {"attention:batch=1,heads=4,kv_heads=2,q_len=2,kv_len=61,head_dim=10,causal=1",
     "path=2,code_path=0,w=32,lanes=4,nb=2,stages=3,splits=3,fused=0"},
    {"attention:batch=1,heads=1,q_len=70,kv_len=75,head_dim=20,causal=1",
     "path=1,code_path=0,w=32,bq=32,bk=32,tm=8,cd=16,cn=16,stages=2,unroll=16,splits=1"},
    {"attention:batch=1,heads=4,kv_heads=2,q_len=2,kv_len=61,head_dim=10,causal=1",
     "path=2,code_path=0,w=32,lanes=4,nb=2,stages=2,splits=3,fused=0"},
    {"attention:batch=1,heads=4,kv_heads=2,q_len=2,kv_len=61,head_dim=10,causal=1,window=37,mask=1",
     "path=2,code_path=0,w=32,lanes=4,nb=2,stages=2,splits=3,fused=0"},
};

void check_small_shapes(std::span<const TiledCase> cases, const Environment& env = {}) {
  test::Part part;
  for (const TiledCase& c : cases) {
    if (part.takes()) check_right(c.problem, c.tuning, env);
  }
}

}  // namespace

TEST_CASE("small shapes are right with the tilings of CPUs and of GPUs") {
  if (!has_device()) return;
  check_small_shapes(tiled_cases);
}

TEST_CASE("rows with NaN and infinities come out as in NumPy whatever way they are read") {
  if (!has_device()) return;
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const char* kernel : {"softmax", "layernorm"}) {
    for (const char* tuning : {"v=4,chunk=5,lx=4,ly=2,ry=1,form=1,splits=1,code_path=0",
                               "v=4,chunk=2,lx=4,ly=1,ry=1,form=1,splits=3,code_path=0",
                               "v=4,chunk=17,lx=4,ly=4,ry=1,form=2,splits=1,code_path=0"}) {
      const Problem problem = problem_of(std::string(kernel) + ":rows=8,cols=67");
      const Variant& variant = variant_of(problem);
      INFO(kernel, " ", tuning);
      OwnedOperands operands(problem, seed, 1);
      float* x = operands.all().at("x").f32();
      x[0 * 67 + 66] = std::nanf("");
      x[2 * 67 + 1] = infinity;
      x[3 * 67 + 40] = -infinity;
      for (int j = 0; j < 67; ++j) x[5 * 67 + j] = -infinity;
      for (int j = 0; j < 60; ++j) x[6 * 67 + j] = -infinity;
      const auto plan = variant.plan(problem, parse_tuning(variant, tuning), {}, operands.all());
      plan->bind(operands.all());
      plan->upload();
      for (int run = 0; run < 2; ++run) {
        operands.poison_output();
        plan->run();
        plan->download();
        const Reference reference = compute_reference(problem, operands.all(), seed);
        const Verification result = verify_output(problem, operands.all(), reference, seed);
        CHECK_MESSAGE(result.passed(), result.reason);
      }
    }
  }
}

TEST_CASE("LayerNorm on a device keeps its digits at mean 1e4 and variance 1") {
  if (!has_device()) return;
  for (const char* tuning : {"v=4,chunk=4,lx=64,ly=1,ry=1,form=1,splits=1,code_path=0",
                             "v=4,chunk=4,lx=32,ly=1,ry=1,form=1,splits=3,code_path=0",
                             "v=4,chunk=32,lx=32,ly=4,ry=1,form=2,splits=1,code_path=0"}) {
    const Problem problem = problem_of("layernorm:rows=3,cols=1021");
    const Variant& variant = variant_of(problem);
    INFO(tuning);
    OwnedOperands operands(problem, seed, 1);
    float* x = operands.all().at("x").f32();
    for (int i = 0; i < 3 * 1021; ++i) x[i] = 1e4f + 1.7f * x[i];
    const auto plan = variant.plan(problem, parse_tuning(variant, tuning), {}, operands.all());
    plan->bind(operands.all());
    plan->upload();
    plan->run();
    plan->download();
    const float* gamma = operands.all().at("gamma").f32();
    const float* beta = operands.all().at("beta").f32();
    double worst = 0;
    for (int r = 0; r < 3; ++r) {
      const float* row = x + r * 1021;
      double sum = 0, squares = 0;
      for (int j = 0; j < 1021; ++j) sum += row[j];
      for (int j = 0; j < 1021; ++j) squares += std::pow(row[j] - sum / 1021, 2);
      const double sigma = std::sqrt(squares / 1021 + 1e-5);
      for (int j = 0; j < 1021; ++j) {
        const double scaled = (row[j] - sum / 1021) / sigma * gamma[j];
        const double error = std::abs(operands.output().f32()[r * 1021 + j] - (scaled + beta[j]));
        worst = std::max(worst, error / (std::abs(scaled) + std::abs(beta[j]) + 1));
      }
    }
    // The bound's allowance for |mean| alone would be 10⁴ of these.
    CHECK(worst < 4 * 0x1p-24);
  }
}

TEST_CASE("small shapes are right under math 3xtf32, in every direction and with shares of k") {
  if (!has_device()) return;
  Environment env = whole_device();
  env.math = "3xtf32";
  constexpr TiledCase cases[] = {
      // Rows along k and across it, as they are or rearranged, split at once or as they are loaded.
      {"gemm:m=35,n=37,k=19", "code_path=0,wm=1,wn=1,mt=2,nt=4,packed=0,splits=1"},
      {"gemm:m=35,n=40,k=44", "code_path=0,wm=1,wn=1,mt=2,nt=4,packed=0,splits=1"},
      {"gemm:m=20,n=40,k=36,trans_a=1,trans_b=1,beta=2",
       "code_path=0,wm=2,wn=2,mt=2,nt=4,stages=2,packed=0,raster=1,splits=1"},
      {"gemm:m=34,n=34,k=140,trans_b=1,batch=2,alpha=0.5",
       "code_path=0,wm=1,wn=2,mt=2,nt=4,stages=2,packed=0,raster=2,splits=3"},
      {"gemm:m=37,n=70,k=21,trans_a=1,batch=2",
       "code_path=0,wm=1,wn=2,mt=2,nt=4,stages=2,packed=1,splits=2"},
      {"gemm:m=33,n=30,k=19,trans_b=1,prepack=1",
       "code_path=0,wm=2,wn=1,mt=1,nt=4,stages=2,packed=1,splits=1"},
      {"gemm:m=20,n=72,k=70,trans_a=1,prepack=1",
       "code_path=0,wm=1,wn=1,mt=4,nt=8,stages=3,packed=0,splits=1"},
      {"attention:batch=2,heads=2,kv_heads=1,q_len=21,kv_len=45,head_dim=20,causal=1",
       "code_path=0,warps=2,mt=1,bk=32"},
      {"attention:batch=1,heads=1,q_len=34,kv_len=70,head_dim=33,causal=0",
       "code_path=0,warps=1,mt=2,bk=64"},
      {"attention:batch=1,heads=3,kv_heads=1,q_len=30,kv_len=17,head_dim=46,causal=1",
       "code_path=0,warps=1,mt=1,bk=32"}};
  check_small_shapes(cases, env);
}

TEST_CASE("small shapes of attention are right under maths f16 and bf16") {
  if (!has_device()) return;
  for (const char* type : {"f16", "bf16"}) {
    Environment env = whole_device();
    env.math = type;
    const std::string tail = std::string(",type=") + type;
    // Rows of 16, 8, 4 and 2 bytes' alignment; queries in registers and, of 240 columns, not; a
    // ring of one, two and three tiles; a negative scale; rows that see nothing.
    const std::string shapes[] = {
        "attention:batch=2,heads=2,kv_heads=1,q_len=21,kv_len=45,head_dim=40,causal=1" + tail,
        "attention:batch=1,heads=1,q_len=34,kv_len=150,head_dim=20,causal=0,scale=-0.4" + tail,
        "attention:batch=1,heads=3,kv_heads=1,q_len=30,kv_len=17,head_dim=46,causal=1" + tail,
        "attention:batch=1,heads=2,q_len=18,kv_len=100,head_dim=33,causal=1" + tail,
        "attention:batch=1,heads=1,q_len=20,kv_len=70,head_dim=240,causal=0" + tail};
    const TiledCase cases[] = {{shapes[0].c_str(), "code_path=0,warps=2,mt=1,bk=32,stages=1"},
                               {shapes[1].c_str(), "code_path=0,warps=1,mt=2,bk=64,stages=2"},
                               {shapes[2].c_str(), "code_path=0,warps=1,mt=1,bk=32,stages=2"},
                               {shapes[3].c_str(), "code_path=0,warps=1,mt=2,bk=32,stages=3"},
                               {shapes[4].c_str(), "code_path=0,warps=1,mt=1,bk=32,stages=1"}};
    check_small_shapes(cases, env);
  }
}

TEST_CASE("attention by wgmma is right at any size of rows, keys and heads") {
  if (!has_device()) return;
  if (!test::require_or_skip(opencl::features(0).wgmma, "no device with wgmma", "")) return;
  for (const char* type : {"f16", "bf16"}) {
    Environment env = whole_device();
    env.math = type;
    const std::string tail = std::string(",type=") + type;
    // One tile and many, a ring of two places, blocks of 64 columns that are not full, rows that
    // see nothing, several blocks a group.
    const std::string shapes[] = {
        "attention:batch=2,heads=6,kv_heads=2,q_len=170,kv_len=290,head_dim=72,causal=1" + tail,
        "attention:batch=1,heads=1,q_len=65,kv_len=100,head_dim=8,causal=0" + tail,
        "attention:batch=1,heads=2,q_len=500,kv_len=130,head_dim=96,causal=1" + tail,
        "attention:batch=1,heads=3,q_len=200,kv_len=300,head_dim=256,causal=0" + tail,
        "attention:batch=4,heads=40,q_len=257,kv_len=333,head_dim=64,causal=1" + tail,
        "attention:batch=1,heads=4,kv_heads=1,q_len=300,kv_len=1000,head_dim=128,causal=1" + tail};
    const TiledCase cases[] = {{shapes[0].c_str(), "path=4,warps=8,bk=64,stages=2"},
                               {shapes[1].c_str(), "path=4,warps=4,bk=16,stages=2"},
                               {shapes[2].c_str(), "path=4,warps=12,bk=80,stages=3"},
                               {shapes[3].c_str(), "path=4,warps=8,bk=64,stages=2"},
                               {shapes[4].c_str(), "path=4,warps=8,bk=208,stages=3"},
                               {shapes[5].c_str(), "path=4,warps=8,bk=160,stages=3"}};
    check_small_shapes(cases, env);
  }
}

TEST_CASE("attention under maths f16 and bf16 hides values that a query does not see") {
  if (!has_device()) return;
  const Tuning no_wgmma = {{"path", 3}, {"code_path", 0}, {"warps", 1},
                           {"mt", 1},   {"bk", 32},       {"stages", 2}};
  const Tuning wgmma = {{"path", 4}, {"warps", 8}, {"bk", 32}, {"stages", 2}};
  const bool has_wgmma = opencl::features(0).wgmma;
  for (const auto& [type, tuning] :
       {std::pair("f16", no_wgmma), {"bf16", no_wgmma}, {"f16", wgmma}, {"bf16", wgmma}}) {
    if (tuning.get("path", 3) == 4 && !has_wgmma) continue;
    const Problem problem = problem_of(
        std::string("attention:batch=1,heads=2,q_len=40,kv_len=40,head_dim=24,causal=1,type=") +
        type);
    Environment env = whole_device();
    env.math = type;
    OwnedOperands operands(problem, seed, 1);
    const auto of = [&](const char* tensor, int row) {
      return static_cast<std::uint16_t*>(operands.all().at(tensor).data) + row * 24;
    };
    const bool is_half = std::string(type) == "f16";
    of("v", 15)[7] = is_half ? 0x7C00 : 0x7F80;                    // infinite
    of("v", 30)[2] = is_half ? 0x7E00 : 0x7FC0;                    // not a number
    std::fill_n(of("v", 40), 40 * 24, is_half ? 0x7BFF : 0x7F7F);  // the largest of the format
    const Math& math = *find_math(problem.kernel(), type);
    const Reference reference = compute_reference(problem, operands.all(), seed, math);
    const auto plan = variant_of(problem).plan(problem, tuning, env, operands.all());
    plan->bind(operands.all());
    plan->upload();
    plan->run();
    plan->download();
    const Verification result = verify_output(problem, operands.all(), reference, seed, math);
    CHECK_MESSAGE(result.passed(), result.reason);
    CHECK((of("o", 14)[7] & 0x7FFF) < (is_half ? 0x7C00 : 0x7F80));   // finite
    CHECK((of("o", 15)[7] & 0x7FFF) == (is_half ? 0x7C00 : 0x7F80));  // infinite
  }
}

TEST_CASE("attention under math 3xtf32 makes of special, huge and tiny values what float32 does") {
  if (!has_device()) return;
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const Problem problem =
      problem_of("attention:batch=1,heads=2,q_len=40,kv_len=40,head_dim=24,causal=1");
  struct Change {
    const char* what;
    const char* tensor;
    int row, column;
    float value;
  };
  // Keys and values are seen by the rows from theirs on; the second head stays as it is.
  for (const Change& change : {Change{"a query that float32 cannot multiply", "q", 3, 2, 3e38F},
                               {"an infinite query", "q", 9, 0, -infinity},
                               {"an infinite key", "k", 20, 5, infinity},
                               {"a key without a split form", "k", 20, 5, 2e36F},
                               {"a key that is not a number", "k", 30, 23, NAN},
                               {"an infinite value", "v", 15, 7, infinity},
                               {"a huge value", "v", 0, 7, 2e38F},
                               {"a subnormal value", "v", 0, 7, 3e-42F}}) {
    INFO(change.what);
    OwnedOperands operands(problem, seed, 1);
    operands.all().at(change.tensor).f32()[change.row * 24 + change.column] = change.value;
    if (change.value == 3e-42F) {  // alone in its column, so that nothing else hides it
      for (int key = 1; key < 40; ++key) operands.all().at("v").f32()[key * 24 + 7] = 0;
    }
    std::vector<float> results[2];
    for (const int split : {0, 1}) {
      Environment env = whole_device();
      env.math = split == 1 ? "3xtf32" : "fp32";
      const Tuning tuning =
          split == 1 ? Tuning{{"code_path", 0}, {"warps", 1}, {"mt", 1}, {"bk", 32}} : Tuning{};
      const auto plan = variant_of(problem).plan(problem, tuning, env, operands.all());
      plan->bind(operands.all());
      plan->upload();
      plan->run();
      plan->download();
      const float* o = operands.output().f32();
      results[split].assign(o, o + 2 * 40 * 24);
    }
    int special = 0;
    for (std::size_t i = 0; i < results[0].size(); ++i) {
      const float strict = results[0][i];
      const float split = results[1][i];
      INFO("element ", i, ": ", strict, " and ", split);
      special += !std::isfinite(strict);
      if (std::isfinite(strict)) {
        const bool is_tiny = change.value == 3e-42F && i < 40 * 24 && i % 24 == 7;
        const float scale = std::max(std::abs(strict), is_tiny ? 1e-42F : 1.0F);
        CHECK(std::abs(split - strict) <= 1e-5F * scale + 2e-45F);
      } else {
        CHECK(std::isnan(split) == std::isnan(strict));
        CHECK(std::isinf(split) == std::isinf(strict));
      }
    }
    if (!std::isfinite(change.value)) CHECK(special > 0);
  }
}

TEST_CASE("every tiling of the search space is right") {
  if (!has_device()) return;
  test::Part part;
  const auto check_all = [&](std::initializer_list<const char*> problems, const Environment& env) {
    for (const char* text : problems) {
      const Problem problem = problem_of(text);
      for (const Tuning& tuning : variant_of(problem).tunings(problem, env)) {
        if (part.takes()) check_right(text, tuning.text(), env);
      }
    }
  };
  check_all({"gemm:m=130,n=100,k=70", "softmax:rows=5,cols=3000", "layernorm:rows=5,cols=3000",
             "attention:batch=1,heads=2,q_len=70,kv_len=90,head_dim=40,causal=1"},
            {});
  Environment env = whole_device();
  env.math = "3xtf32";
  check_all({"attention:batch=1,heads=2,q_len=70,kv_len=90,head_dim=40,causal=1",
             "attention:batch=1,heads=1,q_len=5,kv_len=0,head_dim=8,causal=0"},
            env);
}

TEST_CASE("a device that does not exist is refused with its number and how many there are") {
  const int count = static_cast<int>(opencl::devices().size());
  for (const int index : {-1, count, 1000}) {
    try {
      opencl::device(index);
      FAIL("device ", index, " exists");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::unavailable);
      CHECK(std::string(error.what()).find(std::to_string(index)) != std::string::npos);
    }
  }
  for (int index = 0; index < count; ++index) CHECK(opencl::device(index).index == index);
}

TEST_CASE("devices tell their sizes, GPUs first") {
  if (!has_device()) return;
  const auto& all = opencl::devices();
  for (std::size_t i = 0; i < all.size(); ++i) {
    CHECK_FALSE(all[i].name.empty());
    CHECK(all[i].compute_units > 0);
    CHECK(all[i].global_bytes >= all[i].max_buffer_bytes);
    CHECK(all[i].local_bytes >= 16 * 1024);
    if (i > 0) CHECK(all[i - 1].kind <= all[i].kind);
  }
}

TEST_CASE("threads become a sub-device on CPUs, too many are refused") {
  if (!has_device()) return;
  const opencl::DeviceInfo& info = opencl::device(0);
  CHECK_FALSE(opencl::unsupported_threads(info, 0));
  CHECK_FALSE(opencl::unsupported_threads(info, info.compute_units));
  if (info.kind != opencl::DeviceKind::cpu) {
    test::skip_part("OpenCL device 0 is no CPU", "");
    return;
  }
  CHECK(opencl::unsupported_threads(info, info.compute_units + 1));
  CHECK(opencl::Context::open(0, 0)->compute_units() == info.compute_units);
  if (!info.splits_by_counts || info.compute_units < 2) {
    test::skip_part("OpenCL device 0 cannot be split", "");
    return;
  }
  CHECK(opencl::Context::open(0, 1)->compute_units() == 1);
  CHECK_THROWS_AS(opencl::Context::open(0, info.compute_units + 1), Error);
  opencl::DeviceInfo whole_only = info;
  whole_only.splits_by_counts = false;
  CHECK(opencl::unsupported_threads(whole_only, 1));
}

TEST_CASE("a program that does not build shows the compiler's words") {
  if (!has_device()) return;
  const auto context = opencl::Context::open(0, 0);
  try {
    context->program("__kernel void f() { undeclared_name = 1; }", "");
    FAIL("it built");
  } catch (const BuildError& error) {
    CHECK(std::string(error.what()).find("undeclared_name") != std::string::npos);
  }
}

TEST_CASE("a program is built once per source and options") {
  if (!has_device()) return;
  const auto context = opencl::Context::open(0, 0);
  CHECK(context == opencl::Context::open(0, 0));
  const char* source = "__kernel void f(__global int* x) { *x = N; }";
  cl_program first = context->program(source, "-DN=1");
  CHECK(first == context->program(source, "-DN=1"));
  CHECK(first != context->program(source, "-DN=2"));
}

TEST_CASE("a buffer that the device cannot hold is an error that says so") {
  if (!has_device()) return;
  const auto context = opencl::Context::open(0, 0);
  const std::size_t bytes = std::numeric_limits<std::size_t>::max() / 4;
  CHECK_THROWS(opencl::DeviceBuffer(*context, bytes));
  const Problem problem = problem_of("softmax:rows=1000000,cols=1000000");
  const auto reason = refusal(variant_of(problem), problem, whole_device());
  REQUIRE(reason);
  CHECK(reason->find("4000000000000 bytes") != std::string::npos);
}

TEST_CASE("a math other than fp32 and a missing device are reasons, not crashes") {
  const Problem problem = problem_of("softmax:rows=2,cols=2");
  Environment env = whole_device();
  env.device = 1000;
  CHECK(refusal(variant_of(problem), problem, env));
  if (!has_device()) return;
  env.device = 0;
  for (const char* math : {"bf16", "3xtf32"}) {
    env.math = math;
    const auto reason = refusal(variant_of(problem), problem, env);
    REQUIRE(reason);
    CHECK(reason->find(std::string("math ") + math) != std::string::npos);
  }
}

TEST_CASE("a tiling that does not fit the device is refused with the limits") {
  if (!has_device()) return;
  struct Misfit {
    const char* text;
    Tuning tuning;
  };
  const std::vector<Misfit> misfits = {
      {"gemm:m=8,n=8,k=8", {{"path", 0}, {"v", 3}}},
      {"gemm:m=8,n=8,k=8",
       {{"path", 0}, {"wx", 64}, {"wy", 64}, {"mt", 32}, {"nt", 32}, {"bk", 1024}}},
      {"softmax:rows=2,cols=8", {{"lx", 3}}},
      {"layernorm:rows=2,cols=8", {{"lx", 1024}, {"ly", 64}}},
      {"softmax:rows=2,cols=8", {{"v", 4}, {"form", 1}, {"chunk", 1}, {"lx", 1}}},
      {"softmax:rows=2,cols=8", {{"v", 4}, {"form", 2}, {"chunk", 10}, {"lx", 1}, {"ly", 4}}},
      {"softmax:rows=2,cols=8", {{"v", 4}, {"form", 2}, {"chunk", 8}, {"lx", 1}, {"ly", 2}}},
      {"softmax:rows=2,cols=8", {{"splits", 2}, {"ly", 2}}},
      {"layernorm:rows=2,cols=8", {{"v", 8}, {"form", 1}}},
      {"attention:batch=1,heads=1,q_len=8,kv_len=8,head_dim=8,causal=0",
       {{"path", 0}, {"code_path", 0}, {"bq", 7}, {"vq", 4}}},
      {"attention:batch=1,heads=1,q_len=8,kv_len=8,head_dim=8,causal=0",
       {{"path", 1}, {"w", 32}, {"bq", 32}, {"bk", 32}, {"tm", 8}, {"cn", 5}, {"stages", 2}}},
      {"attention:batch=1,heads=1,q_len=8,kv_len=8,head_dim=8,causal=0",
       {{"path", 1},
        {"w", 32},
        {"bq", 32},
        {"bk", 48},
        {"tm", 4},
        {"cd", 8},
        {"cn", 16},
        {"unroll", 8},
        {"stages", 2}}},
      {"attention:batch=1,heads=1,q_len=9,kv_len=8,head_dim=8,causal=0",
       {{"path", 2}, {"w", 32}, {"lanes", 4}, {"nb", 1}, {"stages", 2}}},
      {"attention:batch=1,heads=1,q_len=8,kv_len=8,head_dim=8,causal=0",
       {{"path", 2}, {"w", 32}, {"lanes", 3}, {"nb", 1}, {"stages", 2}}},
      {"attention:batch=1,heads=1,q_len=8,kv_len=8,head_dim=8,causal=0",
       {{"path", 0}, {"code_path", 1}}},
      {"attention:batch=1,heads=1,q_len=8,kv_len=8,head_dim=8,causal=0",
       {{"path", 2},
        {"w", 32},
        {"lanes", 4},
        {"nb", 1},
        {"stages", 2},
        {"code_path", 0},
        {"fused", 1}}},
  };
  for (const auto& misfit : misfits) {
    const char* text = misfit.text;
    const Tuning& tuning = misfit.tuning;
    const Problem problem = problem_of(text);
    OwnedOperands operands(problem, seed, 1);
    INFO(text, " ", tuning.text());
    CHECK_THROWS_AS(variant_of(problem).plan(problem, tuning, whole_device(), operands.all()),
                    Error);
  }
}

TEST_CASE("a head_dim too long for local memory is unsupported, 256 is not") {
  if (!has_device()) return;
  const std::string shape = "attention:batch=1,heads=1,q_len=4,kv_len=4,causal=0,head_dim=";
  const Problem longest = problem_of(shape + "1000000");
  const auto reason = refusal(variant_of(longest), longest, whole_device());
  REQUIRE(reason);
  CHECK(reason->find("head_dim 1000000") != std::string::npos);
  const Problem usual = problem_of(shape + "256");
  CHECK_FALSE(refusal(variant_of(usual), usual, whole_device()));
}

TEST_CASE("device times come with the device timer on a CPU, always on other devices") {
  if (!has_device()) return;
  const bool is_cpu = opencl::device(0).kind == opencl::DeviceKind::cpu;
  const Problem problem = problem_of("softmax:rows=64,cols=500");
  for (const bool timer : {false, true}) {
    Environment env = whole_device();
    env.device_timer = timer;
    OwnedOperands operands(problem, seed, 1);
    const auto plan = variant_of(problem).plan(problem, {}, env, operands.all());
    plan->bind(operands.all());
    plan->upload();
    for (int i = 0; i < 40; ++i) plan->run();  // more launches than a run may remember events
    plan->download();
    const auto times = plan->device_times();
    REQUIRE(times.has_value() == (timer || !is_cpu));
    if (!times) continue;
    CHECK(times->on_cpu == is_cpu);
    CHECK(times->h2d_ns > 0);
    CHECK(times->kernel_ns > 0);
    CHECK(times->d2h_ns > 0);
    // More runs than are queued at once; a single one; and a run by itself still has its times.
    CHECK(plan->time_device_runs(300).value() > 0);
    CHECK(plan->time_device_runs(1).value() > 0);
    plan->run();
    CHECK(plan->device_times()->kernel_ns > 0);
  }
}

TEST_CASE("facts name device, driver, the whole tuning and the memory beyond the copies") {
  if (!has_device()) return;
  const Problem problem = problem_of("gemm:m=20,n=30,k=40,prepack=1");
  OwnedOperands operands(problem, seed, 1);
  const auto plan = variant_of(problem).plan(problem, {}, whole_device(), operands.all());
  const PlanFacts facts = plan->facts();
  CHECK(facts.device == opencl::device(0).name);
  CHECK(facts.driver == opencl::device(0).driver);
  CHECK(facts.tuning == variant_of(problem).tunings(problem, whole_device()).front());
  CHECK(facts.workspace_bytes == 0);
  CHECK(facts.packed_bytes >= 4 * 30 * 40);
}

TEST_CASE("rows that are all the same memory are copied as many") {
  if (!has_device()) return;
  const Problem problem = problem_of("softmax:rows=6,cols=33");
  OwnedOperands operands(problem, seed, 1);
  Operands bound = operands.all();
  View x = bound.at("x");
  x.strides[0] = 0;
  bound.set("x", x);
  const auto plan = variant_of(problem).plan(problem, {}, whole_device(), bound);
  plan->bind(bound);
  plan->upload();
  plan->run();
  plan->download();
  const Reference reference = compute_reference(problem, bound, seed);
  const Verification result = verify_output(problem, bound, reference, seed);
  CHECK_MESSAGE(result.passed(), result.reason);
}

TEST_CASE("plans of two threads share a device without disturbing each other") {
  if (!has_device()) return;
  std::atomic<int> wrong{0};
  std::vector<std::thread> users;
  for (const char* text : {"gemm:m=65,n=67,k=130",
                           "attention:batch=1,heads=2,q_len=40,kv_len=70,head_dim=48,causal=1"}) {
    users.emplace_back([&wrong, text] {
      const Problem problem = problem_of(text);
      OwnedOperands operands(problem, seed, 1);
      const Reference reference = compute_reference(problem, operands.all(), seed);
      for (int i = 0; i < 10; ++i) {
        const auto plan = variant_of(problem).plan(problem, {}, whole_device(), operands.all());
        operands.poison_output();
        plan->bind(operands.all());
        plan->upload();
        plan->run();
        plan->download();
        wrong += !verify_output(problem, operands.all(), reference, seed).passed();
      }
    });
  }
  for (std::thread& user : users) user.join();
  CHECK(wrong == 0);
}

TEST_CASE("a device's ceilings carry its name and rise in footprint") {
  if (!has_device()) return;
  const opencl::DeviceInfo& info = opencl::device(0);
  const int threads = info.kind == opencl::DeviceKind::cpu ? info.compute_units : 0;
  Ceilings ceilings;
  opencl::measure_ceilings(0, threads, 0, std::size_t{64} << 20, ceilings);
  // A GPU with matrix units has a peak for each of their formats beside float32's.
  REQUIRE(!ceilings.fma.empty());
  CHECK((info.kind != opencl::DeviceKind::cpu || ceilings.fma.size() == 1));
  for (const auto& peak : ceilings.fma) {
    CHECK(peak.device == info.name);
    CHECK(peak.threads == threads);
    CHECK(peak.gflops > 0);
  }
  REQUIRE(ceilings.bandwidth.size() == 1);
  const BandwidthCurve& curve = ceilings.bandwidth[0];
  CHECK(curve.device == info.name);
  REQUIRE(curve.points.size() >= 10);
  for (std::size_t i = 0; i < curve.points.size(); ++i) {
    const BandwidthPoint& point = curve.points[i];
    CHECK(point.read_gb_s > 0);
    CHECK(point.write_gb_s > 0);
    CHECK(point.copy_gb_s > 0);
    if (i > 0) CHECK(point.footprint_bytes > curve.points[i - 1].footprint_bytes);
  }
  REQUIRE(ceilings.transfer.size() == 1);
  CHECK(ceilings.transfer[0].h2d_gb_s > 0);
  CHECK(ceilings.transfer[0].d2h_gb_s > 0);
}
