// The ranks of a communicator of the fake libnccl.so.2, and the execution of calls in their
// streams.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "unisono/engine/nccl/nccl_api.h"

#include "fake_calls.h"

namespace fake_nccl {

/// A message with a waiting sender.
struct Sent {
  const Call& call;
  ncclResult_t result = ncclInProgress;
};

/// The shared state of the ranks of a communicator.
struct Clique {
  std::mutex mutex;
  std::condition_variable changed;
  int world_size = 0;
  std::map<int, int> devices;                                 // Devices by rank.
  std::map<std::pair<int, int>, std::deque<Sent*>> messages;  // Messages by sender and receiver.
  // Calls by number of the group, then by rank.
  std::map<std::size_t, std::vector<std::vector<Call>>> groups;
  std::map<std::size_t, int> n_posted;
  std::map<std::size_t, int> n_computed;
};

/// Returns true if FAKE_GPU_FAULT has this value.
[[nodiscard]] bool has_fault(const char* name);

/// Executes collective calls, which must be the same on all ranks. Runs on the thread of the rank's
/// stream.
void meet(ncclComm& comm, std::size_t number);

/// Transfers messages between pairs of ranks. Ranks without messages need not take part. Runs on
/// the thread of the rank's stream.
void exchange(ncclComm& comm, const std::vector<Call>& calls);

}  // namespace fake_nccl

/// The name of the type in NCCL.
struct ncclComm {  // NOLINT(readability-identifier-naming)
  std::shared_ptr<fake_nccl::Clique> clique;
  int rank = 0;
  std::size_t n_groups = 0;
  std::atomic<bool> is_aborted = false;
  std::atomic<ncclResult_t> state = ncclInProgress;
};
