#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/comm/arguments.h"
#include "unisono/comm/call.h"
#include "unisono/comm/group.h"
#include "unisono/comm/links.h"
#include "unisono/comm/message_operation.h"
#include "unisono/comm/options.h"
#include "unisono/comm/point_to_point_progress.h"
#include "unisono/comm/process_group.h"
#include "unisono/comm/work.h"
#include "unisono/engine/native/point_to_point/message.h"

namespace unisono {
namespace {

using comm::lend;
using comm::MessageCall;
using comm::MessageOperation;
using std::chrono::milliseconds;

static_assert(kAnySource == engine::kAnyRank);

const char* name_of(const MessageCall& call) {
  return call.is_send ? "send" : "recv";
}

// Returns how long the message may take.
milliseconds check(const MessageCall& call,
                   comm::Links& links,
                   const std::optional<milliseconds>& timeout) {
  const comm::Arguments arguments(links, name_of(call), call.label, true);
  links.note_caller();
  arguments.check_buffer(call.buffer, "the buffer");
  const int world_size = arguments.world_size();
  const bool is_any = !call.is_send && call.peer == kAnySource;
  if (!is_any && (call.peer < 0 || call.peer >= world_size)) {
    throw arguments.invalid(fmt::format("rank {} is outside a world of {}", call.peer, world_size));
  }
  if (call.tag < 0) {
    throw arguments.invalid(fmt::format("the tag is {}; they begin with 0", call.tag));
  }
  return arguments.timeout(timeout);
}

// Returns where a receive came from.
int run(comm::Links& links, const MessageCall& call, const std::optional<milliseconds>& timeout) {
  const milliseconds limit = check(call, links, timeout);
  if (call.is_send && links.point_to_point().send_at_once(call)) {
    return kAnySource;
  }
  MessageOperation request(call, limit);
  return links.point_to_point().run(request);
}

Work submit(comm::Links& links,
            const MessageCall& call,
            const std::optional<milliseconds>& timeout) {
  comm::PointToPointProgress::Requests requests;
  requests.push_back(std::make_unique<MessageOperation>(call, check(call, links, timeout)));
  return links.point_to_point().submit(std::move(requests)).front();
}

MessageCall send_call(const Buffer& buffer, int to, const SendOptions& options) {
  return {
      .is_send = true, .peer = to, .tag = options.tag, .buffer = buffer, .label = options.label};
}

MessageCall recv_call(const Buffer& buffer, int from, const RecvOptions& options) {
  return {
      .is_send = false, .peer = from, .tag = options.tag, .buffer = buffer, .label = options.label};
}

}  // namespace

void ProcessGroup::send(const Buffer& buffer, int to, const SendOptions& options) {
  (void)run(group_->links(), send_call(lend(buffer), to, options), options.timeout);
}

Work ProcessGroup::send_async(const Buffer& buffer, int to, const SendOptions& options) {
  return submit(group_->links(), send_call(buffer, to, options), options.timeout);
}

int ProcessGroup::recv(const Buffer& buffer, int from, const RecvOptions& options) {
  return run(group_->links(), recv_call(lend(buffer), from, options), options.timeout);
}

Work ProcessGroup::recv_async(const Buffer& buffer, int from, const RecvOptions& options) {
  return submit(group_->links(), recv_call(buffer, from, options), options.timeout);
}

std::vector<Work> ProcessGroup::batch(std::span<const PointToPointOperation> operations) {
  comm::Links& links = group_->links();
  comm::PointToPointProgress::Requests requests;
  requests.reserve(operations.size());
  for (const PointToPointOperation& operation : operations) {
    const MessageCall call{.is_send = operation.kind == PointToPointOperation::Kind::kSend,
                           .peer = operation.peer,
                           .tag = operation.tag,
                           .buffer = operation.buffer,
                           .label = operation.label};
    requests.push_back(
        std::make_unique<MessageOperation>(call, check(call, links, operation.timeout)));
  }
  return links.point_to_point().submit(std::move(requests));
}

}  // namespace unisono
