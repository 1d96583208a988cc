#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

namespace unisono::launch::hosts {

// From the launcher that was called to the one that it starts on a host.

/// What the host is to run; the first thing that it hears.
struct Begin {
  std::string label = {};                   ///< The host's name, as the user wrote it.
  std::string secret = {};                  ///< The job's.
  std::string directory = {};               ///< Where to run.
  std::vector<std::string> variables = {};  ///< "NAME=value", added to the environment there.
  std::vector<std::string> arguments = {};  ///< Those of `unisono`.
  bool out_has_colour = false;              ///< Output ends on a terminal that has colours.
  bool err_has_colour = false;

  static auto members(auto& self) {
    return std::tie(self.label,
                    self.secret,
                    self.directory,
                    self.variables,
                    self.arguments,
                    self.out_has_colour,
                    self.err_has_colour);
  }
};

/// The user's launcher got this signal.
struct Signal {
  std::int32_t signal_number = 0;
  bool is_from_terminal = false;

  static auto members(auto& self) { return std::tie(self.signal_number, self.is_from_terminal); }
};

/// End: the job can't go on.
struct Stop {
  std::string why = {};

  static auto members(auto& self) { return std::tie(self.why); }
};

// From the host.

/// The launcher runs there.
struct Ready {
  std::string release = {};

  static auto members(auto& self) { return std::tie(self.release); }
};

/// For the user to read: whole lines.
struct Output {
  bool is_err = false;
  std::string text = {};

  static auto members(auto& self) { return std::tie(self.is_err, self.text); }
};

/// How the job has ended there; the last thing that is heard.
struct Ended {
  std::int32_t exit_code = 0;
  std::string report = {};

  static auto members(auto& self) { return std::tie(self.exit_code, self.report); }
};

// Both ways.

/// Nothing but that the sender is there.
struct Alive {
  static auto members(auto& /*self*/) { return std::tie(); }
};

using Message = std::variant<Begin, Signal, Stop, Ready, Output, Ended, Alive>;

/// As much as a command line and an environment may have.
inline constexpr std::size_t kMaxTextBytes = 1 << 20;
inline constexpr std::size_t kMaxMessageBytes = 8 << 20;

[[nodiscard]] std::vector<std::byte> encode(const Message& message);

/// Nothing when the bytes are no message.
[[nodiscard]] std::optional<Message> decode(std::span<const std::byte> bytes);

}  // namespace unisono::launch::hosts
