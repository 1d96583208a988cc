#include "unisono/rendezvous/local_device.h"

#include <fmt/format.h>

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/config.h"
#include "unisono/base/error.h"
#include "unisono/rendezvous/launcher.h"
#include "unisono/rendezvous/variable_reader.h"

namespace unisono::rendezvous {
namespace {

// "0 and 2", "0, 2 and 4"
std::string listed(const std::vector<int>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const bool is_last = i + 1 == numbers.size();
    text += fmt::format("{}{}", i == 0 ? "" : (is_last ? " and " : ", "), numbers[i]);
  }
  return text;
}

// The ranks of each GPU that several have.
std::map<int, std::vector<int>> sharers(const std::vector<Device>& devices, int first_rank) {
  std::map<int, std::vector<int>> ranks;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (devices[i].type == DeviceType::kCuda) {
      ranks[devices[i].index].push_back(first_rank + static_cast<int>(i));
    }
  }
  std::erase_if(ranks, [](const auto& entry) { return entry.second.size() < 2; });
  return ranks;
}

}  // namespace

Device device_of_local_rank(int local_rank, int n_gpus) {
  return n_gpus == 0 ? Device{} : Device{.type = DeviceType::kCuda, .index = local_rank % n_gpus};
}

std::optional<int> own_local_rank(const Environment& environment) {
  VariableReader reader(environment);
  const Launcher* const launcher = find_launcher(environment);
  const bool is_launchers = launcher != nullptr && !reader.is_set("LOCAL_RANK");
  const char* const name = is_launchers ? launcher->local_rank : "LOCAL_RANK";
  const std::optional<int> rank = name == nullptr ? std::nullopt : reader.optional_int(name, 0);
  if (!reader.problems().empty()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("{}; launchers set it, from 0 on each node, and it says which GPU a rank "
                    "uses",
                    reader.problems()));
  }
  return rank;
}

std::string describe_shared_gpus(int n_local_ranks, int n_gpus) {
  std::vector<Device> devices;
  for (int local_rank = 0; local_rank < n_local_ranks; ++local_rank) {
    devices.push_back(device_of_local_rank(local_rank, n_gpus));
  }
  std::string text;
  for (const auto& [index, ranks] : sharers(devices, 0)) {
    text += fmt::format("{}local ranks {} {} use cuda:{}",
                        text.empty() ? "" : ", ",
                        listed(ranks),
                        ranks.size() == 2 ? "both" : "all",
                        index);
  }
  return text.empty()
             ? ""
             : text +
                   fmt::format(": there are {} ranks for {} GPU{}, and they slow each other down",
                               n_local_ranks,
                               n_gpus,
                               n_gpus == 1 ? "" : "s");
}

std::string explain_same_gpu(const std::vector<Device>& devices, int first_rank) {
  std::string text;
  for (const auto& [index, ranks] : sharers(devices, first_rank)) {
    text += fmt::format("{}ranks {} are {} on cuda:{}",
                        text.empty() ? "" : ", ",
                        listed(ranks),
                        ranks.size() == 2 ? "both" : "all",
                        index);
  }
  return text.empty()
             ? ""
             : text +
                   ": choose each rank's device by LOCAL_RANK, and start no more ranks than GPUs";
}

std::string describe(const Device& device) {
  return device.type == DeviceType::kCpu ? "cpu" : fmt::format("cuda:{}", device.index);
}

}  // namespace unisono::rendezvous
