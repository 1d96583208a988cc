#pragma once

#include <string>
#include <string_view>

#include "unisono/pipeline/schedule.h"

namespace unisono::pipeline {

/// Reads a schedule of which each line has the actions of a rank, in cells such as 0F3 (stage 0,
/// forward of chunk 3), 1B2, 1I2 and 1W2: PyTorch's table of a pipeline's computation, which its
/// schedules write as "compute_only". The placement of the stages follows from it.
///
/// Empty cells are waits, which follow from the rest. Of an overlapped pair,
/// "(0F3;7B1)OVERLAP_F_B", the actions come one after the other; UNSHARD, RESHARD and REDUCE_GRAD
/// are none. Lines end in LF or CR LF.
///
/// Throws Error(kInvalidArgument), with `name`, line, cell, rank, stage and chunk, for what is no
/// such table, or no valid schedule.
[[nodiscard]] Schedule parse_csv(std::string_view text, const std::string& name);

/// The same of a file. Throws Error, also kNotFound and kSystem.
[[nodiscard]] Schedule read_csv(const std::string& path);

/// The schedule in the same form: PyTorch reads it. Lines end in CR LF, as there.
[[nodiscard]] std::string to_csv(const Schedule& schedule);

}  // namespace unisono::pipeline
