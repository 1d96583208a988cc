#include "unisono/cli/doctor/examine_gpus.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/base/config.h"
#include "unisono/cli/doctor/system_files.h"

namespace unisono::cli::doctor {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTopic = "GPU";

std::vector<std::string> find_devices(const fs::path& root) {
  constexpr std::string_view kPrefix = "nvidia";
  std::vector<std::string> devices;
  for (const std::string& name : names_in(root / "dev")) {
    if (name.starts_with(kPrefix) && parse_whole(name.substr(kPrefix.size()))) {
      devices.push_back(name);
    }
  }
  return devices;
}

// "2 NVIDIA H100, 1 NVIDIA L4"
std::string describe_models(const fs::path& root) {
  std::map<std::string, int> counts;
  const fs::path folder = root / "proc/driver/nvidia/gpus";
  for (const std::string& name : names_in(folder)) {
    const std::string text = read_text(folder / name / "information").value_or("");
    ++counts[value_of(text, "Model:").value_or("GPU")];
  }
  std::string models;
  for (const auto& [model, count] : counts) {
    models += fmt::format("{}{} {}", models.empty() ? "" : ", ", count, model);
  }
  return models;
}

// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 ..." has it as the first
// word that begins with a digit.
std::string driver_version(const std::string& text) {
  std::istringstream words(value_of(text, "NVRM version:").value_or(""));
  for (std::string word; words >> word;) {
    if (word[0] >= '0' && word[0] <= '9') {
      return word;
    }
  }
  return "of unknown version";
}

Finding examine_devices(const fs::path& root, const std::string& driver) {
  const std::vector<std::string> devices = find_devices(root);
  const std::string version = driver_version(driver);
  if (devices.empty()) {
    return {.state = State::kWarning,
            .topic = kTopic,
            .text = fmt::format("NVIDIA's driver {} is there, but no /dev/nvidia0", version),
            .advice =
                "a container sees GPUs that it is given: docker run --gpus all, Kubernetes' "
                "nvidia.com/gpu, srun --gpus"};
  }
  for (const std::string& device : devices) {
    const fs::path path = root / "dev" / device;
    if (::access(path.c_str(), R_OK | W_OK) != 0) {
      return {.state = State::kWarning,
              .topic = kTopic,
              .text = fmt::format("this user may not use /dev/{}", device),
              .advice =
                  "its mode or the devices cgroup keep it from this process; ask for the GPU "
                  "when the job starts (srun --gpus), or who manages this machine"};
    }
  }
  return {.state = State::kInfo,
          .topic = kTopic,
          .text = fmt::format("{}; driver {}; {} device{} in /dev. This version of Unisono uses no "
                              "GPU",
                              describe_models(root),
                              version,
                              devices.size(),
                              devices.size() == 1 ? "" : "s")};
}

Findings examine_visible(const std::string& visible, std::size_t n_devices) {
  if (visible.empty() || visible == "-1" || visible == "NoDevFiles") {
    return {{.state = State::kInfo,
             .topic = kTopic,
             .text = fmt::format("CUDA_VISIBLE_DEVICES=\"{}\" hides all GPUs", visible)}};
  }
  std::istringstream parts(visible);
  for (std::string part; std::getline(parts, part, ',');) {
    const std::optional<std::int64_t> index = parse_whole(part);
    if (index && (*index < 0 || static_cast<std::size_t>(*index) >= n_devices)) {
      return {{.state = State::kWarning,
               .topic = kTopic,
               .text = fmt::format("CUDA_VISIBLE_DEVICES={}: of {} GPU{} none has number {}; CUDA "
                                   "hides it and all that follow",
                                   visible,
                                   n_devices,
                                   n_devices == 1 ? "" : "s",
                                   part),
               .advice = "GPUs count from 0; nvidia-smi -L lists them"}};
    }
  }
  return {{.state = State::kInfo, .topic = kTopic, .text = "CUDA_VISIBLE_DEVICES=" + visible}};
}

}  // namespace

Findings examine_gpus(const Environment& environment, const fs::path& root) {
  const std::optional<std::string> driver = read_text(root / "proc/driver/nvidia/version");
  const std::optional<std::string> visible = environment("CUDA_VISIBLE_DEVICES");
  if (!driver) {
    if (visible && !visible->empty() && *visible != "-1") {
      return {{.state = State::kWarning,
               .topic = kTopic,
               .text = fmt::format("CUDA_VISIBLE_DEVICES={}, but there is no driver of NVIDIA here "
                                   "(/proc/driver/nvidia): CUDA will find no GPU",
                                   *visible),
               .advice = "install the driver, or start the container with GPUs (docker run --gpus "
                         "all); for training on CPUs unset the variable"}};
    }
    return {{.state = State::kInfo, .topic = kTopic, .text = "none: no driver of NVIDIA"}};
  }
  Findings findings{examine_devices(root, *driver)};
  if (visible) {
    append(findings, examine_visible(*visible, find_devices(root).size()));
  }
  return findings;
}

}  // namespace unisono::cli::doctor
