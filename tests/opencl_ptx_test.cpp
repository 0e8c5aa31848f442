// The PTX of kernels that need sm_90a, as text: what is uncovered, what is refused, and what the
// macros of wgmma say. That devices compute right with it: opencl_formats_test.cpp.
#include "backends/opencl_ptx.hpp"

#include <doctest/doctest.h>

#include <string>

#include "core/error.hpp"

using namespace rooflane;
using opencl::uncovered_ptx;
using opencl::Wgmma;

TEST_CASE("marked instructions are uncovered and the target becomes sm_90a") {
  const std::string ptx =
      ".version 9.0\n.target sm_90, texmode_independent\n.address_size 64\n"
      "\t//sm_90a wgmma.fence.sync.aligned;\n\tmov.u32 %r1, 0; // a comment\n"
      "\t//sm_90a wgmma.commit_group.sync.aligned;\n";
  const std::string expected =
      ".version 9.0\n.target sm_90a, texmode_independent\n.address_size 64\n"
      "\twgmma.fence.sync.aligned;\n\tmov.u32 %r1, 0; // a comment\n"
      "\twgmma.commit_group.sync.aligned;\n";
  CHECK(uncovered_ptx(ptx) == expected + '\0');
  // The driver's PTX ends with a zero byte.
  CHECK(uncovered_ptx(ptx + '\0') == expected + '\0');
}

TEST_CASE("what is not PTX for sm_90, or has lost its marks, is refused") {
  CHECK_THROWS_AS(uncovered_ptx(""), BuildError);
  CHECK_THROWS_AS(uncovered_ptx("\x7f"
                                "ELF //sm_90a ret;"),
                  BuildError);
  CHECK_THROWS_AS(uncovered_ptx(".target sm_80\n//sm_90a ret;"), BuildError);
  CHECK_THROWS_AS(uncovered_ptx(".target sm_900\n//sm_90a ret;"), BuildError);
  CHECK_THROWS_AS(uncovered_ptx(".target sm_90a\n//sm_90a ret;"), BuildError);
  CHECK_THROWS_AS(uncovered_ptx(".target sm_90\nret;"), BuildError);
}

TEST_CASE("wgmma names its sums, its operands' formats and which of them lie across k") {
  const Wgmma f16{.columns = 8, .a = "f16", .b_wide = true};
  CHECK(f16.name() == "wgmma.m64n8k16.f16");
  CHECK(f16.macros().find("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, "
                          "%5, kept, 1, 1, 0, 1;") != std::string::npos);
  CHECK(f16.macros().find("\"+f\"((d)[3]) : \"l\"(a), \"l\"(b), \"r\"(keep)") != std::string::npos);
  CHECK(f16.macros().find("setp.ne.u32 kept, %6, 0;") != std::string::npos);
  const Wgmma weights{.columns = 8, .a = "bf16", .b_wide = true, .a_in_registers = true};
  const std::string macros = weights.macros("VALUES");
  CHECK(macros.find("{%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, kept, 1, 1, 1;") != std::string::npos);
  CHECK(macros.find(": \"r\"((a)[0]), \"r\"((a)[1]), \"r\"((a)[2]), \"r\"((a)[3]), \"l\"(b)") !=
        std::string::npos);
  CHECK(macros.find("#define VALUES_FENCE(d)") != std::string::npos);
  const Wgmma u8{.columns = 256, .a = "u8"};
  CHECK(u8.name() == "wgmma.m64n256k32.u8");
  CHECK(u8.macros().find("m64n256k32.s32.u8.s8 {%0, ") != std::string::npos);
  CHECK(u8.macros().find("%127}, %128, %129, kept;") != std::string::npos);
  CHECK(u8.macros().find("\"+r\"((d)[127])") != std::string::npos);
}
