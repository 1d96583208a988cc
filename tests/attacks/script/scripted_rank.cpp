// A rank that plays a script: scripted_rank FILE. After the script the program checks that the
// process is intact: the process can create a group of its own and has no more sockets than at the
// start.

#include <exception>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/comm/process_group.h"
#include "unisono/store/hash_store.h"

#include "attacks/script/line.h"
#include "attacks/script/player.h"
#include "support/process.h"

namespace {

using unisono::attacks::Line;
using unisono::attacks::Player;
using unisono::attacks::report;

int n_sockets() {
  namespace fs = std::filesystem;
  int n = 0;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    n += fs::read_symlink(entry, ignored).string().starts_with("socket:") ? 1 : 0;
  }
  return n;
}

void show_that_it_is_well() {
  const auto alone = unisono::create_process_group(
      {.store = std::make_shared<unisono::store::HashStore>(), .rank = 0, .world_size = 1});
  std::vector<float> values(1000, 3.0F);
  alone->all_reduce(unisono::as_buffer(std::span(values)));
  alone->destroy();
  const bool is_right = values == std::vector<float>(values.size(), 3.0F);
  report(is_right ? "ok" : "wrong", -1, "a group of its own");
}

void play(const std::string& path) {
  const int n_before = n_sockets();
  std::ifstream script(path);
  Player player;
  for (std::string text; std::getline(script, text);) {
    if (text == "hold") {
      report("held", -1, "");
      unisono::test::wait_for_end_of_stdin();
    } else {
      player.play(Line(text));
    }
  }
  player.leave();
  show_that_it_is_well();
  report("sockets", n_sockets() - n_before, "");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    play(argc > 1 ? argv[1] : "");
  } catch (const std::exception& error) {
    report("thrown", -1, error.what());
    return 1;
  }
}
