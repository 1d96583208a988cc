#include "unisono/comm/failure_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/store/store.h"

namespace unisono::comm {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{10};

}  // namespace

FailureLog::FailureLog(std::shared_ptr<store::Store> store, const std::string& job, int rank)
    : store_(std::move(store)), key_(fmt::format("unisono/{}/failures", job)), rank_(rank) {}

// A line per rank: its number, a tab, its reason.
void FailureLog::publish(const Error& error) noexcept {
  try {
    std::string reason = error.what();
    std::replace(reason.begin(), reason.end(), '\n', ' ');
    store_->append(key_, fmt::format("{}\t{}\n", rank_, reason));
  } catch (const std::exception&) {
    // The store is gone: then the ends of the connections have to say it.
    return;
  }
}

std::string FailureLog::read_others(const std::string& known,
                                    std::chrono::milliseconds patience) noexcept {
  const Deadline deadline = Deadline::after(patience);
  try {
    while (true) {
      std::string reasons = new_reasons(known, deadline);
      if (!reasons.empty() || deadline.has_passed()) {
        return reasons;
      }
      std::this_thread::sleep_for(kBetweenLooks);
    }
  } catch (const std::exception&) {
    return "";
  }
}

std::string FailureLog::new_reasons(const std::string& known, Deadline deadline) {
  std::istringstream lines(store_->get(key_, deadline));
  const std::string own_prefix = fmt::format("{}\t", rank_);
  std::string reasons;
  for (std::string line; std::getline(lines, line);) {
    const std::string reason = line.substr(std::min(line.find('\t') + 1, line.size()));
    if (!line.starts_with(own_prefix) && known.find(reason) == std::string::npos) {
      reasons += (reasons.empty() ? "" : "; ") + reason;
    }
  }
  return reasons;
}

}  // namespace unisono::comm
