#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/StringUtil.h>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"

#include "arguments.h"
#include "backend.h"
#include "backend_run.h"
#include "errors.h"
#include "staging.h"

namespace unisono::python {

using c10d::OpType;

namespace {

struct MissedBarrier {
  int rank;
  int world_size;
  std::chrono::milliseconds limit;
  bool names_all;
  std::string_view cause;
};

// The ranks that the core's message says have not come: "timed out waiting for rank 1 (pid 5 on a),
// which is in barrier #3, and rank 3 (pid 7 on a)".
std::vector<int> ranks_missing(const MissedBarrier& missed) {
  constexpr std::string_view kList = "timed out waiting for ";
  std::vector<int> ranks;
  const std::size_t begin = missed.cause.rfind(kList);
  if (begin == std::string_view::npos) {
    return ranks;
  }
  const std::string_view list = missed.cause.substr(begin + kList.size());
  for (int rank = 0; rank < missed.world_size; ++rank) {
    const std::string name = "rank " + std::to_string(rank) + " (pid ";
    if (list.starts_with(name) || list.find(" and " + name) != std::string_view::npos) {
      ranks.push_back(rank);
    }
  }
  return ranks;
}

// The words that Gloo's users look for, then the core's, which name all ranks that are missing.
std::string describe_timeout(const MissedBarrier& missed) {
  const std::vector<int> ranks = ranks_missing(missed);
  std::string who = "others";
  if (!ranks.empty() && missed.names_all) {
    who = "Ranks " + c10::Join(", ", ranks);
  } else if (!ranks.empty()) {
    who = "Rank " + std::to_string(ranks.front());
  }
  const std::string how =
      missed.rank == 0
          ? " timed out in monitoredBarrier: "
          : " successfully reached monitoredBarrier, but received errors while waiting "
            "for send/recv from rank 0 and the others: ";
  return "Rank " + std::to_string(missed.rank) + how + who +
         " failed to pass monitoredBarrier in " + std::to_string(missed.limit.count()) +
         " ms: " + std::string(missed.cause);
}

}  // namespace

Backend::WorkHandle Backend::send(Tensors& tensors, int to, int tag) {
  const Arguments arguments(*group_, "send");
  arguments.require_single(tensors, "tensor list");
  arguments.require_dense(tensors);
  arguments.require_peer(to);
  const SendOptions core{.tag = tag, .timeout = timeout_.load()};
  Staging staging(arguments);
  const Buffer buffer = staging.input(tensors.front());
  return run_all(arguments,
                 true,
                 describe(OpType::SEND, "unisono:send", tensors, tensors),
                 std::move(staging),
                 [&] { return std::vector<unisono::Work>{group_->send_async(buffer, to, core)}; });
}

Backend::WorkHandle Backend::recv(Tensors& tensors, int from, int tag) {
  Arguments(*group_, "recv").require_peer(from);
  return receive(tensors, from, tag, OpType::RECV, "unisono:recv");
}

Backend::WorkHandle Backend::recvAnysource(Tensors& tensors, int tag) {
  return receive(tensors, kAnySource, tag, OpType::RECVANYSOURCE, "unisono:recvAnySource");
}

Backend::WorkHandle Backend::receive(
    Tensors& tensors, int from, int tag, OpType type, const char* title) {
  const Arguments arguments(*group_, "recv");
  arguments.require_single(tensors, "tensor list");
  arguments.require_dense(tensors);
  const RecvOptions core{.tag = tag, .timeout = timeout_.load()};
  Staging staging(arguments);
  const Buffer buffer = staging.output(tensors.front());
  return run_all(arguments, true, describe(type, title, tensors, tensors), std::move(staging), [&] {
    return std::vector<unisono::Work>{group_->recv_async(buffer, from, core)};
  });
}

Backend::WorkHandle Backend::barrier(const c10d::BarrierOptions& options) {
  const Arguments arguments(*group_, "barrier");
  const unisono::BarrierOptions core{.timeout = timeout(options.timeout)};
  return run(
      arguments,
      options.asyncOp,
      describe(OpType::BARRIER, "unisono:barrier", {}, {}),
      Staging(arguments),
      [&] { group_->barrier(core); },
      [&] { return group_->barrier_async(core); });
}

void Backend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  // 0 asks who is there at once.
  const std::chrono::milliseconds limit =
      std::max(timeout(options.timeout), std::chrono::milliseconds(1));
  with_translated_errors([&] {
    try {
      group_->monitored_barrier({.timeout = limit});
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kTimeout) {
        throw;
      }
      throw Error(ErrorCode::kTimeout,
                  describe_timeout({.rank = getRank(),
                                    .world_size = getSize(),
                                    .limit = limit,
                                    .names_all = wait_all_ranks,
                                    .cause = error.what()}));
    }
  });
}

}  // namespace unisono::python
