#include "unisono/rendezvous/methods/discovery.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/mutex.h"
#include "unisono/rendezvous/methods/builtin_methods.h"
#include "unisono/rendezvous/methods/init_method.h"

namespace unisono::rendezvous {
namespace {

struct Registry {
  Mutex mutex;
  std::map<std::string, Discovery> by_scheme UNISONO_GUARDED_BY(mutex){
      {"env", nullptr}, {"tcp", nullptr}, {"file", discover_by_file}};
};

Registry& registry() {
  static Registry instance;
  return instance;
}

}  // namespace

void register_init_method(const std::string& scheme, Discovery discover) {
  const auto refuse = [&](const char* problem) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("register_init_method: \"{}\" {}", scheme, problem));
  };
  if (!is_scheme(scheme)) {
    refuse("is no scheme of small letters, digits, +, - and .");
  }
  if (discover == nullptr) {
    refuse("needs a function");
  }
  Registry& state = registry();
  const MutexLock lock(state.mutex);
  if (!state.by_scheme.emplace(scheme, std::move(discover)).second) {
    refuse("is there already");
  }
}

Discovery find_discovery(const InitMethod& method) {
  if (is_multicast(method)) {
    return discover_by_multicast;
  }
  Registry& state = registry();
  std::vector<std::string> schemes;
  const MutexLock lock(state.mutex);
  const auto found = state.by_scheme.find(method.scheme);
  if (found != state.by_scheme.end()) {
    return found->second;
  }
  for (const auto& [scheme, discover] : state.by_scheme) {
    schemes.push_back(scheme + "://");
  }
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("init_method \"{}\": there is no scheme {}; there are {}",
                          method.text,
                          method.scheme,
                          fmt::join(schemes, ", ")));
}

}  // namespace unisono::rendezvous
