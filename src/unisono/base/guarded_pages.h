#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace unisono {

/// Memory that nobody is to touch for a while: its whole pages can't be read or written as long as
/// this lives. Who does so by a machine instruction is let through from then on, and said to have
/// done it; a system call with such memory fails with EFAULT. For finding errors in programs: takes
/// SIGSEGV, and hands on to its former handler what is not about guarded pages.
class GuardedPages {
 public:
  enum class Touch : std::uint8_t {
    kNone,
    kRead,
    kWrite,
    kSome  ///< The processor does not say which.
  };

  /// `name`, of at most 500 bytes, is what standard error gets with the first touch: "NAME is
  /// read". Guards nothing where no whole page lies inside, or thousands of others are guarded.
  GuardedPages(std::span<std::byte> memory, const std::string& name);
  ~GuardedPages();

  GuardedPages(const GuardedPages&) = delete;
  GuardedPages& operator=(const GuardedPages&) = delete;
  GuardedPages(GuardedPages&&) = delete;
  GuardedPages& operator=(GuardedPages&&) = delete;

  /// The first touch so far.
  [[nodiscard]] Touch first_touch() const;

 private:
  int range_;  // In the table that the signal's handler looks at, or -1.
};

[[nodiscard]] const char* to_string(GuardedPages::Touch touch);

}  // namespace unisono
