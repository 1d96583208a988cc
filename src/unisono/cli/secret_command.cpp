#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <string>
#include <system_error>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "unisono/base/config.h"
#include "unisono/base/error.h"
#include "unisono/cli/commands.h"
#include "unisono/cli/parse.h"
#include "unisono/rendezvous/secret.h"

namespace unisono::cli {
namespace {

// The file that ranks read by themselves, with its folder.
std::string make_place_at_home() {
  const Config config = read_config(process_environment());
  if (config.home.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                "secret: HOME is not set; write: unisono secret FILE, and set "
                "UNISONO_SECRET_FILE=FILE on every rank");
  }
  const std::filesystem::path folder = std::filesystem::path(config.home) / ".unisono";
  std::error_code error;
  if (std::filesystem::create_directory(folder, error)) {
    std::filesystem::permissions(folder, std::filesystem::perms::owner_all, error);
  }
  if (error) {
    throw system_error("can't make the folder " + folder.string(), error.value());
  }
  return folder / "secret";
}

}  // namespace

int secret_command(const CommandLine& line) {
  CLI::App app(
      "Writes a new random secret into ~/.unisono/secret, or another file. Ranks and launchers on\n"
      "several nodes prove by it that they belong together",
      "unisono secret");
  std::string file;
  app.add_option("FILE", file, "In place of ~/.unisono/secret");
  add_examples(app, {"unisono secret", "unisono secret job.secret"});
  if (const std::optional<int> exit_code = parse(app, line)) {
    return *exit_code;
  }
  const std::string path = file.empty() ? make_place_at_home() : file;
  rendezvous::write_secret(path);
  if (file.empty()) {
    fmt::print(
        "wrote {}, which all jobs of this user take, on every node with this home\n"
        "copy it to a node with another home: scp -rp ~/.unisono NODE:\n",
        path);
  } else {
    fmt::print("wrote {}; set UNISONO_SECRET_FILE to it on every rank\n", path);
  }
  return 0;
}

}  // namespace unisono::cli
