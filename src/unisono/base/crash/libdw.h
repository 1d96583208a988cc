#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace unisono::crash {

// What this project needs of elfutils' libdw.so.1, whose interface is the same in all its versions.

struct DwflSession;
struct DwflModule;
struct DwarfLine;
struct DwarfFiles;

struct DwarfDie {
  void* address = nullptr;
  void* unit = nullptr;
  void* abbreviation = nullptr;
  long padding = 0;
};

struct DwarfAttribute {
  unsigned code = 0;
  unsigned form = 0;
  unsigned char* value = nullptr;
  void* unit = nullptr;
};

inline constexpr int kDwarfInlinedSubroutine = 0x1d;  ///< A tag, as those that follow.
inline constexpr int kDwarfSubprogram = 0x2e;
inline constexpr unsigned kDwarfCallFile = 0x58;  ///< An attribute, as those that follow.
inline constexpr unsigned kDwarfCallLine = 0x59;
inline constexpr unsigned kDwarfLinkageName = 0x6e;

/// Files and their debug information are found by functions of the library itself.
struct DwflCallbacks {
  void* find_elf = nullptr;
  void* find_debuginfo = nullptr;
  void* section_address = nullptr;
  char** debuginfo_path = nullptr;
};

/// libdw.so.1. Functions return null or, if they return an int, what is not 0 on failure, unless
/// another thing is said.
struct Libdw {
  void* find_elf;
  void* find_debuginfo;
  DwflSession* (*begin)(const DwflCallbacks* callbacks);
  int (*report_process)(DwflSession* session, int pid);
  int (*report_end)(DwflSession* session, void* removed, void* argument);
  DwflModule* (*module_at)(DwflSession* session, std::uint64_t address);
  const char* (*module_info)(DwflModule* module,
                             void*** user_data,
                             std::uint64_t* begin,
                             std::uint64_t* end,
                             std::uint64_t* dwarf_bias,
                             std::uint64_t* symbol_bias,
                             const char** main_file,
                             const char** debug_file);
  const char* (*function_at)(DwflModule* module, std::uint64_t address);
  DwarfDie* (*unit_at)(DwflModule* module, std::uint64_t address, std::uint64_t* bias);
  DwarfDie* (*next_unit)(DwflModule* module, DwarfDie* last, std::uint64_t* bias);
  /// 1 if it does.
  int (*has_address)(DwarfDie* die, std::uint64_t address);
  /// Those around an address, the innermost first, as malloc() made them; how many.
  int (*scopes_at)(DwarfDie* unit, std::uint64_t address, DwarfDie** scopes);
  /// The same of those around an entry.
  int (*scopes_of)(DwarfDie* die, DwarfDie** scopes);
  int (*tag)(DwarfDie* die);
  const char* (*name)(DwarfDie* die);
  DwarfAttribute* (*attribute)(DwarfDie* die, unsigned name, DwarfAttribute* result);
  const char* (*text)(DwarfAttribute* attribute);
  int (*number)(DwarfAttribute* attribute, std::uint64_t* result);
  DwarfLine* (*line_at)(DwarfDie* unit, std::uint64_t address);
  int (*line_number)(DwarfLine* line, int* result);
  const char* (*line_file)(DwarfLine* line, std::uint64_t* time, std::uint64_t* length);
  int (*files)(DwarfDie* unit, DwarfFiles** files, std::size_t* n_files);
  const char* (*file)(DwarfFiles* files,
                      std::size_t index,
                      std::uint64_t* time,
                      std::uint64_t* length);
};

/// Loads it, for good. Nothing where it is not installed.
[[nodiscard]] std::optional<Libdw> load_libdw();

}  // namespace unisono::crash
