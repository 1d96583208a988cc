#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace unisono::pipeline {

/// What a rank does with one chunk of the batch in one stage of the model.
enum class ActionKind : std::uint8_t {
  kForward,
  kBackward,        ///< Both of the following at once.
  kBackwardInput,   ///< The gradients of the stage's inputs, which the stage before waits for.
  kBackwardWeight,  ///< The gradients of its parameters, which nobody waits for.
};

/// "forward", "backward", "input gradients", "weight gradients": as in messages.
[[nodiscard]] const char* to_string(ActionKind kind) noexcept;

/// 'F', 'B', 'I', 'W': as PyTorch's tables have it.
[[nodiscard]] char letter_of(ActionKind kind) noexcept;

/// What an action of that kind adds to the activations that its rank holds.
[[nodiscard]] constexpr int change_of_activations(ActionKind kind) noexcept {
  return kind == ActionKind::kForward ? 1 : kind == ActionKind::kBackwardInput ? 0 : -1;
}

struct Action {
  ActionKind kind;
  int stage;
  int chunk;

  friend auto operator<=>(const Action&, const Action&) = default;
};

/// "forward of chunk 3 in stage 1".
[[nodiscard]] std::string describe(const Action& action);

/// Who computes which chunk when, as data: each rank's actions in their order, each done when its
/// inputs are there. What is sent follows from it: the outputs of a stage to the rank of the next
/// one, and gradients back.
///
/// Stages are the parts of the model, 0 the first. A rank may have several.
struct Schedule {
  int n_chunks = 0;                         ///< Chunks of the batch.
  std::vector<int> rank_of_stage;           ///< One for each stage.
  std::vector<std::vector<Action>> orders;  ///< One for each rank.

  [[nodiscard]] int n_ranks() const { return static_cast<int>(orders.size()); }

  [[nodiscard]] int n_stages() const { return static_cast<int>(rank_of_stage.size()); }

  friend bool operator==(const Schedule&, const Schedule&) = default;
};

/// How many stages `rank` has.
[[nodiscard]] int stages_of(const Schedule& schedule, int rank);

/// How many activations, each of one chunk in one stage, `rank` holds at most: from a forward until
/// its backward, or its weight gradients, are done. As its order says, whatever the speeds.
[[nodiscard]] int peak_activations(const Schedule& schedule, int rank);

}  // namespace unisono::pipeline
