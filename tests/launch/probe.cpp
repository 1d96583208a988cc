// A program for the launcher. Its first argument selects its action.
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <map>
#include <string>

namespace {

int rank() {
  return std::atoi(std::getenv("RANK"));
}

// Uses one write, so that the launcher reads whole words.
void say(const std::string& text) {
  if (::write(STDOUT_FILENO, text.data(), text.size()) < 0) {
    std::_Exit(99);
  }
}

// A long but finite wait: processes of a broken launcher must not accumulate on the machine.
[[noreturn]] void hang() {
  constexpr unsigned kSeconds = 120;
  for (unsigned left = kSeconds; left > 0;) {
    left = ::sleep(left);
  }
  std::_Exit(98);
}

int print_args(int argc, char** argv) {
  for (int i = 0; i < argc; ++i) {
    say("<" + std::string(argv[i]) + ">\n");
  }
  return 0;
}

int print_environment(int argc, char** argv) {
  std::string text;
  for (int i = 2; i < argc; ++i) {
    const char* value = std::getenv(argv[i]);
    text += std::string(argv[i]) + "=" + (value == nullptr ? "(unset)" : value) + "\n";
  }
  say(text);
  return 0;
}

// Prints "rank 1 cores 0,1 threads 2".
int print_cores(int /*argc*/, char** /*argv*/) {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) {
    return 92;
  }
  std::string list;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) {
      list += (list.empty() ? "" : ",") + std::to_string(core);
    }
  }
  const char* const threads = std::getenv("OMP_NUM_THREADS");
  say("rank " + std::to_string(rank()) + " cores " + list + " threads " +
      (threads == nullptr ? "(unset)" : threads) + "\n");
  return 0;
}

// Prints many lines in pieces that end at any byte.
int print_lines(int argc, char** argv) {
  const int n_lines = argc > 2 ? std::atoi(argv[2]) : 0;
  std::string text;
  for (int i = 0; i < n_lines; ++i) {
    text += "rank " + std::to_string(rank()) + " line " + std::to_string(i) + " end\n";
  }
  constexpr std::size_t kPiece = 37;
  for (std::size_t at = 0; at < text.size(); at += kPiece) {
    say(text.substr(at, kPiece));
  }
  return 0;
}

int print_long_line(int argc, char** argv) {
  if (rank() == 1) {
    say(std::string(argc > 2 ? static_cast<std::size_t>(std::atoi(argv[2])) : 0, 'x') + "\n");
  }
  say("short\n");
  return 0;
}

// fail WHICH HOW: one rank exits with a code or by a signal. The other ranks continue.
int fail(int argc, char** argv) {
  const std::string how = argc > 3 ? argv[3] : "";
  if (argc > 2 && rank() != std::atoi(argv[2])) {
    say("ready\n");
    hang();
  }
  say("first\nlast words\n");
  if (how == "kill") {
    ::raise(SIGKILL);
  }
  return std::atoi(how.c_str());
}

int wait_ready(int /*argc*/, char** /*argv*/) {
  say("ready\n");
  hang();
}

int ignore_term(int /*argc*/, char** /*argv*/) {
  ::signal(SIGTERM, SIG_IGN);
  ::signal(SIGINT, SIG_IGN);
  say("ready\n");
  hang();
}

// The signals stay blocked, so that a second signal does not interrupt the next steps.
int wait_for_signal(std::initializer_list<int> signal_numbers) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal_number : signal_numbers) {
    sigaddset(&set, signal_number);
  }
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  say("ready\n");
  int signal_number = 0;
  ::sigwait(&set, &signal_number);
  return signal_number;
}

// Prints the signal that ended the wait and exits with success.
int tell_signal(int /*argc*/, char** /*argv*/) {
  const int signal_number = wait_for_signal({SIGINT, SIGTERM, SIGHUP, SIGUSR1});
  say("got " + std::to_string(signal_number) + "\n");
  return 0;
}

// save SECONDS: a rank that needs this time to save its state after a termination signal.
int save(int argc, char** argv) {
  wait_for_signal({SIGINT, SIGTERM, SIGHUP});
  say("saving\n");
  ::usleep(static_cast<useconds_t>((argc > 2 ? std::atof(argv[2]) : 0) * 1e6));
  say("saved\n");
  return 0;
}

