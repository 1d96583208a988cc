#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "unisono/kernels/lanes.h"
#include "unisono/kernels/pass.h"
#include "unisono/kernels/plan.h"
#include "unisono/kernels/reduce.h"

namespace unisono::kernels {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kMaxBlockBytes = 4096;
constexpr std::size_t kScratchBytes = std::size_t{32} * 1024;

// The memory of the slots, and how the task's buffers are cut into blocks.
class BlockRunner {
 public:
  BlockRunner(const Plan& plan, const ReduceTask& task, const Lanes& lanes, bool is_streaming)
      : plan_(plan),
        task_(task),
        input_lane_bytes_{lanes.size(false), lanes.size(true)},
        output_lane_bytes_(lanes.size(task.output_is_partial)),
        lanes_per_element_(static_cast<std::size_t>(lanes.per_element)),
        is_streaming_(is_streaming),
        outputs_(task.outputs.begin(), task.outputs.end(), plan.instructions.get_allocator()) {
    const auto n_slots = static_cast<std::size_t>(std::max(plan.n_slots, 1));
    const std::size_t share = kScratchBytes / n_slots / kAlignment * kAlignment;
    block_bytes_ = std::clamp(share, kAlignment, kMaxBlockBytes);
    if (n_slots * block_bytes_ > kScratchBytes) {
      many_slots_.resize(n_slots * block_bytes_);
    }
    block_lanes_ = block_bytes_ / lanes.size(true);
  }

  void run(std::size_t n_lanes) {
    std::size_t at = 0;
    std::size_t n_block = std::min(first_block(), n_lanes);
    while (at < n_lanes) {
      run_block(at, n_block);
      at += n_block;
      n_block = std::min(block_lanes_, n_lanes - at);
    }
  }

 private:
  // Ends where the first output reaches an address that can be streamed to, so that all later
  // blocks start at one.
  [[nodiscard]] std::size_t first_block() const {
    const auto address = reinterpret_cast<std::uintptr_t>(task_.outputs.front());
    const std::size_t bytes = (0 - address) % kAlignment;
    const std::size_t n_lanes = bytes / output_lane_bytes_;
    const bool is_reached = bytes % (output_lane_bytes_ * lanes_per_element_) == 0;
    return bytes != 0 && is_reached ? std::min(n_lanes, block_lanes_) : block_lanes_;
  }

  [[nodiscard]] const void* operand(int place, std::size_t at) {
    const auto n_inputs = static_cast<int>(task_.inputs.size());
    if (place >= n_inputs) {
      return slot(place - n_inputs);
    }
    const ReduceInput& input = task_.inputs[static_cast<std::size_t>(place)];
    return static_cast<const std::byte*>(input.data) + at * input_lane_bytes_[input.is_partial];
  }

  [[nodiscard]] void* slot(int number) {
    std::byte* slots = many_slots_.empty() ? scratch_.data() : many_slots_.data();
    return slots + static_cast<std::size_t>(number) * block_bytes_;
  }

  void run_block(std::size_t at, std::size_t n_block) {
    for (const Instruction& instruction : plan_.instructions) {
      std::array<const void*, kMaxPassInputs> operands;
      for (std::size_t i = 0; i < static_cast<std::size_t>(instruction.n_operands); ++i) {
        operands[i] = operand(instruction.operands[i], at);
      }
      PassArgs args{.inputs = operands.data(),
                    .outputs = {},
                    .count = static_cast<std::int64_t>(n_block),
                    .factor = task_.factor,
                    .user = task_.user};
      if (instruction.result == kToOutputs) {
        for (std::size_t i = 0; i < outputs_.size(); ++i) {
          outputs_[i] = static_cast<std::byte*>(task_.outputs[i]) + at * output_lane_bytes_;
        }
        args.outputs = outputs_;
        args.divisor = divisor_of(task_);
        args.is_streaming = is_streaming_;
        instruction.pass(args);
      } else {
        void* const result = slot(instruction.result - static_cast<int>(task_.inputs.size()));
        args.outputs = std::span(&result, 1);
        instruction.pass(args);
      }
    }
  }

  const Plan& plan_;
  const ReduceTask& task_;
  std::array<std::size_t, 2> input_lane_bytes_;
  std::size_t output_lane_bytes_;
  std::size_t lanes_per_element_;
  bool is_streaming_;
  std::size_t block_bytes_ = 0;
  std::size_t block_lanes_ = 0;
  std::pmr::vector<void*> outputs_;
  std::vector<std::byte> many_slots_;
  alignas(kAlignment) std::array<std::byte, kScratchBytes> scratch_;
};

}  // namespace

void run_plan(const Plan& plan,
              const ReduceTask& task,
              const Lanes& lanes,
              std::int64_t n_lanes,
              bool is_streaming) {
  BlockRunner(plan, task, lanes, is_streaming).run(static_cast<std::size_t>(n_lanes));
}

}  // namespace unisono::kernels
