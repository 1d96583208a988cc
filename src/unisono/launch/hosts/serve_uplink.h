#pragma once

#include <functional>
#include <string>
#include <vector>

namespace unisono::launch::hosts {

class Uplink;

/// First argument that makes the program a launcher that another one has started: main() then has
/// to call serve_uplink().
inline constexpr const char* kHostArgument = "--unisono-host";

/// Hears over stdin what is to be run on this host, makes the environment as it is to be, and calls
/// `run` with it: the command line behind `unisono`, "run" first. What `run` throws is told to the
/// other launcher. Returns the exit code.
///
/// Throws Error(kTimeout) where no launcher is at the other end of stdin.
int serve_uplink(const std::function<int(Uplink& uplink, std::vector<std::string> arguments)>& run);

}  // namespace unisono::launch::hosts
