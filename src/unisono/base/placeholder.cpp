#include "unisono/base/placeholder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "unisono/base/error.h"
#include "unisono/base/text_lines.h"

namespace unisono {
namespace {

struct Pointer {
  std::string_view beginning;
  const char* kind;
  const char* command;
};

constexpr std::array<Pointer, 2> kPointers{
    {{"version https://git-lfs.github.com/spec/", "Git LFS", "git lfs pull --include"},
     {"/annex/objects/", "git-annex", "git annex get"}}};

// In small letters.
constexpr std::array<std::string_view, 3> kPages{"<!doctype html", "<html", "<?xml"};

bool is_page(std::string_view text) {
  text.remove_prefix(text.starts_with("\xEF\xBB\xBF") ? 3 : 0);
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  return std::ranges::any_of(kPages, [text](std::string_view page) {
    return std::ranges::equal(text.substr(0, page.size()), page, [](char one, char small) {
      return one == small || (one >= 'A' && one <= 'Z' && one - 'A' + 'a' == small);
    });
  });
}

}  // namespace

void check_no_placeholder(const std::string& name, std::span<const std::byte> beginning) {
  const std::string_view text(reinterpret_cast<const char*>(beginning.data()), beginning.size());
  const std::string file = name.substr(name.rfind('/') + 1);
  for (const Pointer& pointer : kPointers) {
    if (text.starts_with(pointer.beginning)) {
      throw Error(ErrorCode::kCorruptData,
                  fmt::format("{}: is a pointer of {} in place of the file; fetch the file in its "
                              "repository: {} \"{}\"",
                              name,
                              pointer.kind,
                              pointer.command,
                              file));
    }
  }
  if (is_page(text)) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: is a web page in place of the file, \"{}\"; its address is wrong "
                            "or needs a login. Fetch the file: curl --fail --location --output "
                            "\"{}\" ADDRESS",
                            name,
                            escape_text(text),
                            file));
  }
}

}  // namespace unisono
