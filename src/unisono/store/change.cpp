#include "unisono/store/change.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "unisono/base/bytes.h"
#include "unisono/store/store_map.h"

namespace unisono::store {
namespace {

bool has_value(StepKind kind) {
  return kind == StepKind::kSet || kind == StepKind::kAppend || kind == StepKind::kPush;
}

bool is_known(std::uint8_t kind) {
  return kind >= static_cast<std::uint8_t>(StepKind::kSet) &&
         kind <= static_cast<std::uint8_t>(StepKind::kCount);
}

std::optional<Step> decode_step(ByteReader& reader) {
  const auto kind = reader.get<std::uint8_t>();
  if (!kind || !is_known(*kind)) {
    return std::nullopt;
  }
  Step step{.kind = static_cast<StepKind>(*kind), .key = {}};
  std::optional<std::string> key = reader.get_string(reader.rest().size());
  if (!key) {
    return std::nullopt;
  }
  step.key = std::move(*key);
  if (has_value(step.kind)) {
    std::optional<std::string> value = reader.get_string(reader.rest().size());
    if (!value) {
      return std::nullopt;
    }
    step.value = std::move(*value);
  }
  if (step.kind == StepKind::kCount) {
    const auto world_size = reader.get<std::int64_t>();
    if (!world_size) {
      return std::nullopt;
    }
    step.world_size = *world_size;
  }
  return step;
}

}  // namespace

void apply(StoreMap& map, Step step, ClientId client) {
  switch (step.kind) {
    case StepKind::kSet:
      map.set(step.key, std::move(step.value));
      break;
    case StepKind::kAppend:
      map.append(step.key, step.value);
      break;
    case StepKind::kErase:
      map.erase(step.key);
      break;
    case StepKind::kPush:
      map.push(step.key, std::move(step.value));
      break;
    case StepKind::kPop:
      (void)map.pop(step.key);
      break;
    case StepKind::kCount:
      (void)map.barrier(client, step.key, step.world_size);
      map.cancel(kNobody);
      break;
  }
}

std::size_t n_new_bytes(const Change& change) {
  std::size_t n_bytes = 0;
  for (const Step& step : change) {
    if (has_value(step.kind) || step.kind == StepKind::kCount) {
      n_bytes += step.key.size() + step.value.size();
    }
  }
  return n_bytes;
}

void encode(ByteWriter& writer, const Change& change) {
  for (const Step& step : change) {
    writer.put(static_cast<std::uint8_t>(step.kind));
    writer.put_string(step.key);
    if (has_value(step.kind)) {
      writer.put_string(step.value);
    }
    if (step.kind == StepKind::kCount) {
      writer.put(step.world_size);
    }
  }
}

std::optional<Change> decode_change(std::span<const std::byte> bytes) {
  Change change;
  ByteReader reader(bytes);
  while (!reader.rest().empty()) {
    std::optional<Step> step = decode_step(reader);
    if (!step) {
      return std::nullopt;
    }
    change.push_back(std::move(*step));
  }
  return change;
}

}  // namespace unisono::store
