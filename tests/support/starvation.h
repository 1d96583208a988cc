#pragma once

namespace unisono::test {

/// During the object's lifetime, operator new fails in threads with the kernel name `thread_name`:
/// after `n_before` allocations of these threads, the next `n_failing` allocations fail. At most
/// one object per process.
class Starvation {
 public:
  Starvation(const char* thread_name, int n_before, int n_failing);
  ~Starvation();

  Starvation(const Starvation&) = delete;
  Starvation& operator=(const Starvation&) = delete;
  Starvation(Starvation&&) = delete;
  Starvation& operator=(Starvation&&) = delete;

  /// Returns true if an allocation has failed.
  [[nodiscard]] bool has_struck() const;
};

}  // namespace unisono::test
