#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/base/mutex.h"

namespace unisono::parallel {

/// What one stage hands to another of a chunk: outputs, or gradients of them. Tensors without a
/// graph.
struct Delivery {
  bool has_chunk = true;
  std::vector<at::Tensor> tensors = {};
  std::vector<bool> needs_gradient = {};  // One for each tensor.
};

/// What has arrived on a rank, at numbered places. Thread-safe: threads of the process group put
/// in, the one that runs the step takes out.
class Inbox {
 public:
  explicit Inbox(std::size_t n_places) : places_(n_places) {}

  void put(std::size_t place, Delivery delivery) UNISONO_EXCLUDES(mutex_);

  /// Nothing more will come.
  void fail(std::exception_ptr error) UNISONO_EXCLUDES(mutex_);

  [[nodiscard]] bool has(std::size_t place) UNISONO_EXCLUDES(mutex_);

  [[nodiscard]] Delivery take(std::size_t place) UNISONO_EXCLUDES(mutex_);

  /// Returns when something has come since the last call. Throws what fail() was given. What is
  /// waited for are operations, which have timeouts.
  void wait() UNISONO_EXCLUDES(mutex_);

  void throw_if_failed() UNISONO_EXCLUDES(mutex_);

 private:
  Mutex mutex_;
  Condition has_changed_;
  std::vector<std::optional<Delivery>> places_ UNISONO_GUARDED_BY(mutex_);
  std::exception_ptr error_ UNISONO_GUARDED_BY(mutex_);
  std::uint64_t n_come_ UNISONO_GUARDED_BY(mutex_) = 0;
  std::uint64_t n_seen_ UNISONO_GUARDED_BY(mutex_) = 0;
};

}  // namespace unisono::parallel
