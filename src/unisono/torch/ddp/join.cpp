#include "unisono/torch/ddp/join.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "unisono/torch/ddp/replica.h"

namespace unisono::ddp {
namespace {

// Replicas that are no longer joined, whichever way the loop ends.
class Scope {
 public:
  Scope(const std::vector<Replica*>& replicas, const JoinOptions& options) {
    try {
      for (Replica* const replica : replicas) {
        replica->begin_join(options, replicas);
        joined_.push_back(replica);
      }
    } catch (...) {
      end();
      throw;
    }
  }

  ~Scope() { end(); }

  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  Scope(Scope&&) = delete;
  Scope& operator=(Scope&&) = delete;

 private:
  void end() {
    for (Replica* const replica : joined_) {
      replica->end_join();
    }
  }

  std::vector<Replica*> joined_;
};

}  // namespace

int run_joined(const std::vector<Replica*>& replicas,
               const JoinOptions& options,
               const std::function<void()>& loop) {
  const Scope scope(replicas, options);
  loop();
  // Stops at the first replica, which nobody trains any more: all ranks do.
  while (std::ranges::all_of(replicas, [](Replica* replica) { return replica->shadow_pass(); })) {
  }
  std::vector<int> last_active;
  for (Replica* const replica : replicas) {
    last_active.push_back(replica->take_final_values());
  }
  return last_active.front();
}

}  // namespace unisono::ddp
