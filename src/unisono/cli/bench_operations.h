#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "unisono/base/buffer.h"
#include "unisono/base/reduction.h"
#include "unisono/comm/process_group.h"

namespace unisono::cli::bench {

/// Rank and world size.
struct RankPlace {
  int rank = 0;
  int world_size = 1;
};

/// Meaning of a size in bytes.
enum class Extent {
  kNone,    ///< No data.
  kVector,  ///< The elements of a rank; every rank has the same number.
  kChunks   ///< The elements of all ranks together; each rank has an equal chunk.
};

/// Elements of a rank's buffers.
struct Counts {
  std::int64_t in = 0;
  std::int64_t out = 0;
};

/// Arguments of a call on one rank. For an operation in place, `in` equals `out`.
struct BenchCall {
  Buffer in;
  Buffer out;
  Algorithm algorithm = Algorithm::kAuto;
};

/// Source of a scalar of a rank's result.
struct Origin {
  static constexpr int kSumOfRanks = -1;

  int rank = kSumOfRanks;
  std::int64_t index = 0;  ///< Index among the scalars of the source rank's input.
};

/// An operation of ProcessGroup with the properties that a measurement needs.
struct BenchOperation {
  const char* name;
  Extent extent;
  bool is_in_place = false;
  bool adds_up = false;  ///< The result is a sum over ranks.
  /// Algorithms that the caller may choose besides Algorithm::kAuto.
  std::span<const Algorithm> algorithms = {};
  int min_ranks = 1;    ///< Smallest world size.
  int n_transfers = 1;  ///< Divisor of a call's time.
  /// Returns bus bandwidth / algorithm bandwidth, as nccl-tests defines it.
  double (*bus_factor)(double world_size);
  /// Returns the numbers of elements of this rank's buffers, for a size of `n_elems` elements.
  Counts (*counts)(RankPlace place, std::int64_t n_elems);
  /// Calls the operation on this rank and waits for its end.
  void (*call)(ProcessGroup& group, const BenchCall& call);
  /// Returns the source of scalar `index` of the `n_scalars` in this rank's `out`.
  Origin (*origin)(RankPlace place, std::int64_t n_scalars, std::int64_t index);
};

/// Returns `wanted` if the operation has that algorithm, otherwise Algorithm::kAuto.
[[nodiscard]] Algorithm algorithm_of(const BenchOperation& operation, Algorithm wanted);

/// Returns the names of the operations without that algorithm: "broadcast, all_gather".
[[nodiscard]] std::string names_without(std::span<const BenchOperation> operations,
                                        Algorithm wanted);

/// Returns all operations that can be measured.
[[nodiscard]] std::span<const BenchOperation> operation_table();

/// Returns the operation with that name, or all operations for "all". Throws
/// Error(kInvalidArgument) for an unknown name, and for an algorithm that the operation does not
/// have.
[[nodiscard]] std::span<const BenchOperation> find_operations(const std::string& name,
                                                              Algorithm algorithm);

/// Returns the number of elements for a size in bytes, rounded up to whole elements and to equal
/// chunks on all ranks.
[[nodiscard]] std::int64_t count_elements(const BenchOperation& operation,
                                          std::int64_t n_bytes,
                                          DType dtype,
                                          int world_size);

/// Calls the operation on data that reveals every wrong element, and returns the number of wrong
/// elements on all ranks. Returns std::nullopt if a check is impossible (a barrier between machines
/// with different clocks). Overwrites the buffers. Collective.
[[nodiscard]] std::optional<std::int64_t> check(ProcessGroup& group,
                                                const BenchOperation& operation,
                                                const BenchCall& call);

}  // namespace unisono::cli::bench
