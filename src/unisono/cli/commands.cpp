#include "unisono/cli/commands.h"

#include <array>
#include <span>

namespace unisono::cli {
namespace {

// A new command is one line here.
constexpr std::array kCommands{
    Command{"run", "Run a program as several ranks that train together", run_command},
    Command{"launch", "The same as torch.distributed.launch: with --local_rank", launch_command},
    Command{"bench", "Measure collective operations", bench_command},
    Command{"doctor", "Find out what is wrong with a machine or a job", doctor_command},
    Command{"devices", "List the GPUs that this process may use", devices_command},
    Command{"checkpoint", "List, verify, export or compare checkpoints", checkpoint_command},
    Command{"data", "Measure how fast a loader brings training data", data_command},
    Command{"plan", "Plan a training: a batch script, a pipeline", plan_command},
    Command{"secret",
            "Write the secret by which ranks of several nodes trust each other",
            secret_command},
    Command{"store", "Serve a key-value store, or look into one", store_command},
    Command{"backends", "Print which operations there are, by backend", backends_command},
    Command{"alias", "Print how to give other backends' names to Unisono in Python", alias_command},
    Command{"config", "Print the settings that the environment may have", config_command},
    Command{"completion", "Print what lets a shell complete this program", completion_command},
    Command{"man", "Print all of this help as a manual page", man_command},
};

}  // namespace

std::span<const Command> commands() {
  return kCommands;
}

}  // namespace unisono::cli
