#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "unisono/base/algorithm.h"
#include "unisono/base/buffer.h"
#include "unisono/comm/process_group.h"

namespace unisono::cli::bench {

/// Which rank of how many.
struct Place {
  int rank = 0;
  int world_size = 1;
};

/// What a size in bytes stands for.
enum class Extent {
  kNone,    ///< Nothing is moved.
  kVector,  ///< The elements that every rank has.
  kChunks   ///< Elements of which each rank has, or gets, an equal chunk.
};

/// Elements of a rank's buffers.
struct Counts {
  std::int64_t in = 0;
  std::int64_t out = 0;
};

/// The arguments of a call on one rank. In place `in` is the same as `out`.
struct Call {
  Buffer in;
  Buffer out;
  Algorithm algorithm = Algorithm::kAuto;
};

/// Where a scalar of a rank's result comes from.
struct Origin {
  static constexpr int kSumOfRanks = -1;

  int rank = kSumOfRanks;
  std::int64_t index = 0;  ///< Among the scalars that the rank put in.
};

/// An operation of ProcessGroup, and what there is to know of it to measure it.
struct Operation {
  const char* name;
  Extent extent;
  bool is_in_place = false;
  bool adds_up = false;  ///< The result is a sum over ranks.
  /// Those that the caller may choose, beside Algorithm::kAuto.
  std::span<const Algorithm> algorithms = {};
  int min_ranks = 1;    ///< Fewer can't call it.
  int n_transfers = 1;  ///< A call's time is divided by this.
  /// Bus bandwidth / algorithm bandwidth, as nccl-tests has it.
  double (*bus_factor)(double world_size);
  /// Elements of this rank's buffers, where a size stands for `n_elems` in all.
  Counts (*counts)(Place place, std::int64_t n_elems);
  void (*call)(ProcessGroup& group, const Call& call);
  /// For scalar `index` of `n_scalars` in this rank's `out`.
  Origin (*origin)(Place place, std::int64_t n_scalars, std::int64_t index);
};

/// The algorithm, where the operation has it; else Algorithm::kAuto.
[[nodiscard]] Algorithm algorithm_of(const Operation& operation, Algorithm wanted);

/// The names of those operations that don't have the algorithm: "broadcast, all_gather".
[[nodiscard]] std::string names_without(std::span<const Operation> operations, Algorithm wanted);

/// Every operation that can be measured.
[[nodiscard]] std::span<const Operation> operation_table();

/// The operation of that name, or all for "all". Throws Error(kInvalidArgument) for other names,
/// and for an algorithm that the operation does not have.
[[nodiscard]] std::span<const Operation> find_operations(const std::string& name,
                                                         Algorithm algorithm);

/// Elements that a size in bytes stands for: rounded up to whole elements, and so that every rank
/// has as many as the others.
[[nodiscard]] std::int64_t count_elements(const Operation& operation,
                                          std::int64_t n_bytes,
                                          DType dtype,
                                          int world_size);

/// Calls the operation on data that makes every wrong element known, and returns how many there are
/// on all ranks; nothing when that can't be told (a barrier between machines whose clocks differ).
/// Overwrites the buffers. A collective call.
[[nodiscard]] std::optional<std::int64_t> check(ProcessGroup& group,
                                                const Operation& operation,
                                                const Call& call);

}  // namespace unisono::cli::bench
