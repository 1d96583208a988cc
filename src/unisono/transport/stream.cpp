#include "unisono/transport/stream.h"

#include <fmt/format.h>

#include <algorithm>

#include "unisono/base/error.h"
#include "unisono/base/mutex.h"

namespace unisono::transport {
namespace {

struct Kind {
  std::string name;
  std::function<MakeStream()> prepare;
};

class Kinds {
 public:
  [[nodiscard]] std::vector<Kind> all() UNISONO_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return kinds_;
  }

  void add(Kind kind) UNISONO_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    const bool is_taken = std::any_of(
        kinds_.begin(), kinds_.end(), [&](const Kind& other) { return other.name == kind.name; });
    if (kind.name.empty() || is_taken) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("can't register streams \"{}\": {}",
                              kind.name,
                              is_taken ? "the name is taken" : "they need a name"));
    }
    kinds_.push_back(std::move(kind));
  }

 private:
  Mutex mutex_;
  std::vector<Kind> kinds_ UNISONO_GUARDED_BY(mutex_) = {
      {.name = "tcp", .prepare = tcp::prepare_streams},
      {.name = "ucx", .prepare = ucx::prepare_streams},
  };
};

Kinds& kinds() {
  static Kinds kinds;
  return kinds;
}

}  // namespace

MakeStream find_streams(std::string_view name) {
  std::string names;
  for (const Kind& kind : kinds().all()) {
    if (name == kind.name) {
      return kind.prepare();
    }
    names += fmt::format("{}{}", names.empty() ? "" : ", ", kind.name);
  }
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("UNISONO_TRANSPORT=\"{}\": there are {}", name, names));
}

void register_streams(std::string name, std::function<MakeStream()> prepare) {
  kinds().add({.name = std::move(name), .prepare = std::move(prepare)});
}

}  // namespace unisono::transport
