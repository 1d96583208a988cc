#include "fake_clique.h"

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fake_calls.h"

namespace fake_nccl {
namespace {

// Waits for `is_over`. Returns true if `is_over` is true, and false if the communicator has ended.
template <class IsOver>
bool wait(ncclComm& comm, std::unique_lock<std::mutex>& lock, const IsOver& is_over) {
  while (!comm.is_aborted && (has_fault("hang") || !is_over())) {
    comm.clique->changed.wait_for(lock, std::chrono::milliseconds(5));
  }
  return !comm.is_aborted;
}

void write(const std::vector<Write>& writes) {
  for (const Write& one : writes) {
    if (!one.bytes.empty()) {
      std::memcpy(one.to, one.bytes.data(), one.bytes.size());
    }
  }
}

// Takes the oldest message from the call's peer. Returns std::nullopt if the communicator ends
// first.
std::optional<Write> receive(ncclComm& comm, std::unique_lock<std::mutex>& lock, const Call& call) {
  std::deque<Sent*>& queue = comm.clique->messages[{call.peer, comm.rank}];
  if (!wait(comm, lock, [&] { return !queue.empty(); })) {
    return std::nullopt;
  }
  Sent& sent = *queue.front();
  queue.pop_front();
  const bool fits = sent.call.count == call.count && sent.call.type == call.type;
  sent.result = fits ? ncclSuccess : ncclInvalidArgument;
  comm.clique->changed.notify_all();
  if (!fits) {
    comm.state = ncclInvalidArgument;
    return std::nullopt;
  }
  return Write{.to = call.out, .bytes = bytes_of(sent.call)};
}

}  // namespace

bool has_fault(const char* name) {
  const char* const fault = std::getenv("FAKE_GPU_FAULT");
  return fault != nullptr && std::string(fault) == name;
}

void meet(ncclComm& comm, std::size_t number) {
  Clique& clique = *comm.clique;
  std::unique_lock lock(clique.mutex);
  const auto have_all = [&](const std::map<std::size_t, int>& n) {
    return wait(comm, lock, [&] { return n.at(number) >= clique.world_size; });
  };
  ++clique.n_posted[number];
  clique.n_computed.emplace(number, 0);
  clique.changed.notify_all();
  if (has_fault("remote_error") && comm.rank == 0) {
    comm.state = ncclRemoteError;
  }
  if (!have_all(clique.n_posted) || comm.state == ncclRemoteError) {
    return;
  }
  const auto writes = compute(clique.groups[number], comm.rank);
  ++clique.n_computed[number];
  clique.changed.notify_all();
  if (!writes) {
    comm.state = ncclInvalidArgument;
    return;
  }
  // Buffers may be inputs of other ranks until all ranks have read these inputs.
  if (have_all(clique.n_computed)) {
    write(*writes);
  }
}

void exchange(ncclComm& comm, const std::vector<Call>& calls) {
  Clique& clique = *comm.clique;
  std::unique_lock lock(clique.mutex);
  std::deque<Sent> sent;
  for (const Call& call : calls) {
    if (call.kind == Kind::kSend) {
      clique.messages[{comm.rank, call.peer}].push_back(&sent.emplace_back(Sent{.call = call}));
    }
  }
  clique.changed.notify_all();
  std::vector<Write> writes;
  for (const Call& call : calls) {
    std::optional<Write> received;
    if (call.kind == Kind::kRecv && (received = receive(comm, lock, call))) {
      writes.push_back(std::move(*received));
    }
  }
  for (Sent& one : sent) {
    (void)wait(comm, lock, [&] { return one.result != ncclInProgress; });
    // Removes the message of an aborted communicator.
    std::erase(clique.messages[{comm.rank, one.call.peer}], &one);
    if (one.result == ncclInvalidArgument) {
      comm.state = ncclInvalidArgument;
    }
  }
  if (!comm.is_aborted && comm.state == ncclSuccess) {
    write(writes);
  }
}

}  // namespace fake_nccl
