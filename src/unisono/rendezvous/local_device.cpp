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
#include "unisono/rendezvous/launchers/launcher.h"
#include "unisono/rendezvous/launchers/variable_reader.h"

namespace unisono::rendezvous {
namespace {

// Of several: "0 and 2", "0, 2 and 4"
std::string listed(const std::vector<int>& numbers) {
  const auto last = numbers.end() - 1;
  return fmt::format("{} and {}", fmt::join(numbers.begin(), last, ", "), *last);
}

// In a phrase for each GPU that several ranks have: "ranks 0 and 1 are both on cuda:0". `format`
// takes the ranks, "both" or "all", and the number of the GPU.
std::string describe_sharers(const std::vector<Device>& devices,
                             int first_rank,
                             fmt::format_string<std::string, const char*, const int&> format) {
  std::map<int, std::vector<int>> ranks;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (devices[i].type == DeviceType::kCuda) {
      ranks[devices[i].index].push_back(first_rank + static_cast<int>(i));
    }
  }
  std::string text;
  for (const auto& [index, sharers] : ranks) {
    if (sharers.size() > 1) {
      text += (text.empty() ? "" : ", ") +
              fmt::format(format, listed(sharers), sharers.size() == 2 ? "both" : "all", index);
    }
  }
  return text;
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
  const std::string text = describe_sharers(devices, 0, "local ranks {} {} use cuda:{}");
  return text.empty()
             ? ""
             : text +
                   fmt::format(": there are {} ranks for {} GPU{}, and they slow each other down",
                               n_local_ranks,
                               n_gpus,
                               n_gpus == 1 ? "" : "s");
}

std::string explain_same_gpu(const std::vector<Device>& devices, int first_rank) {
  const std::string text = describe_sharers(devices, first_rank, "ranks {} are {} on cuda:{}");
  return text.empty()
             ? ""
             : text +
                   ": choose each rank's device by LOCAL_RANK, and start no more ranks than GPUs";
}

std::string describe(const Device& device) {
  return device.type == DeviceType::kCpu ? "cpu" : fmt::format("cuda:{}", device.index);
}

}  // namespace unisono::rendezvous