// A child that answers each byte and does not end by itself.
[[noreturn]] void answer(int questions, int answers, bool ignores_sigterm) {
  ::signal(SIGTERM, ignores_sigterm ? SIG_IGN : SIG_DFL);
  for (char byte = 0; ::read(questions, &byte, 1) == 1;) {
    if (::write(answers, &byte, 1) != 1) {
      break;
    }
  }
  hang();
}

// ask-child [stubborn]: queries its child after each signal. SIGTERM is the last signal.
int ask_child(int argc, char** argv) {
  std::array<int, 2> questions{};
  std::array<int, 2> answers{};
  if (::pipe(questions.data()) != 0 || ::pipe(answers.data()) != 0) {
    return 97;
  }
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(questions[1]);
    answer(questions[0], answers[1], argc > 2 && std::string(argv[2]) == "stubborn");
  }
  ::close(answers[1]);
  ::signal(SIGPIPE, SIG_IGN);
  say("child " + std::to_string(child) + "\n");
  for (int signal_number = 0; signal_number != SIGTERM;) {
    signal_number = wait_for_signal({SIGTERM, SIGUSR1});
    char byte = 'q';
    const bool is_answered =
        ::write(questions[1], &byte, 1) == 1 && ::read(answers[0], &byte, 1) == 1;
    say((is_answered ? "answered " : "no answer ") + std::to_string(signal_number) + "\n");
  }
  return 0;
}

// Starts a grandchild that has left session and parent and ignores every signal that can be
// ignored. Then this rank ends or waits.
int leave_daemon(int argc, char** argv) {
  std::array<int, 2> ready{};
  if (::pipe(ready.data()) != 0) {
    return 97;
  }
  if (::fork() == 0) {
    ::setsid();
    if (::fork() == 0) {
      for (const int signal_number : {SIGINT, SIGTERM, SIGHUP}) {
        ::signal(signal_number, SIG_IGN);
      }
      ::prctl(PR_SET_PDEATHSIG, 0);
      if (::write(ready[1], "r", 1) != 1) {
        std::_Exit(96);
      }
      hang();
    }
    std::_Exit(0);
  }
  char byte = 0;
  if (::read(ready[0], &byte, 1) != 1) {
    return 95;
  }
  say("ready\n");
  if (argc > 2 && std::string(argv[2]) == "exit") {
    return 0;
  }
  hang();
}

// Writes until a signal ends the process.
int flood(int /*argc*/, char** /*argv*/) {
  for (;;) {
    say("a line that never ends to come again and again\n");
  }
}

int close_stdout(int /*argc*/, char** /*argv*/) {
  say("before");
  ::close(STDOUT_FILENO);
  ::dprintf(STDERR_FILENO, "still here\n");
  return 0;
}

int copy_stdin(int /*argc*/, char** /*argv*/) {
  std::array<char, 4096> buffer{};
  std::string text = "rank " + std::to_string(rank()) + " read:";
  ssize_t n_bytes = 0;
  while ((n_bytes = ::read(STDIN_FILENO, buffer.data(), buffer.size())) > 0) {
    text.append(buffer.data(), static_cast<std::size_t>(n_bytes));
  }
  say(text + "\n");
  return 0;
}

// A progress bar that waits for a byte on stdin before its line ends.
int progress(int /*argc*/, char** /*argv*/) {
  say(::isatty(STDOUT_FILENO) == 1 ? "terminal\n" : "no terminal\n");
  if (rank() != 0) {
    return 0;
  }
  say("\r 50%");
  char byte = 0;
  if (::read(STDIN_FILENO, &byte, 1) != 1) {
    return 94;
  }
  say("\r100%\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, int (*)(int, char**)> actions{{"args", print_args},
                                                            {"environment", print_environment},
                                                            {"cores", print_cores},
                                                            {"lines", print_lines},
                                                            {"long-line", print_long_line},
                                                            {"fail", fail},
                                                            {"wait", wait_ready},
                                                            {"ignore-term", ignore_term},
                                                            {"tell-signal", tell_signal},
                                                            {"save", save},
                                                            {"ask-child", ask_child},
                                                            {"daemon", leave_daemon},
                                                            {"flood", flood},
                                                            {"close-stdout", close_stdout},

                                                            {"stdin", copy_stdin},
                                                            {"progress", progress}};
  const auto action = actions.find(argc > 1 ? argv[1] : "");
  return action == actions.end() ? 93 : action->second(argc, argv);
}
