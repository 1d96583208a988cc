#include "unisono/data/samplers/global_batch.h"

#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "unisono/base/error.h"

namespace unisono {

GlobalBatch divide_batch(std::int64_t wanted, int world_size) {
  if (world_size < 1 || wanted < world_size) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("divide_batch: a global batch of {} over {} ranks; each rank must get "
                            "at least one sample",
                            wanted,
                            world_size));
  }
  return {.per_rank = wanted / world_size, .world_size = world_size, .wanted = wanted};
}

std::string to_string(const GlobalBatch& batch) {
  std::string text = fmt::format(
      "global batch {}: {} on {}",
      batch.size(),
      batch.per_rank,
      batch.world_size == 1 ? "one rank" : fmt::format("each of {} ranks", batch.world_size));
  if (batch.wanted != 0 && batch.wanted != batch.size()) {
    text += fmt::format(" ({} is no multiple of {}; {} and {} are)",
                        batch.wanted,
                        batch.world_size,
                        batch.size(),
                        batch.size() + batch.world_size);
  }
  return text;
}

}  // namespace unisono
