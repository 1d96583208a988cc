#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include "unisono/comm/process_group.h"
#include "unisono/comm/work.h"
#include "unisono/torch/parallel/pipeline/inbox.h"

namespace unisono::parallel {

/// One message between two ranks: where its delivery goes in the receiver's inbox, which also is
/// its tag, and what it is in error messages.
struct MessageLabel {
  std::size_t place;
  std::string text;
};

/// The messages of one step. Sends wait for nobody; receives go on beside what the rank computes.
class Transfers {
 public:
  Transfers(ProcessGroup& group,
            std::size_t n_places,
            std::optional<std::chrono::milliseconds> timeout)
      : group_(&group), timeout_(timeout), inbox_(std::make_shared<Inbox>(n_places)) {}

  /// Begins to receive a message, which ends in the inbox.
  void receive(int from, const MessageLabel& label);

  /// The tensors must not change until finish(). Makes those contiguous that are not.
  void send(int to, const MessageLabel& label, const Delivery& delivery);

  /// Forgets what is sent, with its memory: on this thread, by whose allocations it is counted.
  void let_go_of_sent();

  /// Waits for all sends.
  void finish();

  /// Waits for what is received at a place.
  [[nodiscard]] Delivery await(std::size_t place);

  [[nodiscard]] Inbox& inbox() { return *inbox_; }

 private:
  // A part of a message on its way; its tensor, if it is one.
  struct Send {
    std::string text;
    Work work;
    std::shared_ptr<at::Tensor> tensor;
  };

  void let_go_of_first();

  ProcessGroup* group_;
  std::optional<std::chrono::milliseconds> timeout_;
  std::shared_ptr<Inbox> inbox_;  // Shared with operations in flight, which may outlive the step.
  std::deque<Send> sends_;
};

}  // namespace unisono::parallel
