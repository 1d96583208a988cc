// A program that starts its own ranks: spawn_program MODE [PORT].
#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/comm/process_group.h"
#include "unisono/launch/spawn_ranks.h"

namespace {

using unisono::spawn;
using unisono::SpawnContext;
using unisono::SpawnError;

void say(const std::string& text) {
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

// Prints the sum of all ranks' numbers. `name` and `factor` are arguments that the program passes
// to its ranks.
void add_up(int rank, const std::string& name, double factor) {
  auto group = unisono::init_process_group();
  double value = rank * factor;
  group->all_reduce(unisono::as_buffer(std::span(&value, 1)));
  say(name + " " + std::to_string(rank) + " of " + std::to_string(group->world_size()) + ": " +
      std::to_string(static_cast<int>(value)));
}

[[noreturn]] void hang() {
  for (;;) {
    ::pause();
  }
}

// A rank that saves its state after a termination signal, for which it needs a child process, or
// that ignores the request.
[[noreturn]] void save(bool in_time) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  std::array<int, 2> questions{};
  std::array<int, 2> answers{};
  if (::pipe(questions.data()) != 0 || ::pipe(answers.data()) != 0) {
    std::exit(97);
  }
  if (::fork() == 0) {
    ::dup2(questions[0], STDIN_FILENO);
    ::dup2(answers[1], STDOUT_FILENO);
    ::close(questions[1]);
    ::execlp("cat", "cat", nullptr);
    std::_Exit(96);
  }
  ::close(answers[1]);
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  unisono::init_process_group()->barrier();
  int signal_number = 0;
  ::sigwait(&set, &signal_number);
  if (!in_time) {
    hang();
  }
  ::usleep(300'000);
  char byte = 'q';
  const bool is_answered =
      ::write(questions[1], &byte, 1) == 1 && ::read(answers[0], &byte, 1) == 1;
  say(is_answered ? "saved" : "no answer");
  std::exit(0);
}

int report(const SpawnError& error) {
  say("error of rank " + std::to_string(error.rank()) + ", code " +
      std::to_string(error.exit_code()) + ": " + error.what());
  return 3;
}

int run(const std::string& mode, const char* port) {
  if (mode == "sum") {
    const double factor = 10;
    (void)spawn(add_up, std::tuple(std::string("rank"), factor), {.nprocs = 3});
    (void)spawn(add_up, std::tuple("again", 1.0), {.nprocs = 2});
    say("done");
    return 0;
  }
  if (mode == "port") {
    (void)spawn(
        [port](int rank) {
          ::setenv("MASTER_PORT", port, 1);
          add_up(rank, "rank", 1);
        },
        {},
        {.nprocs = 2});
    return 0;
  }
  if (mode == "nested") {
    (void)spawn([](int) { (void)spawn([](int) {}); });
    return 0;
  }
  if (mode == "handle") {
    SpawnContext ranks = spawn([](int) { ::sleep(1); }, {}, {.nprocs = 2, .join = false});
    say(std::to_string(ranks.pids().size()) + " ranks");
    say(ranks.join(std::chrono::milliseconds(1)) ? "over" : "running");
    say(ranks.join() ? "over" : "running");
    return 0;
  }
  if (mode == "daemon") {
    const SpawnContext ranks =
        spawn([](int) { hang(); }, {}, {.nprocs = 2, .join = false, .daemon = true});
    say("ends them");
    return 0;
  }
  if (mode == "wait") {
    (void)spawn(
        [](int rank) {
          say("ready " + std::to_string(rank));
          hang();
        },
        {},
        {.nprocs = 2});
  }
  const auto fail = [&mode](int rank) {
    const bool is_about_saving = mode == "save" || mode == "stubborn";
    if (rank != 1 && is_about_saving) {
      save(mode == "save");
    }
    if (rank != 1) {
      hang();
    }
    if (mode == "throw") {
      throw std::runtime_error("no data there");
    }
    if (is_about_saving) {
      unisono::init_process_group()->barrier();
    }
    if (mode == "exit" || is_about_saving) {
      std::exit(5);
    }
    ::raise(SIGKILL);
  };
  unisono::SpawnOptions options{.nprocs = mode == "none" ? 0 : 3};
  if (mode == "stubborn") {
    options.grace = std::chrono::milliseconds(300);
  }
  (void)spawn(fail, {}, options);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? argv[1] : "sum", argc > 2 ? argv[2] : "");
  } catch (const SpawnError& error) {
    return report(error);
  } catch (const std::exception& error) {
    say(std::string("error: ") + error.what());
    return 4;
  }
}
