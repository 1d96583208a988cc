#pragma once

#include <string>

#include "unisono/base/deadline.h"

namespace unisono::rendezvous {

/// Short texts that the processes of a launcher's job leave each other with the launcher, before
/// they know each other. One is used by one thread.
///
/// Everything throws Error: kTimeout, kPeerLost when the launcher has gone, kCorruptData for an
/// answer that makes no sense, kSystem when the launcher refuses.
class KeyValueSpace {
 public:
  KeyValueSpace() = default;
  virtual ~KeyValueSpace() = default;
  KeyValueSpace(const KeyValueSpace&) = delete;
  KeyValueSpace& operator=(const KeyValueSpace&) = delete;
  KeyValueSpace(KeyValueSpace&&) = delete;
  KeyValueSpace& operator=(KeyValueSpace&&) = delete;

  /// Puts a text, without spaces, under `key`, for all to get after the next fence.
  virtual void put(const std::string& key, const std::string& text, Deadline deadline) = 0;

  /// Waits until every process of the job is in its fence. False when the time is up before that:
  /// the next call goes on waiting for the same one.
  [[nodiscard]] virtual bool fence(Deadline deadline) = 0;

  /// What the launcher's rank 0 has put under `key`.
  [[nodiscard]] virtual std::string get(const std::string& key, Deadline deadline) = 0;

  /// Tells the launcher that this process is done; a launcher ends a job of which a process leaves
  /// without a word. Nothing else may be called after it. Throws nothing: what was to be known is.
  virtual void leave() noexcept = 0;
};

}  // namespace unisono::rendezvous
