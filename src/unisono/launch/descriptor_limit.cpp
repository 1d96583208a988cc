#include "unisono/launch/descriptor_limit.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include "unisono/base/error.h"

namespace unisono::launch {

void check_descriptor_limit(int n_workers) {
  constexpr rlim_t kOurOwn = 64;
  // Two for a rank's output, one for its end, two for what it leaves and waits for, and its
  // connections to the store: its own, one for trouble, PyTorch's.
  const rlim_t needed = 8 * static_cast<rlim_t>(n_workers) + kOurOwn;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_max < needed) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} ranks need {} file descriptors, {} are allowed; raise the limit "
                            "(ulimit -Hn)",
                            n_workers,
                            needed,
                            limit.rlim_max));
  }
}

void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
}

}  // namespace unisono::launch
