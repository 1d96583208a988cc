#include "reference.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/dtype.h"
#include "unisono/base/error.h"
#include "unisono/base/reduce_kind.h"
#include "unisono/collective/canonical_tree.h"
#include "unisono/comm/options.h"
#include "unisono/engine/backends.h"
#include "unisono/engine/capabilities.h"
#include "unisono/kernels/reduce.h"

namespace unisono::test {
namespace {

template <class T>
void fill(std::vector<std::byte>& bytes, std::mt19937& random, double scale) {
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(T)) {
    const double number = (static_cast<double>(random()) / 4294967296.0 - 0.5) * scale;
    const T value = static_cast<T>(number);
    std::memcpy(bytes.data() + at, &value, sizeof(T));
  }
}

// Keeps the exponent small, so that sums of a few stay finite; works for f16 and bf16 alike.
void fill_half(std::vector<std::byte>& bytes, std::mt19937& random) {
  for (std::size_t at = 0; at < bytes.size(); at += 2) {
    const auto value = static_cast<std::uint16_t>(random() & 0xBBFFU);
    std::memcpy(bytes.data() + at, &value, sizeof(value));
  }
}

}  // namespace

std::vector<std::byte> contribution(DType dtype, std::int64_t count, int rank, unsigned seed) {
  std::mt19937 random(seed * 1000 + static_cast<unsigned>(rank));
  std::vector<std::byte> bytes(static_cast<std::size_t>(count) * size_of(dtype));
  switch (dtype) {
    case DType::kFloat32:
    case DType::kComplex64:
      fill<float>(bytes, random, 100);
      break;
    case DType::kFloat64:
    case DType::kComplex128:
      fill<double>(bytes, random, 100);
      break;
    case DType::kFloat16:
    case DType::kBFloat16:
      fill_half(bytes, random);
      break;
    case DType::kBool:
      for (std::byte& byte : bytes) {
        byte = static_cast<std::byte>(random() % 2);
      }
      break;
    default:
      for (std::byte& byte : bytes) {
        byte = static_cast<std::byte>(random());
      }
  }
  return bytes;
}

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

bool is_allowed(DType dtype, ReduceKind kind) {
  const engine::Capabilities has = engine::find_backend(default_backend()).capabilities;
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
