#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/comm/arguments.h"
#include "unisono/comm/call.h"
#include "unisono/comm/group.h"
#include "unisono/comm/job.h"
#include "unisono/comm/membership.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/comm/work.h"
#include "unisono/comm/work_state.h"
#include "unisono/engine/backends.h"
#include "unisono/engine/capabilities.h"
#include "unisono/engine/engine.h"
#include "unisono/engine/message_call.h"

namespace unisono {
namespace {

using comm::lend;
using comm::WorkState;
using engine::MessageCall;
using std::chrono::milliseconds;

static_assert(kAnySource == engine::kAnyRank);

const char* name_of(const MessageCall& call) {
  return call.is_send ? "send" : "recv";
}

// Returns how long the message may take.
milliseconds check(const MessageCall& call,
                   comm::Membership& membership,
                   const std::optional<milliseconds>& timeout) {
  const comm::Arguments arguments(membership, name_of(call), call.label);
  membership.note_caller();
  arguments.check_buffer(call.buffer, "the buffer");
  if (call.buffer.device.type != DeviceType::kCpu) {
    throw arguments.invalid(
        "the buffer is on a CUDA device; messages are for memory on the CPU: copy it there first");
  }
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

// What `pass` does. A backend may pass no messages, or not this one.
template <class Pass>
auto or_refuse(comm::Membership& membership,
               const char* name,
               const std::string& label,
               const Pass& pass) -> decltype(pass()) {
  try {
    const engine::Backend& backend = membership.job().backend();
    engine::check_passes_messages(backend.capabilities, backend.name);
    return pass();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidArgument || membership.failure().is_set()) {
      throw;
    }
    throw comm::Arguments(membership, name, label).invalid(error.what());
  }
}

// Returns where a receive came from.
int run(comm::Membership& membership,
        MessageCall call,
        const std::optional<milliseconds>& timeout) {
  call.timeout = check(call, membership, timeout);
  return or_refuse(membership, name_of(call), call.label, [&] {
    return membership.engine().pass_message(call);
  });
}

// The calls were checked. `name` and `label` are for messages.
std::vector<Work> begin(comm::Group& group,
                        const char* name,
                        const std::string& label,
                        std::span<MessageCall> calls) {
  std::vector<Work> works;
  works.reserve(calls.size());
  for (MessageCall& call : calls) {
    const auto state = std::make_shared<WorkState>(health::WaitId(), group.job()->work_waits());
    call.handle = state;
    works.emplace_back(state);
  }
  comm::Membership& membership = group.membership();
  or_refuse(membership, name, label, [&] { membership.engine().begin_messages(calls); });
  return works;
}

Work submit(comm::Group& group, MessageCall call, const std::optional<milliseconds>& timeout) {
  call.timeout = check(call, group.membership(), timeout);
  return begin(group, name_of(call), call.label, std::span(&call, 1)).front();
}

// `Options` are those of one message, or a batch's message itself.
template <class Options>
MessageCall message_call(bool is_send, const Buffer& buffer, int peer, const Options& options) {
  return {.is_send = is_send,
          .peer = peer,
          .tag = options.tag,
          .buffer = buffer,
          .label = options.label};
}

}  // namespace

void ProcessGroup::send(const Buffer& buffer, int to, const SendOptions& options) {
  (void)run(group_->membership(), message_call(true, lend(buffer), to, options), options.timeout);
}

Work ProcessGroup::send_async(const Buffer& buffer, int to, const SendOptions& options) {
  return submit(*group_, message_call(true, buffer, to, options), options.timeout);
}

int ProcessGroup::recv(const Buffer& buffer, int from, const RecvOptions& options) {
  return run(
      group_->membership(), message_call(false, lend(buffer), from, options), options.timeout);
}

Work ProcessGroup::recv_async(const Buffer& buffer, int from, const RecvOptions& options) {
  return submit(*group_, message_call(false, buffer, from, options), options.timeout);
}

std::vector<Work> ProcessGroup::batch(std::span<const PointToPointOperation> operations) {
  std::vector<MessageCall> calls;
  calls.reserve(operations.size());
  for (const PointToPointOperation& operation : operations) {
    const bool is_send = operation.kind == PointToPointOperation::Kind::kSend;
    MessageCall& call =
        calls.emplace_back(message_call(is_send, operation.buffer, operation.peer, operation));
    call.timeout = check(call, group_->membership(), operation.timeout);
  }
  return begin(*group_, "batch", "", calls);
}

}  // namespace unisono
