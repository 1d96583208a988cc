#include "unisono/engine/native/collectives/node_chunk.h"

#include <cstddef>
#include <cstdint>
#include <span>

#include "unisono/base/buffer.h"
#include "unisono/collective/reduce_plan.h"
#include "unisono/engine/native/operation_context.h"

namespace unisono::engine {

collective::ElementRange node_chunk(const OperationContext& context,
                                    collective::Receivers::Kind receivers,
                                    int local_rank) {
  if (receivers != collective::Receivers::Kind::kOwner) {
    return collective::chunk_of({.begin = 0, .end = context.count()},
                                context.n_local(),
                                local_rank,
                                context.elements_per_line());
  }
  const std::span<const Buffer> blocks = context.operation.ins;
  const auto index = static_cast<std::size_t>(local_rank);
  std::int64_t begin = 0;
  for (const Buffer& block : blocks.first(index)) {
    begin += block.count;
  }
  return {.begin = begin, .end = begin + blocks[index].count};
}

}  // namespace unisono::engine
