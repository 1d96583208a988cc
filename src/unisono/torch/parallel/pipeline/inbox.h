#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/base/deadline.h"
#include "unisono/base/mutex.h"
#include "unisono/comm/work.h"

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
  explicit Inbox(std::size_t n_places) : places_(n_places), on_their_way_(n_places) {}

  /// `part`, of a message, is on its way to the place.
  void expect(std::size_t place, const Work& part) UNISONO_EXCLUDES(mutex_);

  void put(std::size_t place, Delivery delivery) UNISONO_EXCLUDES(mutex_);

  /// Nothing more will come.
  void fail(std::exception_ptr error) UNISONO_EXCLUDES(mutex_);

  [[nodiscard]] bool has(std::size_t place) UNISONO_EXCLUDES(mutex_);

  [[nodiscard]] Delivery take(std::size_t place) UNISONO_EXCLUDES(mutex_);

  /// Returns when something has come since the last call. Throws what fail() was given. What is
  /// waited for are operations, which have timeouts.
  ///
  /// `places`: where something is to come that lets the caller go on. What is on its way there is
  /// what the rank waits for, in reports and for its launcher.
  void wait(std::span<const std::size_t> places) UNISONO_EXCLUDES(mutex_);

  void throw_if_failed() UNISONO_EXCLUDES(mutex_);

 private:
  bool sleep(Deadline long_from, std::span<const std::size_t> places, WaitMark& mark)
      UNISONO_EXCLUDES(mutex_);

  Mutex mutex_;
  Condition changed_;
  std::vector<std::optional<Delivery>> places_ UNISONO_GUARDED_BY(mutex_);
  std::vector<std::vector<Work>> on_their_way_ UNISONO_GUARDED_BY(mutex_);  // By place.
  // Somebody waits for so long that the rank says for what.
  bool is_long_ UNISONO_GUARDED_BY(mutex_) = false;
  std::exception_ptr error_ UNISONO_GUARDED_BY(mutex_);
  std::uint64_t n_come_ UNISONO_GUARDED_BY(mutex_) = 0;
  std::uint64_t n_seen_ UNISONO_GUARDED_BY(mutex_) = 0;
};

}  // namespace unisono::parallel
