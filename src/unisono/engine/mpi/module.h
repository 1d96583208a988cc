#pragma once

#include <array>
#include <cstddef>

#include "unisono/base/buffer.h"
#include "unisono/base/reduction.h"

namespace unisono::engine::mpi {

// Interface between the engine and a module. The module is compiled once for each MPI, with its
// mpi.h, and loaded by a process that this MPI has started. No other part links an MPI.

/// Must change with every change of this file.
inline constexpr int kModuleVersion = 1;

/// Name of the function that a module exports, of type FindModule.
inline constexpr const char* kFindModule = "unisono_mpi_module";

enum class Collective {
  kBarrier,
  kBroadcast,
  kAllReduce,
  kReduce,
  kReduceScatter,
  kAllGather,
  kGather,
  kScatter,
  kAllToAll
};

/// A rank's part in a collective operation. The lists have an entry for each rank, in elements, and
/// must live until the operation is done.
struct CollectiveCall {
  Collective collective = Collective::kBarrier;
  DType dtype = DType::kInt8;
  ReduceKind reduce = ReduceKind::kSum;  ///< Without parameters; kAvg is executed as the sum.
  int root = 0;
  /// Elements of the vector or of each block; of this rank's block if blocks differ.
  int count = 0;
  bool is_in_place = false;  ///< This rank's part of `send` is already in `receive`.
  /// Blocks differ, and the lists are set; otherwise the lists are null.
  bool has_own_counts = false;
  const void* send = nullptr;
  void* receive = nullptr;
  const int* send_counts = nullptr;
  const int* send_offsets = nullptr;
  const int* receive_counts = nullptr;
  const int* receive_offsets = nullptr;
};

/// A handle of the MPI: a pointer in Open MPI, a number in MPICH.
struct Handle {
  alignas(void*) std::array<std::byte, sizeof(void*)> bytes = {};
};

/// State of the MPI in this process.
struct MpiRuntime {
  int rank = 0;
  int world_size = 0;
  bool is_thread_safe = false;     ///< False: a single thread may call at any time.
  bool is_for_any_thread = false;  ///< False: only the initializing thread may call.
  int largest_tag = 0;
};

/// Functions of an MPI, exported by its module. Functions with an int result return 0 or the MPI's
/// error code.
struct Module {
  int version = kModuleVersion;

  /// Initializes the MPI, unless the program has done so. In that case also finalizes the MPI at
  /// the exit of the process, unless give_up() was called.
  int (*start)(MpiRuntime* started) = nullptr;

  /// Makes a communicator of these ranks of the MPI's world. All ranks must call; waits for all.
  /// Concurrent calls need different tags.
  int (*join)(const int* ranks, int n_ranks, int tag, Handle* communicator) = nullptr;

  /// Frees a communicator; does nothing after MPI_Finalize.
  int (*leave)(Handle* communicator) = nullptr;

  /// Begins an operation without waiting.
  int (*begin)(const Handle* communicator, const CollectiveCall* call, Handle* request) = nullptr;

  /// Advances the request. Sets `is_done` when the request is complete and no longer valid.
  int (*advance)(Handle* request, bool* is_done) = nullptr;

  /// Lets the MPI send data that it still holds for other ranks.
  void (*move)() = nullptr;

  /// Called after a failure of a group, with which other ranks may have failed: the process exits
  /// without MPI_Finalize.
  void (*give_up)() = nullptr;

  /// Writes the text of an error into a buffer of `n_bytes`.
  void (*describe)(int error, char* text, int n_bytes) = nullptr;
};

using FindModule = const Module* (*)();

}  // namespace unisono::engine::mpi
