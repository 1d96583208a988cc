#include "unisono/torch/ddp/joined_step.h"

#include <optional>
#include <utility>

#include "unisono/torch/ddp/replica.h"

namespace unisono::ddp {

JoinedStep::JoinedStep(Shadow shadow) : shadow_(std::move(shadow)) {}

std::optional<int> JoinedStep::announce() {
  return replica_ == nullptr ? std::nullopt : replica_->announce_step();
}

void JoinedStep::stop() {
  if (replica_ != nullptr) {
    replica_->drop_joined_step();
  }
}

}  // namespace unisono::ddp
