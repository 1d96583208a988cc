#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "unisono/base/crash/libdw.h"

namespace unisono::crash {

/// Finds what the source calls the code at an address of this process. Takes memory, and seconds
/// where there is much debug information.
class Symbolizer {
 public:
  explicit Symbolizer(const Libdw& library);

  /// "train(int) at /src/train.cpp:12", the functions that were inlined there before the one that
  /// they are in. Where there is no debug information one "train(int) in /opt/job/train(+0x1a2b)".
  [[nodiscard]] std::vector<std::string> describe(std::uintptr_t address);

  /// Files of which no frame so far had a line; not those of the system or of a Python's
  /// packages.
  [[nodiscard]] std::vector<std::string> files_without_lines() const;

 private:
  struct Place {
    std::string file;
    int line = 0;
  };

  struct Unit {
    DwarfDie* die = nullptr;
    std::uint64_t bias = 0;
  };

  [[nodiscard]] Unit find_unit(DwflModule* module, std::uint64_t address) const;
  [[nodiscard]] Place find_place(Unit unit, std::uint64_t address) const;
  [[nodiscard]] Place find_call(Unit unit, DwarfDie& inlined) const;
  [[nodiscard]] std::string name_of(DwarfDie& die) const;
  [[nodiscard]] std::vector<DwarfDie> scopes_at(Unit unit, std::uint64_t address) const;

  Libdw library_;
  DwflCallbacks callbacks_;
  DwflSession* session_;
  std::map<std::string, bool> has_lines_;
};

}  // namespace unisono::crash
