// The ranks of a communicator of the fake libnccl.so.2, and how they carry out what their streams
// come to.
#pragma once

#include <nccl.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "fake_calls.h"

namespace fake_nccl {

/// A message that its sender waits for.
struct Sent {
  const Call& call;
  ncclResult_t result = ncclInProgress;
};

/// What the ranks of a communicator share.
struct Clique {
  std::mutex mutex;
  std::condition_variable changed;
  int world_size = 0;
  std::map<int, int> devices;                                    // By rank.
  std::map<std::pair<int, int>, std::deque<Sent*>> messages;     // By sender and receiver.
  std::map<std::size_t, std::vector<std::vector<Call>>> groups;  // By number, then rank.
  std::map<std::size_t, int> n_posted;
  std::map<std::size_t, int> n_computed;
};

/// Whether FAKE_NCCL_FAULT is that.
[[nodiscard]] bool has_fault(const char* name);

/// Carries out collective calls: the same of all ranks. On the thread of the rank's stream.
void meet(ncclComm& comm, std::size_t number);

/// Passes messages: between two ranks each, so that who has none need not come. On the thread of
/// the rank's stream.
void exchange(ncclComm& comm, const std::vector<Call>& calls);

}  // namespace fake_nccl

/// NCCL's name.
struct ncclComm {  // NOLINT(readability-identifier-naming)
  std::shared_ptr<fake_nccl::Clique> clique;
  int rank = 0;
  std::size_t n_groups = 0;
  std::atomic<bool> is_aborted = false;
  std::atomic<ncclResult_t> state = ncclInProgress;
};
