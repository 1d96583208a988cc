#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace unisono {

/// Guards memory that the program must not access for a while, to find errors in programs. The
/// whole pages inside the memory are neither readable nor writable during the lifetime of this
/// object.
///
/// The first access by a machine instruction is recorded, reported to stderr and then allowed,
/// together with all later accesses. A system call on guarded memory fails with EFAULT.
///
/// Installs a process-wide SIGSEGV handler, which forwards faults outside guarded pages to the
/// earlier handler. Errors: if the handler cannot be installed, the object guards no page.
class GuardedPages {
 public:
  enum class Touch : std::uint8_t {
    kNone,
    kRead,
    kWrite,
    kSome  ///< The access was a read or a write; this processor does not distinguish them.
  };

  /// `name`, at most 500 bytes, begins the line that the first access writes to stderr: "NAME is
  /// read". Guards no page if no whole page lies inside the memory, or if 4,096 ranges are already
  /// guarded.
  GuardedPages(std::span<std::byte> memory, const std::string& name);
  ~GuardedPages();

  GuardedPages(const GuardedPages&) = delete;
  GuardedPages& operator=(const GuardedPages&) = delete;
  GuardedPages(GuardedPages&&) = delete;
  GuardedPages& operator=(GuardedPages&&) = delete;

  /// Returns the kind of the first access so far.
  [[nodiscard]] Touch first_touch() const;

 private:
  int range_;  // Index in the signal handler's table, or -1.
};

[[nodiscard]] const char* to_string(GuardedPages::Touch touch);

}  // namespace unisono
