#pragma once

#include <cstddef>
#include <vector>

#include "unisono/torch/ddp/options.h"

namespace unisono::ddp {

class Replica;

/// A rank's part in the pass that begins.
struct PassPart {
  bool is_active = false;
  bool is_synchronized = false;
  bool is_training = false;
  bool has_thawed = false;  ///< Parameters that the others don't know of.
  bool is_step = false;     ///< No pass, but the step of an optimizer.
  std::size_t model = 0;    ///< With is_step: the number of the model in join().
};

/// State of one model under join(), where passes are announced so that ranks without batches can
/// take part. Owned by the model's Replica as long as the join() lasts.
class JoinSession {
 public:
  /// `joined`: all replicas of that join(), on every rank in the same order. Throws RefusedCall
  /// where the model can't be joined.
  JoinSession(Replica& replica, const JoinOptions& options, const std::vector<Replica*>& joined);
  ~JoinSession();

  JoinSession(const JoinSession&) = delete;
  JoinSession& operator=(const JoinSession&) = delete;
  JoinSession(JoinSession&&) = delete;
  JoinSession& operator=(JoinSession&&) = delete;

  /// Returns the combined part of the active ranks. has_thawed is true if any of them has thawed
  /// parameters.
  PassPart announce(const PassPart& mine);

  /// An optimizer's step begins. Returns a rank that has batches.
  int announce_step();

  /// Shadows a pass of the other ranks on a finished rank: the same operations, with zeros. Steps
  /// of tied optimizers that come before the pass are shadowed as well. Returns false if no rank
  /// makes a pass.
  bool shadow_pass();

  /// The lowest rank that made the last pass.
  [[nodiscard]] int root() const { return root_; }

 private:
  Replica& replica_;
  JoinOptions options_;
  const std::vector<Replica*>& joined_;
  int root_ = 0;
};

}  // namespace unisono::ddp
