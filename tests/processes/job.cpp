#include "processes/job.h"

#include <sstream>
#include <utility>

namespace unisono::test {

Variables Job::variables(int rank) const {
  Variables variables = setup_.variables;
  variables.insert({{"RANK", std::to_string(rank)},
                    {"WORLD_SIZE", std::to_string(setup_.world_size)},
                    {"MASTER_ADDR", "127.0.0.1"},
                    {"MASTER_PORT", port_.text()}});
  if (!setup_.nodes.empty()) {
    variables.insert({{"UNISONO_NODE_ID", setup_.nodes.at(static_cast<std::size_t>(rank))},
                      {"UNISONO_SECRET", "known to all"}});
  }
  return variables;
}

void Job::start(int rank, const Variables& own) {
  Variables all = variables(rank);
  for (const auto& [name, value] : own) {
    all[name] = value;
  }
  std::vector<std::string> command{UNISONO_RANK_PROGRAM};
  command.insert(command.end(), setup_.mode.begin(), setup_.mode.end());
  (void)processes_.start(std::move(command), all);
}

void Job::start_all() {
  for (int rank = 0; rank < setup_.world_size; ++rank) {
    start(rank);
  }
}

std::vector<ProcessResult> run_job(JobSetup setup) {
  Job job(std::move(setup));
  job.start_all();
  return job.processes().finish();
}

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

}  // namespace unisono::test
