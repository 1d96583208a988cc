#include "unisono/kernels/plan.h"

#include <algorithm>
#include <cstddef>
#include <memory_resource>
#include <utility>
#include <vector>

#include "unisono/kernels/lanes.h"
#include "unisono/kernels/pass.h"
#include "unisono/kernels/reduce.h"
#include "unisono/kernels/reduce_tree.h"
#include "unisono/kernels/subtree.h"

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
    // Of a step whose inputs one pass combines, from their elements.
    Pass wide_pass = nullptr;
    // The last step that reads it; the result is read after all steps.
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

  // Null where the inputs differ in representation or no pass takes so many.
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
      // The result may take an operand's slot: a pass reads before it writes.
      release_after(step_index, step.lhs);
      release_after(step_index, step.rhs);
    }
    instruction.result = step_index + 1 == n_steps_ ? kToOutputs : take_slot();
    values_[index(result)].place = instruction.result;
    plan_.instructions.push_back(instruction);
  }

  // Makes a partial value of an input of elements at its first use.
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

}  // namespace unisono::kernels
