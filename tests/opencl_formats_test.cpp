// GEMM's number formats, gate and epilogues on OpenCL devices: each way of opencl (kernels/gemm/
// opencl_paths.hpp) on edges of its tiles, with matrix units played lane by lane where the
// device has none. All shapes and layouts at the default tuning: conformance_test.cpp.
#include <doctest/doctest.h>

#include <string>

#include "backends/opencl.hpp"
#include "backends/opencl_drivers.hpp"
#include "backends/opencl_features.hpp"
#include "core/catalogue.hpp"
#include "core/error.hpp"
#include "measure/verify.hpp"
#include "opencl_device.hpp"
#include "skip.hpp"

using namespace rooflane;
using test::has_device;

namespace {

constexpr std::uint64_t seed = 5;

const Catalogue& catalogue() {
  static const Catalogue built_in = Catalogue::built_in();
  return built_in;
}

struct Case {
  const char* math;
  const char* problem;
  const char* tuning;
};

// Where a device has matrix units, they are checked: playing them lane by lane checks nothing there
// that a CPU device does not, and its compiler takes seconds for each program.
std::string tuning_on_device(const char* tuning) {
  std::string text = tuning;
  if (text.starts_with("path=3,code_path=0") && opencl::features(0).mma_tf32) {
    text[text.find("code_path=0") + 10] = '1';
  }
  return text;
}

// What the plan was told, for further looks.
PlanFacts check_right(const Case& c) {
  const Problem problem = parse_problem(c.problem, catalogue().kernels());
  const Variant& variant = *catalogue().variant(problem.kernel(), "opencl").variant;
  const std::string tuning = tuning_on_device(c.tuning);
  INFO(std::string(c.problem), " math=", std::string(c.math), " ", tuning);
  Environment env;
  env.threads = 0;
  env.math = c.math;
  OwnedOperands operands(problem, seed, 1);
  const auto plan = variant.plan(problem, parse_tuning(variant, tuning), env, operands.all());
  plan->bind(operands.all());
  plan->upload();
  operands.poison_output();
  plan->run();
  plan->download();
  const Math& math = *find_math(problem.kernel(), env.math);
  const Reference reference = compute_reference(problem, operands.all(), seed, math);
  const Verification result = verify_output(problem, operands.all(), reference, seed, math);
  CHECK_MESSAGE(result.passed(), result.reason);
  return plan->facts();
}

std::optional<std::string> defect(const Case& c) {
  const Problem problem = parse_problem(c.problem, catalogue().kernels());
  const Variant& variant = *catalogue().variant(problem.kernel(), "opencl").variant;
  Environment env;
  env.threads = 0;
  env.math = c.math;
  try {
    variant.plan(problem, parse_tuning(variant, c.tuning), env,
                 OwnedOperands(problem, seed, 1).all());
  } catch (const Error& error) {
    return error.what();
  }
  return std::nullopt;
}

constexpr const char* units = "path=3,code_path=0,wm=1,wn=2,mt=2,nt=4,stages=2,raster=2,splits=1";
constexpr const char* shared = "path=3,code_path=0,wm=2,wn=1,mt=2,nt=8,stages=3,raster=1,splits=2";
constexpr const char* wide = "path=3,code_path=0,wm=1,wn=1,mt=4,nt=8,stages=2,raster=8,splits=1";
constexpr const char* streams = "path=2,code_path=0,warps=2,stages=2,splits=1";
constexpr const char* streams_shared = "path=2,code_path=0,warps=1,stages=3,splits=3";
constexpr const char* tensor = "path=3,code_path=0,wm=1,wn=1,mt=2,nt=4,stages=2,packed=0,splits=1";
constexpr const char* tensor_shared =
    "path=3,code_path=0,wm=1,wn=2,mt=2,nt=4,stages=2,packed=1,splits=2";
constexpr const char* wgmma = "path=7,wm=8,mt=1,nt=32,stages=3,raster=8,splits=1";
constexpr const char* wgmma_pair = "path=7,wm=4,mt=2,nt=12,stages=4,raster=3,splits=1";
constexpr const char* wgmma_shared = "path=7,wm=8,mt=1,nt=16,stages=3,raster=2,splits=3";
constexpr const char* small_tile =
    "path=0,v=4,tm=4,tv=1,mt=1,nt=1,wx=4,wy=4,bk=16,pad=4,resident=1";
constexpr const char* cpu_tile = "path=0,v=8,tm=6,tv=2,mt=2,nt=2,wx=1,wy=1,bk=8,pad=0,resident=0";

}  // namespace

