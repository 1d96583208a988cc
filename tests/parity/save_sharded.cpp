// save_sharded ROOT STEP WORLD_SIZE: saves a checkpoint of several ranks. Each rank has rows of
// "weight", an f32 of 7 rows and 5 columns with 0, 1, 2, ... The last rank also has "step", an i64
// with the value 4711.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <numeric>
#include <span>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/checkpoint/save.h"
#include "unisono/checkpoint/tensor_box.h"
#include "unisono/comm/process_group.h"

#include "support/ranks.h"

namespace {

using unisono::DType;
using unisono::checkpoint::Box;
using unisono::checkpoint::TensorInfo;
using unisono::checkpoint::TensorPart;

void save(unisono::ProcessGroup& group, const char* root, std::int64_t step) {
  const TensorInfo weight{.name = "weight", .dtype = DType::kFloat32, .shape = {7, 5}};
  std::vector<float> elements(35);
  std::iota(elements.begin(), elements.end(), 0.0F);
  const Box rows =
      unisono::checkpoint::rows_of_rank(weight.shape, group.rank(), group.world_size());
  const std::span own = std::span(elements).subspan(static_cast<std::size_t>(rows.offsets[0] * 5),
                                                    static_cast<std::size_t>(rows.sizes[0] * 5));
  std::vector<TensorPart> parts{{.tensor = weight, .box = rows, .bytes = std::as_bytes(own)}};
  const std::vector<std::int64_t> number{4711};
  if (group.rank() == group.world_size() - 1) {
    parts.push_back({.tensor = {.name = "step", .dtype = DType::kInt64, .shape = {}},
                     .box = {},
                     .bytes = std::as_bytes(std::span(number))});
  }
  unisono::checkpoint::save_checkpoint(group, root, step, parts);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    return 2;
  }
  try {
    unisono::test::run_ranks(
        unisono::test::one_node(std::atoi(argv[3])),
        [&](unisono::ProcessGroup& group) { save(group, argv[1], std::atoll(argv[2])); });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
