#include "unisono/base/crash/stack_text.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/base/crash/libdw.h"
#include "unisono/base/crash/memory_map.h"
#include "unisono/base/crash/raw_stack.h"
#include "unisono/base/crash/safe_text.h"
#include "unisono/base/crash/symbolizer.h"
#include "unisono/base/deadline.h"
#include "unisono/base/describe_address.h"

namespace unisono::crash {
namespace {

// `unisono run` repeats the last 20 lines of a rank that has failed.
constexpr std::size_t kLongStack = 16;
constexpr std::chrono::seconds kPatience{1};

// A name of templates may fill pages.
constexpr std::size_t kMostLineBytes = 1000;

// The frames' lines.
class Lines {
 public:
  void add(std::size_t frame, const std::string& text) {
    fmt::format_to(std::back_inserter(text_),
                   "  #{} {}{}\n",
                   frame,
                   std::string_view(text).substr(0, kMostLineBytes),
                   text.size() > kMostLineBytes ? "..." : "");
    ++n_;
  }

  void add_left_out(std::size_t n_frames) {
    fmt::format_to(std::back_inserter(text_), "  ({} frames left out)\n", n_frames);
  }

  void add_remark(std::string_view text) {
    fmt::format_to(std::back_inserter(text_), "  ({})\n", text);
  }

  [[nodiscard]] std::size_t n() const { return n_; }

  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  std::string text_;
  std::size_t n_ = 0;
};

template <class Describe>
void add_frames(const RawStack& stack, const Describe& describe, Lines& lines) {
  for (std::size_t frame = 0; frame < stack.n_frames(); frame = stack.next(frame)) {
    if (frame == RawStack::kInner + stack.n_left_out() && stack.n_left_out() > 0) {
      lines.add_left_out(stack.n_left_out());
    }
    for (const std::string& text : describe(stack.address(frame))) {
      lines.add(frame, text);
    }
  }
}

void add_hint(const Symbolizer& symbolizer, Lines& lines) {
  std::string files;
  for (const std::string& file : symbolizer.files_without_lines()) {
    files += (files.empty() ? "" : ", ") + file;
  }
  if (!files.empty()) {
    lines.add_remark("to see files and lines of " + files + ", build with -g");
  }
}

}  // namespace

std::string describe_stack(const RawStack& stack, std::string_view headline) {
  // libdw would ask servers for debug information, and wait for them.
  // NOLINTNEXTLINE(concurrency-mt-unsafe): the child of a crash has no other threads.
  ::unsetenv("DEBUGINFOD_URLS");
  Lines lines;
  if (const std::optional<Libdw> library = load_libdw()) {
    Symbolizer symbolizer(*library);
    add_frames(stack, [&](std::uintptr_t address) { return symbolizer.describe(address); }, lines);
    add_hint(symbolizer, lines);
  } else {
    const auto describe = [](std::uintptr_t address) {
      // NOLINTNEXTLINE(performance-no-int-to-ptr): it is an address.
      return std::vector{describe_address(reinterpret_cast<const void*>(address))};
    };
    add_frames(stack, describe, lines);
    lines.add_remark("to see files and lines, install libdw.so.1, Debian's libdw1");
  }
  const bool is_long = lines.n() > kLongStack;
  return lines.take() + (is_long ? std::string(headline) : "");
}

void write_addresses(const RawStack& stack, std::string_view headline) {
  const Deadline deadline = Deadline::after(kPatience);
  for (std::size_t frame = 0; frame < stack.n_frames(); frame = stack.next(frame)) {
    SafeText line;
    if (frame == RawStack::kInner + stack.n_left_out() && stack.n_left_out() > 0) {
      line.add("  (").add_decimal(stack.n_left_out()).add(" frames left out)\n");
    }
    line.add("  #").add_decimal(frame).add(" ");
    Mapping mapping;
    if (find_mapping(stack.address(frame), mapping) && !mapping.file().empty()) {
      line.add(mapping.file()).add("(+").add_hex(stack.address(frame) - mapping.file_begin);
      line.add(")\n");
    } else {
      line.add_hex(stack.address(frame)).add("\n");
    }
    write_to_stderr(line.view(), deadline);
  }
  write_to_stderr("  (looking up names failed; addr2line -Cfie FILE OFFSET does it)\n", deadline);
  if (stack.n_frames() > kLongStack) {
    write_to_stderr(headline, deadline);
  }
}

}  // namespace unisono::crash
