#include "unisono/engine/engine.h"

#include <span>

#include "unisono/base/error.h"
#include "unisono/engine/message_call.h"

namespace unisono::engine {
namespace {

Error no_messages() {
  return {ErrorCode::kInvalidArgument, "the group's backend passes no messages"};
}

}  // namespace

int Engine::pass_message(const MessageCall& /*call*/) {
  throw no_messages();
}

void Engine::begin_messages(std::span<const MessageCall> /*calls*/) {
  throw no_messages();
}

}  // namespace unisono::engine
