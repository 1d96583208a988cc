#include "attacks/script/player.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "unisono/base/error.h"

#include "support/process.h"

namespace unisono::attacks {
namespace {

// An exception that a script requests, in contrast to errors of the library.
struct AskedFor : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void report_end(const Call& call, int step) {
  const std::string wrong = call.find_wrong_values() + call.find_wrong_guards();
  report(wrong.empty() ? "ok" : "wrong", step, wrong);
}

}  // namespace

void report(const std::string& word, int step, const std::string& text) {
  std::array<char, 32> seconds{};
  std::snprintf(seconds.data(), seconds.size(), "%.6f", test::seconds_of(CLOCK_MONOTONIC));
  std::string line =
      std::string(seconds.data()) + " " + word + " " + std::to_string(step) + " " + text;
  std::ranges::replace(line, '\n', ' ');
  line += '\n';
  if (::write(STDOUT_FILENO, line.data(), line.size()) < 0) {
    std::_Exit(1);
  }
}

void Player::play(const Line& line) {
  if (line.has("group") && group_of(line) == nullptr) {
    return;
  }
  report("start", line.step(), line.verb());
  try {
    carry_out(line);
  } catch (const Error& error) {
    report("error", line.step(), std::string(to_string(error.code())) + " " + error.what());
  }
}

void Player::leave() {
  for (auto& [unused, group] : groups_) {
    if (group != nullptr) {
      group->destroy();
    }
  }
  under_way_.clear();
  groups_.clear();
  destroy_process_group();
}

const std::shared_ptr<ProcessGroup>& Player::group_of(const Line& line) const {
  static const std::shared_ptr<ProcessGroup> kNone;
  const auto found = groups_.find(line.number("group"));
  return found == groups_.end() ? kNone : found->second;
}

void Player::carry_out(const Line& line) {
  const std::string& verb = line.verb();
  if (verb == "sleep") {
    std::this_thread::sleep_for(std::chrono::microseconds(line.number("us")));
  } else if (verb == "end") {
    end_as_asked(line.text("how"));
  } else if (verb == "wait") {
    wait_for(line);
  } else if (verb == "init") {
    init(line);
    report("ok", line.step(), "");
  } else if (verb == "new_group") {
    make_group(line);
    report("ok", line.step(), "");
  } else if (verb == "destroy") {
    group_of(line)->destroy();
    report("ok", line.step(), "");
  } else if (verb == "abort") {
    group_of(line)->abort("as the script has it");
    report("ok", line.step(), "");
  } else {
    call(line);
  }
}

void Player::init(const Line& line) {
  groups_[0] = init_process_group({.timeout = line.timeout()});
}

void Player::make_group(const Line& line) {
  std::vector<int> ranks;
  for (const std::int64_t rank : line.numbers("ranks")) {
    ranks.push_back(static_cast<int>(rank));
  }
  groups_[line.number("as")] = group_of(line)->new_group(ranks, {.timeout = line.timeout()});
}

void Player::call(const Line& line) {
  Call call;
  try {
    call.start(line, *group_of(line));
  } catch (const Error&) {
    if (!call.find_wrong_guards().empty()) {
      report("wrong", line.step(), call.find_wrong_guards());
    }
    throw;
  }
  if (line.number("async") != 0) {
    under_way_.emplace(line.step(), std::move(call));
  } else {
    report_end(call, line.step());
  }
}

void Player::wait_for(const Line& line) {
  const auto step = static_cast<int>(line.number("of"));
  const auto found = under_way_.find(step);
  if (found == under_way_.end()) {
    return;
  }
  try {
    found->second.wait();
    report_end(found->second, step);
  } catch (const Error& error) {
    report("error", step, std::string(to_string(error.code())) + " " + error.what());
    if (!found->second.find_wrong_guards().empty()) {
      report("wrong", step, found->second.find_wrong_guards());
    }
  }
  under_way_.erase(found);
}

void Player::end_as_asked(const std::string& how) {
  if (how == "exit") {
    std::exit(0);
  }
  if (how == "_exit") {
    ::_exit(0);
  }
  if (how == "abort") {
    std::abort();
  }
  throw AskedFor("as the script has it");
}

}  // namespace unisono::attacks
