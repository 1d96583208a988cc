#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "unisono/base/config.h"

namespace unisono::rendezvous {

/// Reads variables, and remembers which it found and all that is wrong with them.
class VariableReader {
 public:
  /// `environment` outlives the reader.
  explicit VariableReader(const Environment& environment) : environment_(environment) {}

  [[nodiscard]] bool is_set(const char* name) const { return environment_(name).has_value(); }

  /// A variable that has to be there, as it is; empty after a complaint.
  std::string text(const char* name);

  /// A host name or an address, which has to be there; empty after a complaint. `port_name` is the
  /// variable of the port.
  std::string host(const char* name, const char* port_name);

  /// The names in a list of nodes, which has to be there; at least one. Empty after a complaint.
  std::vector<std::string> nodes(const char* name);

  /// A whole number in [least, most]; nothing after a complaint, or when it is absent and need not
  /// be there.
  std::optional<std::int64_t> number(const char* name,
                                     std::int64_t least,
                                     std::int64_t most,
                                     bool is_needed);

  /// number() of at least `least` that an int holds, and that has to be there.
  std::optional<int> needed_int(const char* name, int least);

  /// number() of at least `least` that an int holds, where it is set.
  std::optional<int> optional_int(const char* name, int least);

  /// The number of a TCP port, where it is set.
  std::optional<std::uint16_t> port(const char* name);

  /// Once, however often it is said.
  void complain(const std::string& problem);

  /// All complaints, "; " between them; empty if there are none.
  [[nodiscard]] std::string problems() const;

  /// The names of the variables whose values were good, ", " between them.
  [[nodiscard]] std::string found() const;

 private:
  const Environment& environment_;
  std::vector<std::string> problems_;
  std::vector<std::string> found_;
};

}  // namespace unisono::rendezvous
