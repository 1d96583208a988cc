#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace unisono::pipeline {

/// Converts a rank, stage or chunk, which are int, to an index of a vector.
[[nodiscard]] constexpr std::size_t as_index(int number) noexcept {
  return static_cast<std::size_t>(number);
}

/// Kind of a rank's work on a chunk of the batch in a stage of the model.
enum class ActionKind : std::uint8_t {
  kForward,
  kBackward,        ///< Input gradients and weight gradients at once.
  kBackwardInput,   ///< Gradients of the stage's inputs, which the previous stage needs.
  kBackwardWeight,  ///< Gradients of the stage's parameters, which no other stage needs.
};

/// Returns "forward", "backward", "input gradients" or "weight gradients", the words of messages.
[[nodiscard]] const char* to_string(ActionKind kind) noexcept;

/// Returns 'F', 'B', 'I' or 'W', the letters of PyTorch's tables.
[[nodiscard]] char letter_of(ActionKind kind) noexcept;

/// Returns the change in the number of activations that the rank holds.
[[nodiscard]] constexpr int change_of_activations(ActionKind kind) noexcept {
  return kind == ActionKind::kForward ? 1 : kind == ActionKind::kBackwardInput ? 0 : -1;
}

/// A rank's work on a chunk in a stage.
struct Action {
  ActionKind kind;
  int stage;
  int chunk;

  friend auto operator<=>(const Action&, const Action&) = default;
};

/// Returns "forward of chunk 3 in stage 1".
[[nodiscard]] std::string describe(const Action& action);

/// Actions of every rank, in order. An action starts when its inputs have arrived. The messages
/// follow from the schedule: the outputs of a stage go to the rank of the next stage, and gradients
/// go back.
///
/// Stages are the parts of the model, numbered from 0. A rank may have several stages. A Schedule
/// is a value; validate() checks it.
struct Schedule {
  int n_chunks = 0;                         ///< Chunks of the batch.
  std::vector<int> rank_of_stage;           ///< Rank of each stage.
  std::vector<std::vector<Action>> orders;  ///< Actions of each rank.

  [[nodiscard]] int n_ranks() const { return static_cast<int>(orders.size()); }

  [[nodiscard]] int n_stages() const { return static_cast<int>(rank_of_stage.size()); }

  friend bool operator==(const Schedule&, const Schedule&) = default;
};

/// Returns the number of stages on `rank`.
[[nodiscard]] int stages_of(const Schedule& schedule, int rank);

/// Returns the largest number of activations that `rank` holds at once, in the order of its
/// actions. An activation belongs to a chunk in a stage, and lives from the forward until the end
/// of the backward or of the weight gradients.
[[nodiscard]] int peak_activations(const Schedule& schedule, int rank);

/// A skip connection: an output of stage `from` is also an input of the later stage `to`.
struct Skip {
  int from;
  int to;
};

/// Returns the stages from which `action` needs outputs of the chunk (in backward: gradients)
/// before it can start; empty for weight gradients.
///
/// A skip connection adds no order, because the chunk has passed all stages in between. Any
/// schedule supports any skip connections.
[[nodiscard]] std::vector<int> input_stages(const Action& action,
                                            int n_stages,
                                            const std::vector<Skip>& skips = {});

/// Returns the place of an action in the order of a rank, for messages: "rank 2, action 7".
using NameOfPlace = std::function<std::string(int rank, int place)>;

/// Checks that all ranks finish the schedule at any speed of ranks and links: every chunk passes
/// every stage once, on the stage's rank, forward and then backward (at once or in two halves), and
/// ranks never wait for each other in a cycle.
///
/// Throws Error(kInvalidArgument) with a text that begins with `what` and has rank, stage, chunk
/// and the place of the action.
void validate(const Schedule& schedule,
              const std::string& what = "schedule",
              const NameOfPlace& name_of_place = {});

/// Parses a schedule from CSV with a line for each rank. A cell is an action such as 0F3 (stage 0,
/// forward of chunk 3), 1B2, 1I2 or 1W2. The format is PyTorch's table of a pipeline's computation,
/// which its schedules write as "compute_only". The table implies the placement of the stages.
///
/// Empty cells are ignored, because the waits follow from the other cells. An overlapped pair,
/// "(0F3;7B1)OVERLAP_F_B", becomes two actions in that order. UNSHARD, RESHARD and REDUCE_GRAD are
/// ignored. Lines end in LF or CR LF.
///
/// Throws Error(kInvalidArgument), with `name`, line, cell, rank, stage and chunk, for a text that
/// is not such a table, and for an invalid schedule.
[[nodiscard]] Schedule parse_csv(std::string_view text, const std::string& name);

/// Reads a file in the format of parse_csv(). Throws the errors of parse_csv(), Error(kNotFound)
/// and Error(kSystem).
[[nodiscard]] Schedule read_csv(const std::string& path);

/// Returns the format of parse_csv(), which PyTorch reads. Lines end in CR LF, like PyTorch's.
[[nodiscard]] std::string to_csv(const Schedule& schedule);

}  // namespace unisono::pipeline
