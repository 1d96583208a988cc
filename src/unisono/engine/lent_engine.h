#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "unisono/base/algorithm.h"
#include "unisono/base/buffer.h"
#include "unisono/base/deadline.h"
#include "unisono/base/dtype.h"
#include "unisono/base/error.h"
#include "unisono/engine/engine.h"
#include "unisono/engine/message_call.h"
#include "unisono/engine/operation.h"

namespace unisono::engine {

/// A group's native engine as another engine gets it: that one may let go of it early, while
/// the group goes on to hear through it what becomes of the other ranks.
class LentEngine final : public Engine {
 public:
  /// `engine` outlives it.
  explicit LentEngine(Engine& engine) : engine_(engine) {}

  void execute(const Operation& operation, TimeLimit limit, Caller caller) override {
    engine_.execute(operation, limit, caller);
  }

  [[nodiscard]] Buffer allocate(std::int64_t count, DType dtype) override {
    return engine_.allocate(count, dtype);
  }

  void check(const Operation& operation) const override { engine_.check(operation); }

  [[nodiscard]] std::optional<Error> look_at_ranks() override { return engine_.look_at_ranks(); }

  [[nodiscard]] Algorithm last_algorithm() const noexcept override {
    return engine_.last_algorithm();
  }

  void supervise(const Operation& operation,
                 TimeLimit limit,
                 Caller caller,
                 SupervisedOperation& supervised) override {
    engine_.supervise(operation, limit, caller, supervised);
  }

  int pass_message(const MessageCall& call) override { return engine_.pass_message(call); }

  void begin_messages(std::span<const MessageCall> calls) override {
    engine_.begin_messages(calls);
  }

  void abort(const Error& reason) noexcept override { engine_.abort(reason); }

  void leave() noexcept override { engine_.leave(); }

 private:
  Engine& engine_;
};

}  // namespace unisono::engine
