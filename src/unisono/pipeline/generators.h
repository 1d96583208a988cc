#pragma once

#include <cstdint>

#include "unisono/pipeline/schedule.h"

namespace unisono::pipeline {

// For any number of ranks and chunks, at least 1 each; else they throw Error(kInvalidArgument).
// Each stage adds gradients up in the order of the chunks, so all of them come to the same bits.
//
// Of p ranks and m chunks: F, I and W are what a chunk's forward, input gradients and weight
// gradients take in one stage, all stages alike; B = I + W. "Idle" is the time in which a rank does
// not compute, "memory" the most activations of a chunk in a stage that it holds.

/// All chunks forward, then all backward. A stage per rank. Idle (p - 1)(F + B), memory m.
///
/// Source: Huang et al., "GPipe: Efficient training of giant neural networks using pipeline
/// parallelism", arXiv 1811.06965.
[[nodiscard]] Schedule fill_drain(int n_ranks, int n_chunks);

/// One forward, one backward, after as many forwards as there are ranks behind. A stage per rank.
/// Idle (p - 1)(F + B), memory p - r on rank r.
///
/// Source: Narayanan et al., "Efficient large-scale language model training on GPU clusters using
/// Megatron-LM", arXiv 2104.04473, 2.2.1 (PipeDream-Flush).
[[nodiscard]] Schedule one_f_one_b(int n_ranks, int n_chunks);

/// The same with `stages_per_rank` stages on each rank: stage s on rank s mod p. Chunks go through
/// the pipeline in rounds of p or a few more. Idle (p - 1)(F + B) where p divides m, which is
/// `stages_per_rank` times less than with one stage as large as all of a rank's; memory
/// (stages_per_rank - 1) p + 2 (p - 1 - r) + 1.
///
/// Source: the same paper, 2.2.2.
[[nodiscard]] Schedule interleaved(int n_ranks, int n_chunks, int stages_per_rank);

/// As one_f_one_b, with weight gradients put off into what would be idle time: all ranks hold as
/// much as the first. Idle (p - 1)(F + I - W) where W is not more than F and I and m at least p;
/// memory p.
///
/// Source: Qi et al., "Zero bubble pipeline parallelism", arXiv 2401.10241: ZB-H1.
[[nodiscard]] Schedule zero_bubble_h1(int n_ranks, int n_chunks);

/// Which memory a V-schedule has, in parts of what one_f_one_b has: a third, half, all.
enum class VMemory : std::uint8_t { kMin, kHalf, kFull };

/// Two stages on each rank, r and 2 p - 1 - r, so that the last rank's follow each other and the
/// first rank has the loss. For F = I = W and m at least 2 p:
///
/// | | idle | memory |
/// | --- | --- | --- |
/// | kMin | at most 4 (p - 1) F | 2 + 2 ceil((p - 1) / 3) |
/// | kHalf | at most 3 (p - 1) F | p + 1, or p + 2 for an even p |
/// | kFull | (p - 1) F | 2 p |
///
/// one_f_one_b, with one stage as large as these two, has idle 6 (p - 1) F and memory 2 p.
///
/// Source: Qi et al., "Pipeline parallelism with controllable memory", arXiv 2405.15362: V-Min,
/// V-Half and V-ZB.
[[nodiscard]] Schedule v_schedule(int n_ranks, int n_chunks, VMemory memory);

/// Two stages on each rank, placed as in v_schedule: after a start the forwards of one go along
/// with the backwards of the other, so that messages of the one pass while the other computes.
/// Memory 2 p + 1; idle (p - 1)(F + I - W) where W is not more than I, I not more than F, and m at
/// least 2 p.
///
/// Source: DeepSeek-AI, "DeepSeek-V3 technical report", arXiv 2412.19437, 3.2.1, for a model that
/// is there once instead of twice (DualPipeV).
[[nodiscard]] Schedule dual_pipe_v(int n_ranks, int n_chunks);

}  // namespace unisono::pipeline
