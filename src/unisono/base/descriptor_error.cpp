#include "unisono/base/descriptor_error.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <cerrno>
#include <string>

namespace unisono {

Error descriptor_error(const std::string& what, int error_number) {
  Error error = system_error(what, error_number);
  rlimit limit{};
  if (error_number != EMFILE || ::getrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return error;
  }
  return {error.code(),
          fmt::format("{}; raise the limit of open files, which is {} (ulimit -n)",
                      error.what(),
                      limit.rlim_cur)};
}

}  // namespace unisono
