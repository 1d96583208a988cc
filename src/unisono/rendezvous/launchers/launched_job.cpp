#include "unisono/rendezvous/launchers/launched_job.h"

#include <fmt/format.h>

#include <optional>
#include <string>

#include "unisono/base/config.h"
#include "unisono/net/hello.h"
#include "unisono/rendezvous/launchers/launcher.h"

namespace unisono::rendezvous {
namespace {

std::string first_variable(const std::string& job) {
  return job.substr(0, job.find('='));
}

}  // namespace

std::string launched_job(const Environment& environment, const Launcher& launcher) {
  std::string job;
  for (const char* const name : {launcher.job, launcher.step}) {
    if (name == nullptr) {
      continue;
    }
    const std::optional<std::string> value = environment(name);
    if (!value || value->empty()) {
      return "";
    }
    job += fmt::format("{}{}={}", job.empty() ? "" : ", ", name, *value);
  }
  return job.substr(0, net::kMaxJobBytes);
}

bool are_different_jobs(const std::string& one, const std::string& other) {
  return !one.empty() && !other.empty() && one != other &&
         first_variable(one) == first_variable(other);
}

}  // namespace unisono::rendezvous
