#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>

#include "unisono/base/buffer.h"
#include "unisono/comm/process_group.h"
#include "unisono/comm/work.h"

namespace unisono::ddp {

/// Which parameters any rank uses in a pass, where that is to be found; else all of them are.
class UsedParameters {
 public:
  UsedParameters(ProcessGroup& group, std::size_t n_parameters, bool is_found);

  /// So many there are now.
  void resize(std::size_t n_parameters);

  /// Starts to find out; `is_used` tells it of this rank's. Nothing where it is not to be found.
  void launch(const std::function<bool(std::size_t)>& is_used,
              std::optional<std::chrono::milliseconds> timeout);

  /// Throws the operation's error.
  void wait() const { work_.wait(); }

  /// After wait().
  [[nodiscard]] bool has(std::size_t parameter) const;

 private:
  ProcessGroup& group_;
  std::size_t n_parameters_;
  Buffer used_;  // u8 per parameter; none where all count
  Work work_;
};

}  // namespace unisono::ddp
