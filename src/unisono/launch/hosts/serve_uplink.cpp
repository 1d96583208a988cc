#include "unisono/launch/hosts/serve_uplink.h"

#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/launch/cause.h"
#include "unisono/launch/hosts/messages.h"
#include "unisono/launch/hosts/uplink.h"
#include "unisono/launch/program.h"

namespace unisono::launch::hosts {
namespace {

constexpr int kWrongUsage = 2;

// Whatever shell this was started by, it is to be as if the user had called it there.
void take_up_environment(const Begin& begin) {
  sigset_t none;
  sigemptyset(&none);
  ::pthread_sigmask(SIG_SETMASK, &none, nullptr);
  // NOLINTBEGIN(concurrency-mt-unsafe): this is the only thread.
  for (const std::string& variable : begin.variables) {
    const std::size_t equals = variable.find('=');
    ::setenv(variable.substr(0, equals).c_str(), variable.substr(equals + 1).c_str(), 1);
  }
  ::unsetenv("UNISONO_SECRET_FILE");
  ::setenv("UNISONO_SECRET", begin.secret.c_str(), 1);
  // NOLINTEND(concurrency-mt-unsafe)
  if (::chdir(begin.directory.c_str()) != 0) {
    throw system_error("there is no folder to run in, " + begin.directory, errno);
  }
}

int fail(Uplink& uplink, int exit_code, const Error& error) {
  uplink.end(exit_code, fmt::format("{}: {}", uplink.label(), error.what()));
  return exit_code;
}

}  // namespace

int serve_uplink(
    const std::function<int(Uplink& uplink, std::vector<std::string> arguments)>& run) {
  Uplink uplink;
  const Begin& begin = uplink.begin();
  try {
    take_up_environment(begin);
    return run(uplink, begin.arguments);
  } catch (const ProgramError& error) {
    return fail(uplink, error.exit_code(), error);
  } catch (const Error& error) {
    return fail(
        uplink, error.code() == ErrorCode::kInvalidArgument ? kWrongUsage : kLauncherFailed, error);
  }
}

}  // namespace unisono::launch::hosts
