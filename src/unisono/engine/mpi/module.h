#pragma once

#include <array>
#include <cstddef>

#include "unisono/base/dtype.h"
#include "unisono/base/reduce_kind.h"

namespace unisono::engine::mpi {

// What the engine and a module say to each other. The module is compiled once for each MPI, with
// its mpi.h, and loaded by the process that this MPI started; nothing else links an MPI.

/// Changes with every change of this file.
inline constexpr int kModuleVersion = 1;

/// The function that a module exports, of type FindModule.
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

/// One rank's part in a collective operation. Lists have an entry for each rank, in elements, and
/// live until the operation is done.
struct CollectiveCall {
  Collective collective = Collective::kBarrier;
  DType dtype = DType::kInt8;
  ReduceKind reduce = ReduceKind::kSum;  ///< None with a parameter; kAvg is the sum.
  int root = 0;
  int count = 0;  ///< Of the vector, of each block, or, where blocks differ, of this rank's own.
  bool is_in_place = false;     ///< This rank's part of `send` is where `receive` has it.
  bool has_own_counts = false;  ///< Blocks differ: the lists say how; else they are null.
  const void* send = nullptr;
  void* receive = nullptr;
  const int* send_counts = nullptr;
  const int* send_offsets = nullptr;
  const int* receive_counts = nullptr;
  const int* receive_offsets = nullptr;
};

/// A handle of the MPI's: a pointer in one, a number in the other.
struct Handle {
  alignas(void*) std::array<std::byte, sizeof(void*)> bytes = {};
};

/// How an MPI runs in this process.
struct Started {
  int rank = 0;
  int world_size = 0;
  bool is_thread_safe = false;     ///< Else one thread may call it at a time.
  bool is_for_any_thread = false;  ///< Else only the thread that has initialized it.
  int largest_tag = 0;
};

/// An MPI's functions, as a module has them. Those that return int return 0, or the MPI's error.
struct Module {
  int version = kModuleVersion;

  /// Initializes the MPI, unless the program has done so. Then finalizes it, too, when the process
  /// exits, unless give_up() was called.
  int (*start)(Started* started) = nullptr;

  /// A communicator of these ranks of the MPI's world. All of them call it; waits for them. Calls
  /// at the same time have tags of their own.
  int (*join)(const int* ranks, int n_ranks, int tag, Handle* communicator) = nullptr;

  /// Ends a communicator; does nothing after MPI_Finalize.
  int (*leave)(Handle* communicator) = nullptr;

  /// Begins an operation, without waiting.
  int (*begin)(const Handle* communicator, const CollectiveCall* call, Handle* request) = nullptr;

  /// Moves it on; sets `is_done` once it is done, and the request is no more.
  int (*advance)(Handle* request, bool* is_done) = nullptr;

  /// Has the MPI move what it still holds for other ranks.
  void (*move)() = nullptr;

  /// A group has failed, and with it may have other ranks: the process ends without MPI_Finalize.
  void (*give_up)() = nullptr;

  /// What an error means, in a buffer of `n_bytes`.
  void (*describe)(int error, char* text, int n_bytes) = nullptr;
};

using FindModule = const Module* (*)();

}  // namespace unisono::engine::mpi
