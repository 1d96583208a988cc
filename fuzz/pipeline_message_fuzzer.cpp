// Descriptions of the tensors that the ranks of a pipeline send to each other.
#include <cstddef>
#include <cstdint>
#include <span>

#include "unisono/pipeline/message.h"

#include "expect.h"
#include "input.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using unisono::fuzz::expect;
  namespace pipeline = unisono::pipeline;
  const std::span<const std::byte> bytes = unisono::fuzz::Input(data, size).rest();
  if (const auto whole = pipeline::description_size(bytes)) {
    expect(*whole >= pipeline::kFirstPart, "a description has its first part");
  }
  if (const auto info = pipeline::decode(bytes)) {
    const auto again = pipeline::encode(*info);
    expect(again.size() >= pipeline::kFirstPart, "what is written has its first part");
    expect(pipeline::decode(again) == info, "what is written is read again");
  }
  return 0;
}
