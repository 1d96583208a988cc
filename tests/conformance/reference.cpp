#include "reference.h"

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/base/reduction.h"
#include "unisono/collective/canonical_tree.h"
#include "unisono/comm/options.h"
#include "unisono/engine/backends.h"
#include "unisono/kernels/reduce.h"

#include "tested_backend.h"

namespace unisono::test {
std::vector<std::byte> expected_reduction(
    DType dtype, const ReduceOp& op, const std::vector<std::vector<std::byte>>& contributions) {
  const auto world_size = static_cast<int>(contributions.size());
  std::vector<kernels::ReduceInput> inputs;
  std::vector<collective::RankRange> leaves;
  for (int rank = 0; rank < world_size; ++rank) {
    inputs.push_back(
        {.data = contributions[static_cast<std::size_t>(rank)].data(), .is_partial = false});
    leaves.push_back({.lo = rank, .hi = rank + 1});
  }
  const auto steps = collective::reduce_steps(leaves, {.lo = 0, .hi = world_size});
  std::vector<std::byte> result(contributions.front().size());
  void* const output = result.data();
  kernels::reduce_reference({.dtype = dtype,
                             .kind = op.kind,
                             .inputs = inputs,
                             .steps = steps,
                             .outputs = std::span(&output, 1),
                             .divisor = world_size,
                             .factor = op.factor,
                             .user = op.user.get()},
                            static_cast<std::int64_t>(result.size() / size_of(dtype)));
  return result;
}

std::vector<std::byte> expected_all_reduce(
    DType dtype, const ReduceOp& op, std::int64_t count, int world_size, unsigned seed) {
  std::vector<std::vector<std::byte>> contributions;
  for (int rank = 0; rank < world_size; ++rank) {
    contributions.push_back(contribution(dtype, count, rank, seed));
  }
  return expected_reduction(dtype, op, contributions);
}

const std::vector<std::byte>& Expected::all_reduce(DType dtype,
                                                   const ReduceOp& op,
                                                   std::int64_t count,
                                                   unsigned seed) {
  const std::scoped_lock lock(mutex_);
  const auto [entry, is_new] = results_.try_emplace({dtype, op.kind, count, seed});
  if (is_new) {
    entry->second = expected_all_reduce(dtype, op, count, world_size_, seed);
  }
  return entry->second;
}

std::vector<std::vector<std::string>> layouts_of(int world_size) {
  std::vector<std::vector<std::string>> layouts(5);
  std::mt19937 random(static_cast<unsigned>(world_size));
  for (int rank = 0; rank < world_size; ++rank) {
    layouts[0].push_back("a");
    layouts[1].push_back(std::to_string(rank));
    layouts[2].push_back(2 * rank < world_size ? "a" : "b");
    layouts[3].push_back(rank % 2 == 0 ? "a" : "b");
    layouts[4].push_back(std::to_string(random() % 3));
  }
  if (world_size < 3) {
    layouts.resize(2);
  }
  return layouts;
}

std::vector<World> worlds_of(int world_size) {
  std::vector<World> worlds;
  for (const std::vector<std::string>& nodes : layouts_of(world_size)) {
    worlds.push_back({.nodes = nodes});
  }
  for (const char* const single_copy : {"off", "always"}) {
    World world = one_node(world_size);
    world.environment["UNISONO_SINGLE_COPY"] = single_copy;
    worlds.push_back(world);
  }
  return worlds;
}

engine::Capabilities capabilities() {
  return engine::look_up_backend(tested_backend()).capabilities;
}

bool is_allowed(DType dtype, ReduceKind kind) {
  const engine::Capabilities has = capabilities();
  if (!has.reduced_dtypes.has(dtype) || !has.reductions.has(kind)) {
    return false;
  }
  try {
    kernels::check_reduction(dtype, kind);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace unisono::test
