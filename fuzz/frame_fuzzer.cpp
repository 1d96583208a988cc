// The 56 bytes before each payload between nodes, and the payload of an abort, rank progress or
// wait frame.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "unisono/transport/describe.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/frame.h"

#include "expect.h"
#include "input.h"

namespace unisono::fuzz {
namespace {

void read_frame(std::span<const std::byte> bytes) {
  if (bytes.size() < transport::kFrameBytes) {
    return;
  }
  const auto header = bytes.first<transport::kFrameBytes>();
  const std::optional<transport::Frame> frame = transport::decode(header);
  if (!frame) {
    return;
  }
  expect(std::ranges::equal(transport::encode(*frame), header),
         "a frame is encoded as it was read");
  expect(!transport::describe(frame->descriptor, frame->sequence).empty(), "any frame has words");
  const auto payload = bytes.subspan(transport::kFrameBytes);
  if (payload.size() < frame->n_bytes) {
    return;
  }
  using Kind = transport::FrameKind;
  if (frame->kind == Kind::kAbort || frame->kind == Kind::kDeadlock ||
      frame->kind == Kind::kDeadlockCommit) {
    (void)transport::decode_abort(*frame, payload.first(frame->n_bytes));
  } else if (frame->kind == Kind::kRankProgress) {
    (void)transport::decode_rank_progress(*frame, payload.first(frame->n_bytes));
  } else if (frame->kind == Kind::kWait || frame->kind == Kind::kAskWait) {
    (void)transport::decode_stall(payload.first(frame->n_bytes));
  }
}

}  // namespace
}  // namespace unisono::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  unisono::fuzz::read_frame(unisono::fuzz::Input(data, size).rest());
  return 0;
}
