#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
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

// The core's message names all ranks that are missing, whether they are asked for or not.
void Backend::monitoredBarrier(const c10d::BarrierOptions& options, bool /*wait_all_ranks*/) {
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
                  "Rank " + std::to_string(getRank()) +
                      " timed out in monitoredBarrier: others failed to pass monitoredBarrier in " +
                      std::to_string(limit.count()) + " ms: " + error.what());
    }
  });
}

}  // namespace unisono::python
