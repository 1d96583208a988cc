#include "unisono/rendezvous/launchers/variables.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <iterator>
#include <limits>
#include <system_error>

#include "unisono/base/error.h"
#include "unisono/base/process.h"
#include "unisono/base/text.h"
#include "unisono/net/host.h"

namespace unisono::rendezvous {
namespace {

constexpr std::int64_t kMaxInt = std::numeric_limits<int>::max();

std::optional<int> as_int(std::optional<std::int64_t> number) {
  return number ? std::optional(static_cast<int>(*number)) : std::nullopt;
}

void add_new(const std::string& text, std::vector<std::string>& texts) {
  if (std::find(texts.begin(), texts.end(), text) == texts.end()) {
    texts.push_back(text);
  }
}

}  // namespace

std::string VariableReader::text(const char* name) {
  const std::optional<std::string> value = environment_(name);
  if (value) {
    add_new(name, found_);
  } else {
    complain(fmt::format("{} is not set", name));
  }
  return value.value_or("");
}

std::string VariableReader::host(const char* name, const char* port_name) {
  try {
    const std::optional<std::string> value = environment_(name);
    if (value) {
      net::check_host(fmt::format("{}=\"{}\"", name, *value), *value, port_name);
    }
    return text(name);
  } catch (const Error& error) {
    complain(error.what());
    return "";
  }
}

std::vector<std::string> VariableReader::nodes(const char* name) {
  const std::optional<std::string> value = environment_(name);
  if (!value) {
    complain(fmt::format("{} is not set", name));
    return {};
  }
  try {
    std::vector<std::string> names = expand_nodelist(*value);
    add_new(name, found_);
    return names;
  } catch (const Error& error) {
    complain(fmt::format("{}: {}", name, error.what()));
    return {};
  }
}

std::optional<std::int64_t> VariableReader::number(const char* name,
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
    complain(fmt::format("{}=\"{}\" is not a whole number of at least {} and at most {}",
                         name,
                         *value,
                         least,
                         most));
    return std::nullopt;
  }
  add_new(name, found_);
  return number;
}

std::optional<int> VariableReader::needed_int(const char* name, int least) {
  return as_int(number(name, least, kMaxInt, true));
}

std::optional<int> VariableReader::optional_int(const char* name, int least) {
  return as_int(number(name, least, kMaxInt, false));
}

std::optional<std::uint16_t> VariableReader::port(const char* name) {
  constexpr std::int64_t kMaxPort = 65'535;
  const std::optional<std::int64_t> value = number(name, 1, kMaxPort, false);
  return value ? std::optional(static_cast<std::uint16_t>(*value)) : std::nullopt;
}

void VariableReader::complain(const std::string& problem) {
  add_new(problem, problems_);
}

std::string VariableReader::problems() const {
  return fmt::format("{}", fmt::join(problems_, "; "));
}

std::string VariableReader::found() const {
  return fmt::format("{}", fmt::join(found_, ", "));
}

namespace {

// Returns the rest of the entry with `beginning` in the initial environment of a process. The
// environment of another user's process is unreadable, but a rank's ancestors up to the launcher
// belong to the rank's user.
std::optional<std::string> rest_of_entry(pid_t process, const std::string& beginning) {
  std::ifstream file(fmt::format("/proc/{}/environ", process));
  for (std::string entry; std::getline(file, entry, '\0');) {
    if (entry.starts_with(beginning)) {
      return entry.substr(beginning.size());
    }
  }
  return std::nullopt;
}

// Returns 0 if the parent is unknown.
pid_t parent_of(pid_t process) {
  const std::optional<ProcessStat> stat = read_process_stat(fmt::format("/proc/{}", process));
  return stat ? stat->parent : 0;
}

constexpr char kPort[] = "MASTER_PORT";
// Variables that identify a single rank, even if a rank of a launcher has started another launcher:
// the inner ranks have another file or another job.
constexpr std::array kRanksOwn{"TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE"};

bool is_port_launchers(const Environment& environment) {
  std::vector<std::string> entries;
  for (const char* const name : kRanksOwn) {
    if (const std::optional<std::string> value = environment(name)) {
      entries.push_back(std::string(name) + "=" + *value);
    }
  }
  if (entries.empty()) {
    return true;
  }
  const std::optional<std::string> first = value_at_start(kPort, entries);
  return !first || environment(kPort).value_or(*first) == *first;
}

}  // namespace

std::optional<pid_t> process_that_set(const char* variable) {
  const std::string beginning = std::string(variable) + "=";
  pid_t process = ::getppid();
  while (process > 0 && rest_of_entry(process, beginning)) {
    process = parent_of(process);
  }
  return process > 0 ? std::optional(process) : std::nullopt;
}

std::optional<std::string> value_at_start(const char* variable,
                                          const std::vector<std::string>& entries) {
  std::optional<std::string> value;
  pid_t process = ::getpid();
  const auto has = [&process](const std::string& entry) {
    return rest_of_entry(process, entry) == "";
  };
  for (; process > 0 && std::ranges::all_of(entries, has); process = parent_of(process)) {
    value = rest_of_entry(process, std::string(variable) + "=");
  }
  return value;
}

