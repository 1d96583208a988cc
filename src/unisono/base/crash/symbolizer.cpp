#include "unisono/base/crash/symbolizer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/base/crash/libdw.h"
#include "unisono/base/describe_address.h"

namespace unisono::crash {
namespace {

constexpr const char* kUnknown = "an unknown function";

std::vector<DwarfDie> take(DwarfDie* scopes, int n) {
  std::vector<DwarfDie> taken;
  if (n > 0) {
    taken.assign(scopes, scopes + n);
    std::free(scopes);
  }
  return taken;
}

std::string at(const std::string& function, const std::string& file, int line) {
  return file.empty() ? function : fmt::format("{} at {}:{}", function, file, line);
}

// And where it begins.
std::string file_of(const Libdw& library, DwflModule* module, std::uint64_t& begin) {
  const char* file = nullptr;
  const char* const name =
      library.module_info(module, nullptr, &begin, nullptr, nullptr, nullptr, &file, nullptr);
  file = file == nullptr ? name : file;
  return file == nullptr ? "?" : file;
}

// Nobody builds those for the sake of a stack.
bool is_others_file(std::string_view file) {
  return !file.starts_with('/') || file.starts_with("/usr/") || file.starts_with("/lib") ||
         file.find("/site-packages/") != std::string_view::npos;
}

}  // namespace

Symbolizer::Symbolizer(const Libdw& library)
    : library_(library),
      callbacks_{.find_elf = library.find_elf, .find_debuginfo = library.find_debuginfo},
      session_(library.begin(&callbacks_)) {
  if (session_ != nullptr) {
    library_.report_process(session_, ::getpid());
    library_.report_end(session_, nullptr, nullptr);
  }
}

std::vector<std::string> Symbolizer::describe(std::uintptr_t address) {
  DwflModule* const module = session_ == nullptr ? nullptr : library_.module_at(session_, address);
  if (module == nullptr) {
    return {fmt::format("0x{:x}, where there is no code", address)};
  }
  const char* const symbol = library_.function_at(module, address);
  const std::string function = symbol == nullptr ? kUnknown : demangle(symbol);
  const Unit unit = find_unit(module, address);
  Place place = find_place(unit, address);
  std::uint64_t begin = 0;
  const std::string file = file_of(library_, module, begin);
  // Not even those of a program that was built with -g have them for its very first frame.
  has_lines_[file] = has_lines_[file] || !place.file.empty();
  if (place.file.empty()) {
    return {fmt::format("{} in {}(+0x{:x})", function, file, address - begin)};
  }
  std::vector<std::string> frames;
  for (DwarfDie& scope : scopes_at(unit, address)) {
    const int tag = library_.tag(&scope);
    if (tag == kDwarfSubprogram) {
      break;
    }
    if (tag == kDwarfInlinedSubroutine) {
      frames.push_back(at(name_of(scope) + " (inlined)", place.file, place.line));
      place = find_call(unit, scope);
    }
  }
  frames.push_back(at(function, place.file, place.line));
  return frames;
}

Symbolizer::Unit Symbolizer::find_unit(DwflModule* module, std::uint64_t address) const {
  Unit unit;
  unit.die = library_.unit_at(module, address, &unit.bias);
  if (unit.die != nullptr) {
    return unit;
  }
  // clang writes no index of addresses.
  while ((unit.die = library_.next_unit(module, unit.die, &unit.bias)) != nullptr) {
    if (library_.has_address(unit.die, address - unit.bias) == 1) {
      break;
    }
  }
  return unit;
}

Symbolizer::Place Symbolizer::find_place(Unit unit, std::uint64_t address) const {
  DwarfLine* const line =
      unit.die == nullptr ? nullptr : library_.line_at(unit.die, address - unit.bias);
  Place place;
  if (line != nullptr && library_.line_number(line, &place.line) == 0) {
    const char* const file = library_.line_file(line, nullptr, nullptr);
    place.file = file == nullptr ? "" : file;
  }
  return place;
}

// From where it was called, had it been a function.
Symbolizer::Place Symbolizer::find_call(Unit unit, DwarfDie& inlined) const {
  DwarfAttribute attribute;
  std::uint64_t file = 0;
  std::uint64_t line = 0;
  DwarfFiles* files = nullptr;
  std::size_t n_files = 0;
  const auto number = [&](unsigned name, std::uint64_t& result) {
    return library_.attribute(&inlined, name, &attribute) != nullptr &&
           library_.number(&attribute, &result) == 0;
  };
  if (!number(kDwarfCallFile, file) || !number(kDwarfCallLine, line) ||
      library_.files(unit.die, &files, &n_files) != 0) {
    return {};
  }
  const char* const name = library_.file(files, file, nullptr, nullptr);
  return {.file = name == nullptr ? "" : name, .line = static_cast<int>(line)};
}

std::string Symbolizer::name_of(DwarfDie& die) const {
  DwarfAttribute attribute;
  const char* name = library_.attribute(&die, kDwarfLinkageName, &attribute) == nullptr
                         ? nullptr
                         : library_.text(&attribute);
  if (name != nullptr) {
    return demangle(name);
  }
  name = library_.name(&die);
  return name == nullptr ? kUnknown : name;
}

std::vector<DwarfDie> Symbolizer::scopes_at(Unit unit, std::uint64_t address) const {
  DwarfDie* found = nullptr;
  const int n_found = library_.scopes_at(unit.die, address - unit.bias, &found);
  std::vector<DwarfDie> lexical = take(found, n_found);
  if (lexical.empty()) {
    return {};
  }
  // Those follow what the source has around the innermost one. Its code lies in others.
  const int n_around = library_.scopes_of(lexical.data(), &found);
  return take(found, n_around);
}

std::vector<std::string> Symbolizer::files_without_lines() const {
  std::vector<std::string> files;
  for (const auto& [file, has_lines] : has_lines_) {
    if (!has_lines && !is_others_file(file)) {
      files.push_back(file);
    }
  }
  return files;
}

}  // namespace unisono::crash
