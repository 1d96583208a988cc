#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "unisono/launch/binding/report_bindings.h"
#include "unisono/launch/environment.h"

namespace unisono::launch {

/// The processors that `local_rank` is to be bound to; none where it is not.
[[nodiscard]] std::vector<int> cores_for(const JobLayout& job, std::size_t local_rank);

/// Why `local_rank` has not been started, where that is why.
[[nodiscard]] std::string describe_failed_binding(const JobLayout& job,
                                                  std::size_t local_rank,
                                                  int error_number);

/// Collects where a node's ranks run as they start.
class RankBindings {
 public:
  /// The report, once all ranks have been noted.
  [[nodiscard]] std::optional<std::string> note(const JobLayout& job,
                                                std::size_t local_rank,
                                                pid_t pid);

 private:
  BindingReport report_;
};

}  // namespace unisono::launch
