#include "unisono/rendezvous/env.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <system_error>

#include "unisono/base/config.h"
#include "unisono/base/error.h"

namespace unisono::rendezvous {
namespace {

constexpr std::int64_t kMaxPort = 65'535;
constexpr std::int64_t kMaxInt = std::numeric_limits<int>::max();

// Reads variables and remembers all that is wrong with them.
class Reader {
 public:
  explicit Reader(const Environment& environment) : environment_(environment) {}

  // A variable that has to be there; empty after a complaint.
  std::string text(const char* name) {
    const std::optional<std::string> value = environment_(name);
    if (!value) {
      complain(fmt::format("{} is not set", name));
    } else if (value->empty() || value->find_first_of(" \t\r\n") != std::string::npos) {
      complain(fmt::format("{}=\"{}\" is no host name or address", name, *value));
    }
    return value.value_or("");
  }

  // A whole number in [least, most]; nothing after a complaint, or when it is absent and need not
  // be there.
  std::optional<std::int64_t> number(const char* name,
                                     std::int64_t least,
                                     std::int64_t most,
                                     bool is_needed) {
    const std::optional<std::string> value = environment_(name);
    if (!value) {
      if (is_needed) {
        complain(fmt::format("{} is not set", name));
      }
      return std::nullopt;
    }
    std::int64_t number = 0;
    const char* end = value->data() + value->size();
    const auto [stop, error] = std::from_chars(value->data(), end, number);
    if (error != std::errc() || stop != end || number < least || number > most) {
      const std::string range = most == kMaxInt ? fmt::format("of at least {}", least)
                                                : fmt::format("from {} to {}", least, most);
      complain(fmt::format("{}=\"{}\" is no whole number {}", name, *value, range));
      return std::nullopt;
    }
    return number;
  }

  void complain(const std::string& problem) {
    problems_ += (problems_.empty() ? "" : "; ") + problem;
  }

  [[nodiscard]] const std::string& problems() const { return problems_; }

 private:
  const Environment& environment_;
  std::string problems_;
};

bool is_true(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) {
    return static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  });
  return text == "true" || text == "1";
}

// An option of the program, or else the variable.
std::optional<std::int64_t> option_or(int option,
                                      Reader& reader,
                                      const char* name,
                                      std::int64_t least) {
  return option >= 0 ? option : reader.number(name, least, kMaxInt, true);
}

const char* source_of(int option) {
  return option >= 0 ? " (given by the program)" : "";
}

}  // namespace

Assignment read_env(const Environment& environment, int rank, int world_size) {
  Reader reader(environment);
  Assignment result;
  result.master_addr = reader.text("MASTER_ADDR");
  result.master_port = static_cast<std::uint16_t>(
      reader.number("MASTER_PORT", 1, kMaxPort, false).value_or(kDefaultMasterPort));
  const std::optional<std::int64_t> size = option_or(world_size, reader, "WORLD_SIZE", 1);
  const std::optional<std::int64_t> own = option_or(rank, reader, "RANK", 0);
  if (world_size == 0) {
    reader.complain("WORLD_SIZE=0 (given by the program) leaves no rank");
  } else if (size && own && *own >= *size) {
    reader.complain(fmt::format("RANK={}{} is not below WORLD_SIZE={}{}",
                                *own,
                                source_of(rank),
                                *size,
                                source_of(world_size)));
  }
  result.rank = static_cast<int>(own.value_or(0));
  result.world_size = static_cast<int>(size.value_or(1));
  result.local_rank = static_cast<int>(reader.number("LOCAL_RANK", 0, kMaxInt, false).value_or(-1));
  result.uses_agent_store = is_true(environment("TORCHELASTIC_USE_AGENT_STORE").value_or(""));
  if (!reader.problems().empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("env:// rendezvous: {}. \"unisono run -n N program\" and torchrun set "
                            "these variables; who starts the ranks by hand sets MASTER_ADDR, "
                            "MASTER_PORT, WORLD_SIZE and RANK for each of them",
                            reader.problems()));
  }
  return result;
}

}  // namespace unisono::rendezvous
