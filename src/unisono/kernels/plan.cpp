#include "unisono/kernels/plan.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <utility>
#include <vector>

#include "unisono/kernels/lanes.h"
#include "unisono/kernels/pass.h"
#include "unisono/kernels/reduce.h"
#include "unisono/kernels/reduce_tree.h"

namespace unisono::kernels {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kMaxBlockBytes = 4096;
constexpr std::size_t kScratchBytes = 32 * 1024;

class Planner {
 public:
  Planner(const ReduceTask& task, const Lanes& lanes, std::pmr::memory_resource* memory)
      : task_(task),
        lanes_(lanes),
        n_inputs_(static_cast<int>(task.inputs.size())),
        place_(task.inputs.size() + task.steps.size(), kNowhere, memory),
        last_use_(place_.size(), 0, memory),
        free_slots_(memory),
        plan_{.instructions = std::pmr::vector<Instruction>(memory)} {
    plan_.instructions.reserve(2 * task.steps.size() + 1);
    free_slots_.reserve(task.steps.size());
  }

  Plan make() {
    const auto n_steps = static_cast<int>(task_.steps.size());
    for (int i = 0; i < n_steps; ++i) {
      last_use_[index(task_.steps[index(i)].lhs)] = i;
      last_use_[index(task_.steps[index(i)].rhs)] = i;
    }
    for (int i = 0; i < n_steps; ++i) {
      add_step(i, i + 1 == n_steps);
    }
    return std::move(plan_);
  }

 private:
  static constexpr int kNowhere = -1;

  static std::size_t index(int value) { return static_cast<std::size_t>(value); }

  [[nodiscard]] bool is_element(int value) const {
    return lanes_.is_widened() && value < n_inputs_ && !task_.inputs[index(value)].is_partial;
  }

  [[nodiscard]] Pass pass(int n_inputs, bool is_input_partial, bool is_output_partial) const {
    return find_pass({.dtype = lanes_.dtype,
                      .op = lanes_.op,
                      .n_inputs = n_inputs,
                      .is_input_partial = is_input_partial,
                      .is_output_partial = is_output_partial});
  }

  void add_step(int step_index, bool is_last) {
    const ReduceStep step = task_.steps[index(step_index)];
    const bool are_elements = is_element(step.lhs) && is_element(step.rhs);
    const int lhs = are_elements ? step.lhs : place_of_partial(step.lhs);
    const int rhs = are_elements ? step.rhs : place_of_partial(step.rhs);
    release_after(step_index, step.lhs);
    release_after(step_index, step.rhs);
    // The result may take an operand's slot: a pass reads before it writes.
    const int value = n_inputs_ + step_index;
    place_[index(value)] = is_last ? kToOutputs : take_slot();
    plan_.instructions.push_back(
        {.pass = pass(2, !are_elements, !is_last || task_.output_is_partial),
         .operands = {lhs, rhs},
         .result = place_[index(value)]});
    release_after(step_index, value);
  }

  // Widens an input of elements at its first use.
  int place_of_partial(int value) {
    int& place = place_[index(value)];
    if (place == kNowhere) {
      place = value;
      if (is_element(value)) {
        place = take_slot();
        plan_.instructions.push_back(
            {.pass = pass(1, false, true), .operands = {value, value}, .result = place});
      }
    }
    return place;
  }

  int take_slot() {
    if (free_slots_.empty()) {
      return n_inputs_ + plan_.n_slots++;
    }
    const int slot = free_slots_.back();
    free_slots_.pop_back();
    return slot;
  }

  // Also releases at once what no later step reads.
  void release_after(int step_index, int value) {
    int& place = place_[index(value)];
    if (place >= n_inputs_ && last_use_[index(value)] <= step_index) {
      free_slots_.push_back(place);
      place = kNowhere;
    }
  }

  const ReduceTask& task_;
  Lanes lanes_;
  int n_inputs_;
  std::pmr::vector<int> place_;
  std::pmr::vector<int> last_use_;
  std::pmr::vector<int> free_slots_;
  Plan plan_;
};

// The memory of the slots, and how the task's buffers are cut into blocks.
class BlockRunner {
 public:
  BlockRunner(const Plan& plan, const ReduceTask& task, const Lanes& lanes)
      : plan_(plan),
        task_(task),
        input_lane_bytes_{lanes.size(false), lanes.size(true)},
        output_lane_bytes_(lanes.size(task.output_is_partial)),
        lanes_per_element_(static_cast<std::size_t>(lanes.per_element)),
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
      const void* const operands[2] = {operand(instruction.operands[0], at),
                                       operand(instruction.operands[1], at)};
      PassArgs args{.inputs = operands, .outputs = {}, .count = static_cast<std::int64_t>(n_block)};
      if (instruction.result == kToOutputs) {
        for (std::size_t i = 0; i < outputs_.size(); ++i) {
          outputs_[i] = static_cast<std::byte*>(task_.outputs[i]) + at * output_lane_bytes_;
        }
        args.outputs = outputs_;
        args.divisor = divisor_of(task_);
        args.is_streaming = task_.is_streaming;
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
  std::size_t block_bytes_ = 0;
  std::size_t block_lanes_ = 0;
  std::pmr::vector<void*> outputs_;
  std::vector<std::byte> many_slots_;
  alignas(kAlignment) std::array<std::byte, kScratchBytes> scratch_;
};

}  // namespace

Plan make_plan(const ReduceTask& task, const Lanes& lanes, std::pmr::memory_resource* memory) {
  return Planner(task, lanes, memory).make();
}

void run_plan(const Plan& plan, const ReduceTask& task, const Lanes& lanes, std::int64_t n_lanes) {
  BlockRunner(plan, task, lanes).run(static_cast<std::size_t>(n_lanes));
}

}  // namespace unisono::kernels
