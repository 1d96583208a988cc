#include "unisono/store/timeouts.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"

namespace unisono::store {
namespace {

double seconds_since(Deadline::Clock::time_point start) {
  return std::chrono::duration<double>(Deadline::Clock::now() - start).count();
}

}  // namespace

Error missing_keys(const std::string& store,
                   const char* call,
                   std::span<const std::string> keys,
                   const std::function<bool(const std::string&)>& is_there,
                   Deadline::Clock::time_point start) {
  // To ask may take a round trip.
  constexpr std::size_t kMaxAsked = 64;
  constexpr std::size_t kMaxNamed = 8;
  const double spent_s = seconds_since(start);
  std::string names;
  std::size_t n_named = 0;
  for (const std::string& key : keys.first(std::min(keys.size(), kMaxAsked))) {
    if (n_named == kMaxNamed) {
      names += ", ...";
      break;
    }
    if (keys.size() == 1 || !is_there(key)) {
      names += fmt::format("{}\"{}\"", n_named == 0 ? "" : ", ", key);
      ++n_named;
    }
  }
  return {
      ErrorCode::kTimeout,
      fmt::format("{}: {}: no {} within {:.1f} s",
                  store,
                  call,
                  names.empty() ? fmt::format("complete set of the {} keys", keys.size()) : names,
                  spent_s)};
}

Error incomplete_barrier(const std::string& store,
                         const std::string& key,
                         const std::string& n_came,
                         std::int64_t world_size,
                         Deadline::Clock::time_point start) {
  return {ErrorCode::kTimeout,
          fmt::format("{}: barrier \"{}\": {} of {} came within {:.1f} s",
                      store,
                      key,
                      n_came,
                      world_size,
                      seconds_since(start))};
}

}  // namespace unisono::store
