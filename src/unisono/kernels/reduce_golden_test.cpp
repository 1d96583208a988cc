#include <bit>
#include <cmath>
#include <complex>
#include <cstdint>
#include <fstream>
#include <limits>
#include <map>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/base/reduction.h"
#include "unisono/kernels/reduce.h"
#include "unisono/kernels/testing/test_support.h"

namespace unisono::kernels {
namespace {

using Reduction = void (*)(const ReduceTask&, std::int64_t);

// Hand-computed values that both implementations must produce.
class ReduceGolden : public ::testing::TestWithParam<Reduction> {
 protected:
  // Returns the combination of one element of each input.
  template <class T, class Out = T>
  Out combine(ReduceTask task, const std::vector<T>& elements, bool are_partial = false) {
    std::vector<ReduceInput> inputs;
    inputs.reserve(elements.size());
    for (const T& element : elements) {
      inputs.push_back({.data = &element, .is_partial = are_partial});
    }
    const auto steps = canonical_steps(static_cast<int>(elements.size()));
    Out result{};
    void* const output = &result;
    task.inputs = inputs;
    task.outputs = std::span(&output, 1);
    if (task.steps.empty()) {
      task.steps = steps;
    }
    GetParam()(task, 1);
    return result;
  }
};

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

ReduceTask task_of(DType dtype, ReduceKind kind) {
  ReduceTask task{};
  task.dtype = dtype;
  task.kind = kind;
  return task;
}

TEST_P(ReduceGolden, TheSumFollowsTheSteps) {
  ReduceTask task = task_of(DType::kFloat32, ReduceKind::kSum);
  // 1e8 + 1 rounds to 1e8, because adjacent floats differ by eight there.
  EXPECT_EQ(combine<float>(task, {1e8F, 1, -1e8F}), 0);
  const ReduceStep large_first[] = {{.lhs = 0, .rhs = 2}, {.lhs = 3, .rhs = 1}};
  task.steps = large_first;
  EXPECT_EQ(combine<float>(task, {1e8F, 1, -1e8F}), 1);
}

TEST_P(ReduceGolden, TheCanonicalTreeIsLeftBalanced) {
  const ReduceTask task = task_of(DType::kFloat32, ReduceKind::kSum);
  // ((1e8 + 4) + (4 - 1e8)) + 3, where both fours are ties and round to the even neighbour.
  EXPECT_EQ(combine<float>(task, {1e8F, 4, 4, -1e8F, 3}), 3);
  // ((1e8 - 1e8) + (1 + 1)) + ((1e8 + 1) + -1e8)
  EXPECT_EQ(combine<float>(task, {1e8F, -1e8F, 1, 1, 1e8F, 1, -1e8F}), 2);
}

TEST_P(ReduceGolden, Float16TiesGoToEven) {
  const ReduceTask task = task_of(DType::kFloat16, ReduceKind::kSum);
  constexpr std::uint16_t one = 0x3C00;
  EXPECT_EQ(combine<std::uint16_t>(task, {0x6800, one}), 0x6800) << "2048 + 1";
  EXPECT_EQ(combine<std::uint16_t>(task, {0x6801, one}), 0x6802) << "2050 + 1";
  EXPECT_EQ(combine<std::uint16_t>(task, {0x7BFF, 0x4C00}), 0x7C00) << "65504 + 16";
  EXPECT_EQ(combine<std::uint16_t>(task, {0x7BFF, 0x4B80}), 0x7BFF) << "65504 + 15";
  EXPECT_EQ(combine<std::uint16_t>(task, {0x0001, 0x0001}), 0x0002) << "subnormals";
  EXPECT_EQ(combine<std::uint16_t>(task, {0x0400, 0x8001}), 0x03FF) << "into subnormals";
}

TEST_P(ReduceGolden, SixteenBitFloatsRoundOnce) {
  const ReduceTask f16 = task_of(DType::kFloat16, ReduceKind::kSum);
  EXPECT_EQ(combine<std::uint16_t>(f16, {0x6800, 0x3C00, 0x3C00}), 0x6801) << "2048 + 1 + 1";
  const ReduceTask bf16 = task_of(DType::kBFloat16, ReduceKind::kSum);
  EXPECT_EQ(combine<std::uint16_t>(bf16, {0x4380, 0x3F80, 0x3F80}), 0x4381) << "256 + 1 + 1";
}

TEST_P(ReduceGolden, BFloat16TiesGoToEven) {
  const ReduceTask task = task_of(DType::kBFloat16, ReduceKind::kSum);
  EXPECT_EQ(combine<std::uint16_t>(task, {0x4380, 0x3F80}), 0x4380) << "256 + 1";
  EXPECT_EQ(combine<std::uint16_t>(task, {0x4381, 0x3F80}), 0x4382) << "258 + 1";
  EXPECT_EQ(combine<std::uint16_t>(task, {0x7F7F, 0x7F7F}), 0x7F80) << "overflow";
  EXPECT_EQ(combine<std::uint16_t>(task, {0x0001, 0x0001}), 0x0002) << "subnormals";
  const auto nan = combine<std::uint16_t>(task, {0x7F81, 0x3F80});
  EXPECT_GT(nan & 0x7FFF, 0x7F80) << "rounding must not make infinity of a NaN";
  const auto full_nan = combine<std::uint16_t>(task, {0xFFFF, 0x3F80});
  EXPECT_GT(full_nan & 0x7FFF, 0x7F80) << "nor carry out of it";
}

TEST_P(ReduceGolden, AveragesDivideOnceBeforeRounding) {
  ReduceTask task = task_of(DType::kFloat32, ReduceKind::kAvg);
  task.divisor = 41;
  EXPECT_EQ(combine<float>(task, {40, 1}), 1) << "41 times the rounded 1/41 is less than 1";
  task.divisor = 3;
  EXPECT_EQ(std::bit_cast<std::uint32_t>(combine<float>(task, {1, 0})), 0x3EAAAAABU);
  task.dtype = DType::kFloat16;
  task.divisor = 2;
  EXPECT_EQ(combine<std::uint16_t>(task, {0x0001, 0x0000}), 0x0000) << "half a subnormal";
  EXPECT_EQ(combine<std::uint16_t>(task, {0x0001, 0x0002}), 0x0002) << "one and a half";
  EXPECT_EQ(combine<std::uint16_t>(task, {0x7BFF, 0x7BFF}), 0x7BFF) << "the sum is above f16";
  task.dtype = DType::kComplex64;
  using Complex = std::complex<float>;
  EXPECT_EQ(combine<Complex>(task, {Complex(1, 2), Complex(4, 8)}), Complex(2.5F, 5));
}

TEST_P(ReduceGolden, PartialResultsAreNeitherRoundedNorDivided) {
  ReduceTask task = task_of(DType::kFloat16, ReduceKind::kAvg);
  task.divisor = 4;
  task.output_is_partial = true;
  const auto partial = combine<std::uint16_t, float>(task, {0x6800, 0x3C00});
  EXPECT_EQ(partial, 2049);
  task.output_is_partial = false;
  task.kind = ReduceKind::kSum;
  const auto sum = combine<float, std::uint16_t>(task, {2049, 1}, true);
  EXPECT_EQ(sum, 0x6801) << "2050";
}

TEST_P(ReduceGolden, PremulSumsScaleEveryInput) {
  ReduceTask task = task_of(DType::kFloat32, ReduceKind::kPremulSum);
  task.factor = 3;
  EXPECT_EQ(combine<float>(task, {1, 2, 4}), 21);
  EXPECT_EQ(combine<float>(task, {5}), 15) << "a world of one";
  task.dtype = DType::kComplex128;
  using Complex = std::complex<double>;
  EXPECT_EQ(combine<Complex>(task, {Complex(1, 2), Complex(-4, 8)}), Complex(-9, 30));
  task.dtype = DType::kBFloat16;
  task.factor = 0.5;
  EXPECT_EQ(combine<std::uint16_t>(task, {0x3F80, 0x4040}), 0x4000) << "(1 + 3) / 2";
}

TEST_P(ReduceGolden, PremulSumsRoundFactorThenProductThenSum) {
  ReduceTask task = task_of(DType::kFloat32, ReduceKind::kPremulSum);
  {
    const HostileMode mode;
    task.factor = 0.7;
    EXPECT_EQ(combine<float>(task, {9}), 0x1.933332p2F) << "0.7F * 9, not 0.7 * 9";
    task.factor = 1e-42;
    EXPECT_EQ(std::bit_cast<std::uint32_t>(combine<float>(task, {1})), 714U) << "subnormal";
  }
  task.factor = 0x1.000002p0;
  const auto fused = combine<float>(task, {-0x1.000002p0F, 0x1.000002p0F});
  EXPECT_EQ(fused, 0) << "a fused addition leaves 2^-46";
  task.factor = 1e300;
  EXPECT_EQ(combine<float>(task, {-1}), -kInfinity) << "f32 has no such factor";
  task.dtype = DType::kFloat64;
  EXPECT_EQ(combine<double>(task, {-1}), -1e300);
  task.dtype = DType::kFloat16;
  task.factor = 0.1;
  EXPECT_EQ(combine<std::uint16_t>(task, {0x3C00, 0x3C00, 0x3C00}), 0x34CD)
      << "0x34CC where factor or products are rounded to f16";
}

TEST_P(ReduceGolden, PartialPremulSumsAreScaledAlready) {
  const float partial = 10;
  ReduceTask task = task_of(DType::kFloat16, ReduceKind::kPremulSum);
  task.factor = 3;
  EXPECT_EQ((combine<float, std::uint16_t>(task, {partial, 2}, true)), 0x4A00) << "12";
  task.output_is_partial = true;
  EXPECT_EQ((combine<std::uint16_t, float>(task, {0x3C00, 0x4000})), 9);
  EXPECT_EQ((combine<std::uint16_t, float>(task, {0x4000})), 6);
  task.dtype = DType::kFloat32;
  EXPECT_EQ(combine<float>(task, {partial}, true), 10);
  EXPECT_EQ(combine<float>(task, {partial, 2, 1}, true), 13);
  const float own = 2;
  const ReduceInput mixed[] = {{.data = &partial, .is_partial = true},
                               {.data = &own, .is_partial = false},
                               {.data = &own, .is_partial = false}};
  const std::vector<ReduceStep> steps = canonical_steps(3);
  float result = 0;
  void* const output = &result;
  task.inputs = mixed;
  task.steps = steps;
  task.outputs = std::span(&output, 1);
  GetParam()(task, 1);
  EXPECT_EQ(result, 22);
}

TEST_P(ReduceGolden, PremulSumsFollowIeee754) {
  ReduceTask task = task_of(DType::kFloat32, ReduceKind::kPremulSum);
  task.factor = 0;
  EXPECT_TRUE(std::isnan(combine<float>(task, {1, kInfinity})));
  EXPECT_TRUE(std::isnan(combine<float>(task, {kNan, 1})));
  EXPECT_FALSE(std::signbit(combine<float>(task, {1, -1}))) << "0 + -0";
  EXPECT_TRUE(std::signbit(combine<float>(task, {-1, -1}))) << "-0 + -0";
  task.factor = -1;
  EXPECT_TRUE(std::signbit(combine<float>(task, {0})));
  EXPECT_EQ(combine<float>(task, {kInfinity, 1}), -kInfinity);
  EXPECT_TRUE(std::isnan(combine<float>(task, {kInfinity, -kInfinity})));
  task.factor = double{kInfinity};
  EXPECT_TRUE(std::isnan(combine<float>(task, {0})));
  task.factor = double{kNan};
  EXPECT_TRUE(std::isnan(combine<float>(task, {1, 2})));
}

TEST_P(ReduceGolden, IntegersWrapAround) {
  constexpr auto sum_kind = ReduceKind::kSum;
  constexpr auto product_kind = ReduceKind::kProduct;
  EXPECT_EQ(combine<std::int8_t>(task_of(DType::kInt8, sum_kind), {127, 1}), -128);
  EXPECT_EQ(combine<std::int8_t>(task_of(DType::kInt8, product_kind), {-128, -1}), -128);
  EXPECT_EQ(combine<std::uint8_t>(task_of(DType::kUInt8, product_kind), {200, 2}), 144);
  EXPECT_EQ(combine<std::uint16_t>(task_of(DType::kUInt16, product_kind), {65535, 65535}), 1);
  EXPECT_EQ(combine<std::uint64_t>(task_of(DType::kUInt64, sum_kind), {~0ULL, 2}), 1U);
  constexpr auto least = std::numeric_limits<std::int64_t>::min();
  EXPECT_EQ(combine<std::int64_t>(task_of(DType::kInt64, sum_kind), {least, -1}),
            std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(combine<std::int64_t>(task_of(DType::kInt64, product_kind), {least, -1}), least);
}

TEST_P(ReduceGolden, MinAndMaxKnowSigns) {
  EXPECT_EQ(combine<std::int8_t>(task_of(DType::kInt8, ReduceKind::kMin), {-1, 1}), -1);
  EXPECT_EQ(combine<std::uint8_t>(task_of(DType::kUInt8, ReduceKind::kMin), {255, 1}), 1);
  EXPECT_EQ(combine<std::int64_t>(task_of(DType::kInt64, ReduceKind::kMax), {-1, 1}), 1);
  EXPECT_EQ(combine<std::uint64_t>(task_of(DType::kUInt64, ReduceKind::kMax), {~0ULL, 1}), ~0ULL);
}

TEST_P(ReduceGolden, NegativeZeroIsLessThanZeroInAnyOrder) {
  const ReduceTask min = task_of(DType::kFloat32, ReduceKind::kMin);
  const ReduceTask max = task_of(DType::kFloat32, ReduceKind::kMax);
  EXPECT_TRUE(std::signbit(combine<float>(min, {0.0F, -0.0F})));
  EXPECT_TRUE(std::signbit(combine<float>(min, {-0.0F, 0.0F})));
  EXPECT_FALSE(std::signbit(combine<float>(max, {0.0F, -0.0F})));
  EXPECT_FALSE(std::signbit(combine<float>(max, {-0.0F, 0.0F})));
}

TEST_P(ReduceGolden, MinAndMaxAreNanWhereAnyInputIs) {
  for (const ReduceKind kind : {ReduceKind::kMin, ReduceKind::kMax}) {
    const ReduceTask task = task_of(DType::kFloat32, kind);
    EXPECT_TRUE(std::isnan(combine<float>(task, {kNan, 1, 2})));
    EXPECT_TRUE(std::isnan(combine<float>(task, {1, kNan, kInfinity})));
    EXPECT_TRUE(std::isnan(combine<float>(task, {-kInfinity, 1, kNan})));
    EXPECT_FALSE(std::isnan(combine<float>(task, {-kInfinity, kInfinity})));
  }
}

TEST_P(ReduceGolden, SubnormalsAreKept) {
  const ReduceTask task = task_of(DType::kFloat32, ReduceKind::kSum);
  const HostileMode mode;
  const auto sum = combine<float>(task, {0x1p-149F, 0x1p-149F});
  EXPECT_EQ(std::bit_cast<std::uint32_t>(sum), 2U);
}

TEST_P(ReduceGolden, BoolIsOrAndAnd) {
  for (const ReduceKind kind : {ReduceKind::kSum, ReduceKind::kMax}) {
    EXPECT_EQ(combine<std::uint8_t>(task_of(DType::kBool, kind), {0, 0}), 0);
    EXPECT_EQ(combine<std::uint8_t>(task_of(DType::kBool, kind), {4, 0, 2}), 1);
    EXPECT_EQ(combine<std::uint8_t>(task_of(DType::kBool, kind), {255, 1}), 1);
  }
  for (const ReduceKind kind : {ReduceKind::kProduct, ReduceKind::kMin}) {
    EXPECT_EQ(combine<std::uint8_t>(task_of(DType::kBool, kind), {4, 0}), 0);
    EXPECT_EQ(combine<std::uint8_t>(task_of(DType::kBool, kind), {4, 3}), 1) << "no bit in common";
  }
  EXPECT_EQ(combine<std::uint8_t>(task_of(DType::kBool, ReduceKind::kSum), {7}), 1);
}

TEST_P(ReduceGolden, BitsAreCombinedBitByBit) {
  EXPECT_EQ(combine<std::int8_t>(task_of(DType::kInt8, ReduceKind::kBand), {-4, 7, 13}), 4);
  EXPECT_EQ(combine<std::uint8_t>(task_of(DType::kUInt8, ReduceKind::kBor), {0x81, 0x10, 0}), 0x91);
  EXPECT_EQ(combine<std::uint8_t>(task_of(DType::kUInt8, ReduceKind::kBxor), {0xFF, 0x0F}), 0xF0);
  EXPECT_EQ(combine<std::int16_t>(task_of(DType::kInt16, ReduceKind::kBxor), {-1, 0x00FF}), -256);
  EXPECT_EQ(combine<std::uint32_t>(task_of(DType::kUInt32, ReduceKind::kBand),
                                   {0xF0F00F0FU, 0xFFFF0001U}),
            0xF0F00001U);
  EXPECT_EQ(combine<std::uint64_t>(task_of(DType::kUInt64, ReduceKind::kBxor), {1ULL << 63U, 1, 1}),
            1ULL << 63U);
  EXPECT_EQ(combine<std::int64_t>(task_of(DType::kInt64, ReduceKind::kBor),
                                  {std::numeric_limits<std::int64_t>::min(), 1}),
            std::numeric_limits<std::int64_t>::min() + 1);
  EXPECT_EQ(combine<std::int32_t>(task_of(DType::kInt32, ReduceKind::kBand), {-7}), -7)
      << "one input";
}

TEST_P(ReduceGolden, ABoolsBitIsThatItIsTrue) {
  const ReduceTask band = task_of(DType::kBool, ReduceKind::kBand);
  EXPECT_EQ(combine<std::uint8_t>(band, {4, 3}), 1) << "no bit in common";
  EXPECT_EQ(combine<std::uint8_t>(band, {1, 0}), 0);
  const ReduceTask bor = task_of(DType::kBool, ReduceKind::kBor);
  EXPECT_EQ(combine<std::uint8_t>(bor, {4, 2}), 1) << "not 6";
  EXPECT_EQ(combine<std::uint8_t>(bor, {0, 0}), 0);
  const ReduceTask bxor = task_of(DType::kBool, ReduceKind::kBxor);
  EXPECT_EQ(combine<std::uint8_t>(bxor, {4, 2}), 0) << "both are true";
  EXPECT_EQ(combine<std::uint8_t>(bxor, {0, 255}), 1);
  EXPECT_EQ(combine<std::uint8_t>(bxor, {1, 1, 8}), 1);
  EXPECT_EQ(combine<std::uint8_t>(bxor, {8}), 1);
}

TEST_P(ReduceGolden, ComplexProductsFollowTheTextbook) {
  using Complex = std::complex<double>;
  const ReduceTask task = task_of(DType::kComplex128, ReduceKind::kProduct);
  EXPECT_EQ(combine<Complex>(task, {Complex(1, 2), Complex(3, 4)}), Complex(-5, 10));
  const auto product = combine<Complex>(task, {Complex(double{kInfinity}, 0), Complex(0, 1)});
  EXPECT_TRUE(std::isnan(product.real()));
  EXPECT_EQ(product.imag(), kInfinity);
}

INSTANTIATE_TEST_SUITE_P(Both,
                         ReduceGolden,
                         ::testing::Values(&reduce, &reduce_reference),
                         [](const auto& parameters) {
                           return parameters.param == &reduce ? "Vectorized" : "Reference";
                         });

using Cells = std::vector<std::string>;

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) {
    words.push_back(word);
  }
  return words;
}

Cells cells_of(const std::string& line) {
  std::istringstream stream(line.substr(1));
  Cells cells;
  for (std::string cell; std::getline(stream, cell, '|');) {
    cells.push_back(cell);
  }
  return cells;
}

// Returns the lines of the only table of the page.
std::vector<Cells> table_of_page() {
  std::ifstream page(UNISONO_REDUCTIONS_PAGE);
  std::vector<Cells> table;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("|")) {
      table.push_back(cells_of(line));
    }
  }
  return table;
}