TEST_CASE("matrix units multiply f16, bf16 and 8-bit integers of any size and layout") {
  if (!has_device()) return;
  for (const Case& c :
       {// Rows along k that are a whole number of copies, and such that are not.
        Case{"f16", "gemm:m=37,n=41,k=72,a_type=b_type=f16,trans_b=1", units},
        {"bf16", "gemm:m=33,n=66,k=65,a_type=b_type=bf16,trans_b=1,c_type=bf16", units},
        // Rows across k, read as they are or with a new layout.
        {"f16", "gemm:m=72,n=80,k=30,a_type=b_type=f16,trans_a=1", wide},
        {"bf16", "gemm:m=70,n=50,k=30,a_type=b_type=bf16,trans_a=1,batch=2", wide},
        // Shares of k; one of them is empty.
        {"f16", "gemm:m=35,n=36,k=40,a_type=b_type=f16,trans_b=1,beta=-0.5,alpha=2", shared},
        {"f16", "gemm:m=5,n=7,k=200,a_type=b_type=f16,c_type=f16,prepack=1", shared},
        {"int8", "gemm:m=37,n=41,k=300,a_type=u8,b_type=s8,c_type=s32", shared},
        {"int8", "gemm:m=20,n=35,k=160,a_type=s8,b_type=s8,c_type=s32,trans_b=1", units},
        {"f16", "gemm:m=4,n=5,k=0,a_type=b_type=f16,beta=1", units}}) {
    const std::string path = check_right(c).path;
    CHECK(path.starts_with(opencl::features(0).mma_tf32 ? "mma.m16n8k" : "mma emulated"));
  }
}

TEST_CASE("wgmma multiplies f16, bf16 and 8-bit integers of any size and layout") {
  if (!has_device()) return;
  if (!test::require_or_skip(opencl::features(0).wgmma, "no device with wgmma", "")) return;
  for (const Case& c :
       {// Results by boxes and item by item (rows of c that are a multiple of 16 bytes or not).
        Case{"f16", "gemm:m=300,n=520,k=808,a_type=b_type=c_type=f16,trans_b=1,batch=3", wgmma},
        {"f16", "gemm:m=301,n=519,k=808,a_type=b_type=f16,trans_b=1", wgmma},
        {"bf16", "gemm:m=140,n=200,k=72,a_type=b_type=c_type=bf16,trans_b=1", wgmma_pair},
        // Rows across k, and such that are laid out first.
        {"f16", "gemm:m=136,n=264,k=200,a_type=b_type=f16,trans_a=1", wgmma},
        {"bf16", "gemm:m=70,n=50,k=30,a_type=b_type=bf16,trans_a=1,batch=2,prepack=1", wgmma_pair},
        // Shares of k; one of them is empty.
        {"f16", "gemm:m=300,n=260,k=1000,a_type=b_type=f16,trans_b=1,beta=-0.5,alpha=2",
         wgmma_shared},
        {"bf16", "gemm:m=35,n=36,k=40,a_type=b_type=bf16,c_type=f16", wgmma_shared},
        {"int8", "gemm:m=137,n=441,k=300,a_type=u8,b_type=s8,c_type=s32", wgmma},
        {"int8", "gemm:m=220,n=136,k=160,a_type=s8,b_type=s8,c_type=s32,trans_b=1", wgmma_shared},
        {"f16", "gemm:m=4,n=5,k=0,a_type=b_type=f16,beta=1", wgmma},
        // What follows the product.
        {"f16", "gemm:m=180,n=336,k=40,a_type=b_type=c_type=f16,epilogue=bias+gelu+add,beta=0.5",
         wgmma},
        {"bf16", "gemm:m=18,n=35,k=40,a_type=b_type=bf16,epilogue=bias+silu", wgmma_pair},
        {"f16", "gemm:m=200,n=192,k=24,a_type=b_type=f16,gate=1,batch=2", wgmma},
        {"bf16", "gemm:m=20,n=33,k=24,a_type=b_type=bf16,gate=1,trans_b=1", wgmma_shared}}) {
    CHECK(check_right(c).path.starts_with("wgmma.m64n"));
  }
}

TEST_CASE("what follows a product is fused into every way of computing it") {
  if (!has_device()) return;
  for (const Case& c :
       {Case{"f16", "gemm:m=18,n=36,k=40,a_type=b_type=f16,c_type=f16,epilogue=bias+gelu+add",
             units},
        {"bf16", "gemm:m=18,n=35,k=40,a_type=b_type=bf16,epilogue=bias+silu", shared},
        {"f16", "gemm:m=20,n=72,k=24,a_type=b_type=f16,gate=1", wide},
        {"bf16", "gemm:m=20,n=33,k=24,a_type=b_type=bf16,gate=1,trans_b=1,batch=2", shared},
        {"3xtf32", "gemm:m=35,n=36,k=19,beta=0.5,epilogue=bias+gelu+add", tensor},
        {"3xtf32", "gemm:m=18,n=35,k=36,batch=2,epilogue=add+clamp,low=-0.5", tensor_shared},
        {"fp32", "gemm:m=21,n=18,k=65,gate=1,trans_b=1", small_tile},
        {"fp32", "gemm:m=21,n=18,k=33,a_type=bf16,c_type=f16,epilogue=bias+relu", small_tile},
        {"fp32", "gemm:m=21,n=18,k=65,gate=1,a_type=f16,b_type=bf16,c_type=f16,batch=2", cpu_tile},
        {"fp32", "gemm:m=9,n=33,k=64,b_type=q4_1,trans_b=1,c_type=bf16,beta=2,epilogue=add",
         cpu_tile},
        {"int8", "gemm:m=21,n=40,k=33,a_type=u8,b_type=s8,c_type=s32,trans_a=1", small_tile},
        {"fp32", "gemm:m=3,n=9,k=256,b_type=q8_0,trans_b=1,gate=1", streams},
        {"fp32", "gemm:m=2,n=9,k=1024,b_type=s8c,trans_b=1,c_type=bf16,epilogue=bias+gelu+add",
         streams_shared},
        {"bf16", "gemm:m=1,n=9,k=1024,a_type=b_type=bf16,trans_b=1,gate=1", streams_shared}}) {
    check_right(c);
  }
}

