#pragma once

#include <functional>
#include <optional>

namespace unisono::ddp {

class Replica;

/// Ties an optimizer whose step() is a collective operation to a model: under join() ranks that are
/// done make that step, too. Shared by the two, of which either may go first.
class JoinedStep {
 public:
  /// What a rank that is done does while others step; `root` is one of those.
  using Shadow = std::function<void(int root)>;

  /// Without `shadow` there is no such step, and join() of the model is refused.
  explicit JoinedStep(Shadow shadow = nullptr);

  /// For each step() to call, before its own operations. Under join() tells the ranks that are
  /// done, and returns a rank that is not; else nothing.
  std::optional<int> announce();

  [[nodiscard]] bool has_shadow() const { return shadow_ != nullptr; }

  void run_shadow(int root) const { shadow_(root); }

  /// The model is there; null: it goes.
  void set_model(Replica* replica) { replica_ = replica; }

  /// The optimizer goes.
  void stop();

 private:
  Shadow shadow_;
  Replica* replica_ = nullptr;
};

}  // namespace unisono::ddp