bool has_agent_store(const Environment& environment) {
  const std::string use = environment("TORCHELASTIC_USE_AGENT_STORE").value_or("");
  return (use == "True" || use == "true" || use == "1") && is_port_launchers(environment);
}

namespace {

using Names = std::vector<std::string>;

// Parses a list from left to right.
class Parser {
 public:
  explicit Parser(std::string_view list) : list_(list) {}

  Names names() {
    Names names;
    do {
      const Names next = name();
      if (names.size() + next.size() > kMaxNodes) {
        fail(fmt::format("more than {} names", kMaxNodes));
      }
      names.insert(names.end(), next.begin(), next.end());
    } while (skip(','));
    return names;
  }

 private:
  // Parses a name, up to a comma outside of brackets or the end.
  Names name() {
    const std::size_t start = position_;
    Names names{""};
    while (!is_at_end() && list_[position_] != ',') {
      if (skip('[')) {
        names = joined(names, brackets());
        continue;
      }
      const char letter = list_[position_];
      if (letter == ']' || static_cast<unsigned char>(letter) <= ' ') {
        fail(letter == ']' ? "nothing opens this bracket" : "a blank");
      }
      for (std::string& name : names) {
        name += letter;
      }
      ++position_;
    }
    if (position_ == start) {
      fail("a name is missing");
    }
    return names;
  }

  // Parses the contents of brackets: numbers and ranges, separated by commas.
  Names brackets() {
    const std::size_t open = position_ - 1;
    Names texts;
    do {
      add_range(texts);
    } while (skip(','));
    if (!skip(']')) {
      fail_at(
          is_at_end() ? open : position_,
          is_at_end() ? "nothing closes this bracket" : "neither number, \"-\", \",\" nor \"]\"");
    }
    return texts;
  }

  void add_range(Names& texts) {
    const std::size_t start = position_;
    const auto [from, n_digits] = number();
    const std::uint64_t to = skip('-') ? number().value : from;
    if (to < from) {
      fail_at(start, "the range ends before it begins");
    }
    if (to - from >= kMaxNodes || texts.size() + (to - from) >= kMaxNodes) {
      fail_at(start, fmt::format("more than {} names", kMaxNodes));
    }
    for (std::uint64_t value = from; value <= to; ++value) {
      texts.push_back(fmt::format("{:0{}}", value, n_digits));
    }
  }

  struct Number {
    std::uint64_t value = 0;
    std::size_t n_digits;
  };

  Number number() {
    // Sufficient for any machine, and far below overflow.
    constexpr std::size_t kMaxDigits = 18;
    const std::string_view rest = list_.substr(position_);
    const std::string_view text = rest.substr(0, rest.find_first_not_of("0123456789"));
    if (text.empty() || text.size() > kMaxDigits) {
      fail(text.empty() ? "a number is missing" : "too large a number");
    }
    Number number{.n_digits = text.size()};
    (void)std::from_chars(text.data(), text.data() + text.size(), number.value);
    position_ += text.size();
    return number;
  }

  [[nodiscard]] Names joined(const Names& heads, const Names& tails) const {
    if (heads.size() * tails.size() > kMaxNodes) {
      fail(fmt::format("more than {} names", kMaxNodes));
    }
    Names names;
    names.reserve(heads.size() * tails.size());
    for (const std::string& head : heads) {
      std::transform(tails.begin(), tails.end(), std::back_inserter(names), [&](const auto& tail) {
        return head + tail;
      });
    }
    return names;
  }

  bool skip(char letter) {
    const bool is_there = !is_at_end() && list_[position_] == letter;
    position_ += is_there ? 1 : 0;
    return is_there;
  }

  [[nodiscard]] bool is_at_end() const { return position_ == list_.size(); }

  [[noreturn]] void fail(const std::string& problem) const { fail_at(position_, problem); }

  [[noreturn]] void fail_at(std::size_t position, const std::string& problem) const {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "node list \"{}\", character {}: {}", escape_text(list_), position + 1, problem));
  }

  std::string_view list_;
  std::size_t position_ = 0;
};

// Removes a number of at least 1 from the front of `rest` and returns the number. Returns
// std::nullopt if there is no number.
std::optional<int> take_count(std::string_view& rest) {
  int count = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), count);
  if (error != std::errc() || count < 1) {
    return std::nullopt;
  }
  rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
  return count;
}

}  // namespace

std::vector<std::string> expand_nodelist(std::string_view list) {
  return Parser(list).names();
}

std::optional<std::vector<int>> expand_counts(std::string_view rest) {
  std::vector<int> counts;
  while (true) {
    const std::optional<int> count = take_count(rest);
    std::optional<int> times = 1;
    if (rest.starts_with("(x")) {
      rest.remove_prefix(2);
      times = take_count(rest);
      if (!rest.starts_with(')')) {
        return std::nullopt;
      }
      rest.remove_prefix(1);
    }
    if (!count || !times || counts.size() + static_cast<std::size_t>(*times) > kMaxNodes) {
      return std::nullopt;
    }
    counts.insert(counts.end(), static_cast<std::size_t>(*times), *count);
    if (rest.empty()) {
      return counts;
    }
    if (rest.front() != ',') {
      return std::nullopt;
    }
    rest.remove_prefix(1);
  }
}

}  // namespace unisono::rendezvous
