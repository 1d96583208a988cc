#include "unisono/kernels/plan.h"

#include <algorithm>
#include <span>
#include <utility>

namespace unisono::kernels {
namespace {

constexpr int kNowhere = -1;
constexpr int kNever = -1;

std::size_t index(int value) {
  return static_cast<std::size_t>(value);
}

class Planner {
 public:
  Planner(const ReduceTask& task, const Lanes& lanes, std::pmr::memory_resource* memory)
      : task_(task),
        lanes_(lanes),
        n_inputs_(static_cast<int>(task.inputs.size())),
        n_steps_(static_cast<int>(task.steps.size())),
        values_(task.inputs.size() + task.steps.size(), memory),
        free_slots_(memory),
        plan_{.instructions = std::pmr::vector<Instruction>(memory)} {}

  Plan make() {
    find_subtrees();
    find_uses();
    plan_.instructions.reserve(values_.size());
    free_slots_.reserve(task_.steps.size());
    for (int step = 0; step < n_steps_; ++step) {
      if (values_[index(n_inputs_ + step)].last_use != kNever) {
        add_step(step);
      }
    }
    return std::move(plan_);
  }

 private:
  struct Value {
    Subtree subtree;
    // Pass that combines all inputs of the step's subtree at once; null if there is none.
    Pass wide_pass = nullptr;
    // Index of the last step that reads the value. The result is read after all steps.
    int last_use = kNever;
    int place = kNowhere;
  };

  void find_subtrees() {
    for (int i = 0; i < n_inputs_; ++i) {
      values_[index(i)].subtree = {.from = i, .to = i + 1};
    }
    for (int i = 0; i < n_steps_; ++i) {
      const ReduceStep step = task_.steps[index(i)];
      values_[index(n_inputs_ + i)].subtree =
          join(values_[index(step.lhs)].subtree, values_[index(step.rhs)].subtree);
    }
  }

  void find_uses() {
    values_.back().last_use = n_steps_;
    for (int i = n_steps_ - 1; i >= 0; --i) {
      Value& value = values_[index(n_inputs_ + i)];
      if (value.last_use == kNever) {
        continue;
      }
      value.wide_pass = wide_pass(value.subtree, i);
      if (value.wide_pass == nullptr) {
        const ReduceStep step = task_.steps[index(i)];
        use(step.lhs, i);
        use(step.rhs, i);
      }
    }
  }

  void use(int value, int step) {
    values_[index(value)].last_use = std::max(values_[index(value)].last_use, step);
  }

  [[nodiscard]] bool is_element(int value) const {
    return lanes_.are_partials_apart() && value < n_inputs_ &&
           !task_.inputs[index(value)].is_partial;
  }

  [[nodiscard]] bool is_output_partial(int step) const {
    return step + 1 < n_steps_ || task_.output_is_partial;
  }

  [[nodiscard]] Pass pass(int n_inputs, bool is_input_partial, bool is_output_partial) const {
    return find_pass({.dtype = lanes_.dtype,
                      .op = lanes_.op,
                      .n_inputs = n_inputs,
                      .is_input_partial = is_input_partial,
                      .is_output_partial = is_output_partial});
  }

  // Returns null if the inputs differ in representation or if no pass supports their number.
  [[nodiscard]] Pass wide_pass(Subtree subtree, int step) const {
    if (subtree.size() < 2 || subtree.size() > kMaxPassInputs) {
      return nullptr;
    }
    const bool are_elements = is_element(subtree.from);
    for (int i = subtree.from; i < subtree.to; ++i) {
      if (is_element(i) != are_elements) {
        return nullptr;
      }
    }
    return pass(subtree.size(), !are_elements, is_output_partial(step));
  }

  void add_step(int step_index) {
    const ReduceStep step = task_.steps[index(step_index)];
    const int result = n_inputs_ + step_index;
    Instruction instruction{};
    if (values_[index(result)].wide_pass != nullptr) {
      const Subtree subtree = values_[index(result)].subtree;
      instruction.pass = values_[index(result)].wide_pass;
      for (int i = subtree.from; i < subtree.to; ++i) {
        instruction.operands[index(instruction.n_operands++)] = i;
      }
    } else {
      instruction.pass = pass(2, true, is_output_partial(step_index));
      instruction.n_operands = 2;
      instruction.operands = {place_of_partial(step.lhs), place_of_partial(step.rhs)};
      // The result may reuse an operand's slot, because a pass reads each block before writing it.
      release_after(step_index, step.lhs);
      release_after(step_index, step.rhs);
    }
    instruction.result = step_index + 1 == n_steps_ ? kToOutputs : take_slot();
    values_[index(result)].place = instruction.result;
    plan_.instructions.push_back(instruction);
  }

  // Converts an input of elements to a partial value at its first use.
  int place_of_partial(int value) {
    int& place = values_[index(value)].place;
    if (place == kNowhere) {
      place = value;
      if (is_element(value)) {
        place = take_slot();
        plan_.instructions.push_back(
            {.pass = pass(1, false, true), .n_operands = 1, .operands = {value}, .result = place});
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

  void release_after(int step, int value) {
    Value& released = values_[index(value)];
    if (released.place >= n_inputs_ && released.last_use == step) {
      free_slots_.push_back(released.place);
      released.place = kNowhere;
    }
  }

  const ReduceTask& task_;
  Lanes lanes_;
  int n_inputs_;
  int n_steps_;
  std::pmr::vector<Value> values_;
  std::pmr::vector<int> free_slots_;
  Plan plan_;
};

}  // namespace

Plan make_plan(const ReduceTask& task, const Lanes& lanes, std::pmr::memory_resource* memory) {
  return Planner(task, lanes, memory).make();
}

namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kMaxBlockBytes = 4096;
constexpr std::size_t kScratchBytes = std::size_t{32} * 1024;

// Owns the memory of the slots and divides the task's buffers into blocks.
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
  // Returns the size of the first block in lanes. The block ends at the first address of the first
  // output that is aligned for streaming stores, so that all later blocks start at an aligned
  // address.
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
