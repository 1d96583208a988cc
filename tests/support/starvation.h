#pragma once

namespace unisono::test {

/// While it lives, operator new has no memory for threads that the kernel calls `thread_name`:
/// after `n_before` allocations of theirs the next `n_failing` fail. One at a time in a process.
class Starvation {
 public:
  Starvation(const char* thread_name, int n_before, int n_failing);
  ~Starvation();

  Starvation(const Starvation&) = delete;
  Starvation& operator=(const Starvation&) = delete;
  Starvation(Starvation&&) = delete;
  Starvation& operator=(Starvation&&) = delete;

  /// Whether an allocation has failed.
  [[nodiscard]] bool has_struck() const;
};

}  // namespace unisono::test
