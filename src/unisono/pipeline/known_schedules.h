#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "unisono/pipeline/schedule.h"
#include "unisono/pipeline/timeline.h"

namespace unisono::pipeline {

/// Sizes for which a schedule is made. All stages take the same time.
struct Setting {
  int n_ranks;
  int n_chunks;
  int stages_per_rank;  ///< Used by schedules that allow any number.
};

/// Time in which a rank does not compute, by a formula.
struct IdleTime {
  double time;
  bool is_upper_bound = false;
};

/// A schedule with a name.
struct KnownSchedule {
  const char* name;
  const char* torchs_name;  ///< PyTorch's name in small letters, or null.
  const char* help;         ///< A few words.
  /// Stages on each rank; 0: the number in the setting.
  int stages_per_rank;
  /// Returns the schedule for a setting.
  Schedule (*make)(const Setting& setting);
  /// Returns the idle time for messages that take no time; std::nullopt if the formula does not
  /// hold for the setting or for these times of a stage.
  std::optional<IdleTime> (*idle_time)(const Setting& setting, const StageTimes& times);
};

/// Returns the table of all schedules.
[[nodiscard]] std::span<const KnownSchedule> known_schedules();

/// Returns a schedule by its name, or by PyTorch's name in any case: "GPipe", "1F1B",
/// "Interleaved1F1B", "ZBVZeroBubble", "DualPipeV", with or without the prefix "Schedule".
///
/// Throws Error(kInvalidArgument) with the list of names. For a schedule that only PyTorch has, the
/// message names the nearest schedule.
[[nodiscard]] const KnownSchedule& find_schedule(std::string_view name);

// Schedules for any positive number of ranks and chunks. Other numbers throw
// Error(kInvalidArgument). Every stage adds gradients in the order of the chunks, so all schedules
// produce the same bits.
//
// Comments use p ranks, m chunks and rank r. F, I and W are the times of a chunk's forward, input
// gradients and weight gradients in a stage, equal in all stages; B = I + W. "Idle" is the time in
// which a rank does not compute. "Memory" is the largest number of activations, each for a chunk in
// a stage, that a rank holds.

/// Returns the schedule with all chunks forward, then all chunks backward. Each rank has a single
/// stage. Idle (p - 1)(F + B), memory m.
///
/// Source: Huang et al., "GPipe: Efficient training of giant neural networks using pipeline
/// parallelism", arXiv 1811.06965.
[[nodiscard]] Schedule fill_drain(int n_ranks, int n_chunks);

/// Returns the schedule that alternates one forward and one backward, after one forward for each
/// later rank. Each rank has a single stage. Idle (p - 1)(F + B), memory p - r.
///
/// Source: Narayanan et al., "Efficient large-scale language model training on GPU clusters using
/// Megatron-LM", arXiv 2104.04473, 2.2.1 (PipeDream-Flush).
[[nodiscard]] Schedule one_f_one_b(int n_ranks, int n_chunks);

/// Returns one_f_one_b() with `stages_per_rank` stages on each rank: stage s is on rank s mod p.
/// Chunks pass the pipeline in rounds of at least p if possible. If p divides m, idle is (p - 1)(F
/// + B), a `stages_per_rank`-th of the idle time with one large stage per rank; memory
/// (stages_per_rank - 1) p + 2 (p - 1 - r) + 1.
///
/// Source: Narayanan et al., arXiv 2104.04473, 2.2.2.
[[nodiscard]] Schedule interleaved(int n_ranks, int n_chunks, int stages_per_rank);

/// Returns one_f_one_b() with weight gradients delayed into idle time. All ranks have the memory of
/// rank 0, p. Idle (p - 1)(F + I - W) if W is at most F and I, and m at least p.
///
/// Source: Qi et al., "Zero bubble pipeline parallelism", arXiv 2401.10241: ZB-H1.
[[nodiscard]] Schedule zero_bubble_h1(int n_ranks, int n_chunks);

/// Memory of a V-schedule, as a share of the memory of one_f_one_b(): a third, half, all.
enum class VMemory : std::uint8_t { kMin, kHalf, kFull };

/// Returns a schedule with two stages on each rank, r and 2 p - 1 - r: the two stages of the last
/// rank are neighbours, and rank 0 has the loss. For F = I = W and m at least 2 p:
///
/// | | idle | memory |
/// | --- | --- | --- |
/// | kMin | at most 4 (p - 1) F | 2 + 2 ceil((p - 1) / 3) |
/// | kHalf | at most 3 (p - 1) F | p + 1, or p + 2 for an even p |
/// | kFull | (p - 1) F | 2 p |
///
/// one_f_one_b(), with a stage as large as these two, has idle 6 (p - 1) F and memory 2 p.
///
/// Source: Qi et al., "Pipeline parallelism with controllable memory", arXiv 2405.15362: V-Min,
/// V-Half and V-ZB.
[[nodiscard]] Schedule v_schedule(int n_ranks, int n_chunks, VMemory memory);

/// Returns a schedule with two stages on each rank, placed as in v_schedule(). After a start,
/// forwards of one stage alternate with backwards of the other, so that messages of one stage
/// travel while the other stage computes. Memory 2 p + 1; idle (p - 1)(F + I - W) if W <= I <= F
/// and m is at least 2 p.
///
/// Source: DeepSeek-AI, "DeepSeek-V3 technical report", arXiv 2412.19437, 3.2.1, for a single copy
/// of the model instead of two (DualPipeV).
[[nodiscard]] Schedule dual_pipe_v(int n_ranks, int n_chunks);

}  // namespace unisono::pipeline