bool is_reducible(DType dtype, ReduceKind kind) {
  try {
    check_reduction(dtype, kind);
    return true;
  } catch (const Error&) {
    return false;
  }
}

TEST(ReductionsPage, ItsTableIsWhatCheckReductionSays) {
  const std::vector<Cells> table = table_of_page();
  ASSERT_GT(table.size(), 2U) << "no table in " << UNISONO_REDUCTIONS_PAGE;
  std::map<std::pair<std::string, std::string>, std::string> cells;
  for (std::size_t row = 2; row < table.size(); ++row) {
    ASSERT_EQ(table[row].size(), table[0].size()) << "row " << row;
    for (std::size_t column = 1; column < table[row].size(); ++column) {
      for (const std::string& dtype : words_of(table[0][column])) {
        const auto operation = words_of(table[row][0]);
        ASSERT_EQ(operation.size(), 1U) << "row " << row;
        EXPECT_TRUE(cells.try_emplace({operation.front(), dtype}, table[row][column]).second)
            << operation.front() << " of " << dtype << " occurs twice";
      }
    }
  }
  for (int dtype = 0; dtype < kDTypeCount; ++dtype) {
    for (int kind = 0; kind < kReduceKindCount; ++kind) {
      const std::string operation = to_string(static_cast<ReduceKind>(kind));
      const std::string type = to_string(static_cast<DType>(dtype));
      const auto cell = cells.extract({operation, type});
      ASSERT_FALSE(cell.empty()) << operation << " of " << type << " is missing";
      EXPECT_EQ(words_of(cell.mapped()) != std::vector<std::string>{"-"},
                is_reducible(static_cast<DType>(dtype), static_cast<ReduceKind>(kind)))
          << operation << " of " << type << ": '" << cell.mapped() << "'";
    }
  }
  EXPECT_TRUE(cells.empty()) << "the page knows an operation or a dtype that does not exist";
}

}  // namespace
}  // namespace unisono::kernels