TEST_CASE("few rows stream weights of every format") {
  if (!has_device()) return;
  // Rows that end within a chunk, shares of k that are uneven, no k at all.
  for (const Case& c :
       {Case{"fp32", "gemm:m=1,n=13,k=2304,b_type=q4_0,trans_b=1", streams},
        {"fp32", "gemm:m=4,n=7,k=256,b_type=q4_0,trans_b=1", streams},
        {"fp32", "gemm:m=3,n=13,k=3200,b_type=q4_1,trans_b=1,prepack=1", streams_shared},
        {"fp32", "gemm:m=2,n=13,k=1792,b_type=q8_0,trans_b=1,alpha=-0.75,beta=1.5", streams},
        {"fp32", "gemm:m=2,n=13,k=528,a_type=bf16,b_type=s8c,trans_a=1,trans_b=1,prepack=1",
         streams_shared},
        {"fp32", "gemm:m=2,n=13,k=264,a_type=f16,b_type=f16,trans_b=1", streams},
        {"fp32", "gemm:m=8,n=17,k=1280,b_type=f16,trans_b=1", streams_shared},
        // Sums of matrix units in one to three tiles of columns, and columns that no sum has.
        // a of so small a k fits into the 48 KiB of local memory that NVIDIA's OpenCL offers.
        {"fp32", "gemm:m=8,n=33,k=768,a_type=f16,b_type=q4_0,trans_b=1", streams},
        {"fp32", "gemm:m=5,n=17,k=520,b_type=bf16,trans_b=1", streams_shared},
        {"fp32", "gemm:m=8,n=16,k=512,b_type=q8_0,trans_b=1", streams},
        {"bf16", "gemm:m=8,n=31,k=72,a_type=b_type=bf16,trans_b=1,c_type=bf16", streams},
        {"fp32", "gemm:m=1,n=3,k=0,b_type=q4_1,trans_b=1,beta=2", streams}}) {
    check_right(c);
  }
}

TEST_CASE("a way that cannot serve a problem says what it needs") {
  if (!has_device()) return;
  const char* const f16 = "gemm:m=9,n=13,k=256,a_type=b_type=f16,trans_b=1";
  CHECK(defect({"f16", f16, streams}).value().find("at most 8 rows") != std::string::npos);
  // The one need that is not met, and no other.
  if (!opencl::features(0).nvidia_code_path()) {
    CHECK(defect({"fp32", "gemm:m=4,n=13,k=2048,b_type=q4_0,trans_b=1",
                  "path=2,code_path=1,warps=2,stages=2,splits=1"})
              .value()
              .ends_with("path=2 needs code_path=0 without NVIDIA's inline PTX"));
  }
  CHECK(defect({"fp32", f16, units}).value().find("path=3 needs math 3xtf32, f16") !=
        std::string::npos);
  CHECK(defect({"f16", f16, "path=1"}).value().find("path=1 needs float32 alone") !=
        std::string::npos);
  CHECK(defect({"f16", f16, "path=6"}).value().find("there is no path=6") != std::string::npos);
  CHECK(defect({"f16", f16, "path=0,code_path=1"}).value().find("needs code_path=0") !=
        std::string::npos);
  CHECK(defect({"fp32", f16, wgmma}).value().find("path=7 is of maths") != std::string::npos);
  const std::string wgmma_defect = defect({"f16", f16, "path=7,wm=8,mt=2,nt=32"}).value();
  const bool has_wgmma = opencl::features(0).wgmma;
  CHECK(wgmma_defect.find(has_wgmma ? "mt·nt at most 32" : "or its driver lacks") !=
        std::string::npos);
  const std::string attention = "attention:batch=1,heads=1,q_len=8,kv_len=8,causal=0,type=f16";
  for (const auto& [more, tuning, reason] :
       {std::tuple("head_dim=12", "", "a multiple of 8, not 12"),
        {"head_dim=8,scale=-1", "", "no negative scale"},
        {"head_dim=256", ",warps=12", "160 with warps=12"},
        {"head_dim=8", ",bk=24", "bk a multiple of 16"}}) {
    const std::string text = attention + "," + more, of_path = std::string("path=4") + tuning;
    const std::string why = defect({"f16", text.c_str(), of_path.c_str()}).value();
    CHECK_MESSAGE(why.find(has_wgmma ? reason : "or its driver lacks") != std::string::npos, why);
  }
  CHECK(defect({"f16", "gemm:m=72,n=80,k=30,a_type=b_type=f16,trans_a=1", units})
            .value()
            .find("at least 128 bytes along") != std::string::npos);
}
