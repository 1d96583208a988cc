// In operations in which each rank depends on all others, all ranks receive a mismatch at once, in
// the operation itself.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"

#include "support/ranks.h"

namespace unisono {
namespace {

using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;

// Arguments of a call. The deviating rank changes one of the fields.
struct Shape {
  std::int64_t count = 6;  // Elements of a rank's block or of the vector.
  DType dtype = DType::kFloat32;
  ReduceOp op = {};
};

// Memory for `count` elements of any type.
class Elements {
 public:
  Elements(std::int64_t count, DType dtype)
      : memory_(static_cast<std::size_t>(count)), count_(count), dtype_(dtype) {}

  [[nodiscard]] Buffer buffer() {
    return {.data = memory_.data(), .count = count_, .dtype = dtype_};
  }

  // Returns `n` blocks for operations with a block size per rank.
  [[nodiscard]] std::vector<Buffer> blocks(int n) {
    std::vector<Buffer> blocks;
    for (int block = 0; block < n; ++block) {
      const auto at = static_cast<std::size_t>(count_ / n * block);
      blocks.push_back({.data = memory_.data() + at, .count = count_ / n, .dtype = dtype_});
    }
    return blocks;
  }

 private:
  std::vector<double> memory_;
  std::int64_t count_;
  DType dtype_;
};

constexpr int kRanks = 3;

struct Operation {
  std::string name;
  std::function<void(ProcessGroup& group, const Shape& shape)> call;
  bool reduces = false;

  friend void PrintTo(const Operation& which, std::ostream* out) { *out << which.name; }
};

const std::vector<Operation> kOperations{
    {"all_reduce",
     [](ProcessGroup& group, const Shape& shape) {
       Elements data(shape.count, shape.dtype);
       group.all_reduce(data.buffer(), {.op = shape.op});
     },
     true},
    {"reduce_scatter",
     [](ProcessGroup& group, const Shape& shape) {
       Elements in(kRanks * shape.count, shape.dtype);
       Elements out(shape.count, shape.dtype);
       group.reduce_scatter(in.buffer(), out.buffer(), {.op = shape.op});
     },
     true},
    {"all_gather",
     [](ProcessGroup& group, const Shape& shape) {
       Elements in(shape.count, shape.dtype);
       Elements out(kRanks * shape.count, shape.dtype);
       group.all_gather(in.buffer(), out.buffer());
     }},
    {"all_to_all",
     [](ProcessGroup& group, const Shape& shape) {
       Elements in(kRanks * shape.count, shape.dtype);
       Elements out(kRanks * shape.count, shape.dtype);
       group.all_to_all(in.buffer(), out.buffer());
     }},
    {"all_to_all_any_size",
     [](ProcessGroup& group, const Shape& shape) {
       Elements in(kRanks * shape.count, shape.dtype);
       Elements out(kRanks * shape.count, shape.dtype);
       group.all_to_all(in.blocks(kRanks), out.blocks(kRanks));
     }},
};

struct Disagreement {
  std::string name;
  Shape odd;
};

const std::vector<Disagreement> kDisagreements{
    {"count", {.count = 5}}, {"dtype", {.dtype = DType::kFloat64}}, {"op", {.op = kMax}}};

class MismatchAtOnce : public ::testing::TestWithParam<Operation> {};

TEST_P(MismatchAtOnce, EveryRankHearsOfItInTheOperationItself) {
  const Operation& operation = GetParam();
  for (const std::vector<std::string>& nodes :
       {std::vector<std::string>{"a", "a", "a"}, {"a", "a", "b"}, {"a", "b", "c"}}) {
    for (const Disagreement& disagreement : kDisagreements) {
      if (disagreement.name == "op" && !operation.reduces) {
        continue;
      }
      const auto errors = test::errors_of_ranks({.nodes = nodes}, [&](ProcessGroup& group) {
        group.barrier();
        operation.call(group, group.rank() == 1 ? disagreement.odd : Shape());
      });
      EXPECT_THAT(errors, Each(AnyOf(HasSubstr(": ranks called "), HasSubstr(" gives "))))
          << disagreement.name << " on nodes " << nodes[0] << nodes[1] << nodes[2];
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Operations,
                         MismatchAtOnce,
                         ::testing::ValuesIn(kOperations),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace unisono
