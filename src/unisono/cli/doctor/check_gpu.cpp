#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <utility>

#include "unisono/cli/doctor/checks.h"

namespace unisono::cli::doctor {
namespace {

namespace fs = std::filesystem;

// Returns the models with their numbers: "2 NVIDIA H100, 1 NVIDIA L4".
std::string describe_models(const Machine& machine) {
  std::map<std::string, int> counts;
  for (const fs::path& file : machine.glob("proc/driver/nvidia/gpus/*/information")) {
    ++counts[machine.value(file, "Model:").value_or("GPU")];
  }
  std::vector<std::string> models;
  for (const auto& [model, count] : counts) {
    models.push_back(std::to_string(count) + " " + model);
  }
  return join(models, ", ");
}

// Returns the first word that begins with a digit: "NVRM version: NVIDIA UNIX x86_64 Kernel Module
// 535.183.01  Sun May 12 ...".
std::string driver_version(const Machine& machine) {
  std::istringstream words(
      machine.value("proc/driver/nvidia/version", "NVRM version:").value_or(""));
  for (std::string word; words >> word;) {
    if (word[0] >= '0' && word[0] <= '9') {
      return word;
    }
  }
  return "of unknown version";
}

Findings check_devices(const Machine& machine, const std::vector<fs::path>& devices) {
  const std::string version = driver_version(machine);
  if (devices.empty()) {
    return warning("NVIDIA's driver " + version + " is loaded, but there is no /dev/nvidia0",
                   "give the container GPUs: docker run --gpus all, Kubernetes' "
                   "nvidia.com/gpu, srun --gpus");
  }
  for (const fs::path& device : devices) {
    if (::access((machine.root / device).c_str(), R_OK | W_OK) != 0) {
      return warning("this user may not use /" + device.string(),
                     "its mode or the devices cgroup keep it from this process; ask for the GPU "
                     "when the job starts (srun --gpus), or ask the administrator of this machine");
    }
  }
  return info(describe_models(machine) + "; driver " + version + "; " +
              count_of(std::ssize(devices), "device") +
              " in /dev. This version of Unisono uses no GPU");
}

Findings check_visible_devices(const std::string& visible, std::int64_t n_devices) {
  const std::string text = "CUDA_VISIBLE_DEVICES=" + visible;
  if (visible.empty() || visible == "-1" || visible == "NoDevFiles") {
    return info("CUDA_VISIBLE_DEVICES=\"" + visible + "\" hides all GPUs");
  }
  std::istringstream parts(visible);
  for (std::string part; std::getline(parts, part, ',');) {
    const std::optional<std::int64_t> index = parse_whole(part);
    if (index && (*index < 0 || *index >= n_devices)) {
      return warning(
          fmt::format(
              "{}: this machine has {}, none with number {}; CUDA hides it and all that follow",
              text,
              count_of(n_devices, "GPU"),
              part),
          "GPUs count from 0; nvidia-smi -L lists them");
    }
  }
  return info(text);
}

// Names of libraries, and file names without ".VERSION".
constexpr std::pair<const char*, const char*> kLibraries[] = {
    {"NCCL", "libnccl.so"}, {"MPI", "libmpi.so"}, {"MPICH", "libmpich.so"}, {"UCX", "libucp.so"}};

// Appends the folders of ld.so.conf. The depth is limited because files may include each other.
void read_loader_file(const Machine& machine,
                      const fs::path& file,
                      int depth,
                      std::vector<fs::path>& folders) {
  constexpr int kMaxDepth = 8;
  std::istringstream lines(depth < kMaxDepth ? machine.text(file).value_or("") : "");
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string first;
    std::string second;
    words >> first >> second;
    if (first == "include") {
      // The path may be a pattern.
      for (const fs::path& included :
           machine.glob(second.starts_with('/') ? fs::path(second).relative_path()
                                                : file.parent_path() / second)) {
        read_loader_file(machine, included, depth + 1, folders);
      }
    } else if (first.starts_with('/')) {
      folders.emplace_back(first);
    }
  }
}

// Returns the folders of the dynamic loader, in the order of its search.
std::vector<fs::path> loader_folders(const Machine& machine) {
  std::vector<fs::path> folders;
  std::istringstream paths(machine.environment("LD_LIBRARY_PATH").value_or(""));
  for (std::string path; std::getline(paths, path, ':');) {
    folders.emplace_back(path);
  }
  read_loader_file(machine, "etc/ld.so.conf", 0, folders);
  folders.insert(folders.end(), {"/lib64", "/usr/lib64", "/lib", "/usr/lib"});
  std::erase(folders, fs::path());
  return folders;
}

// Returns the path of the newest version, or of the file itself, in the first folder that has the
// library; empty if no folder has it.
std::string find_library(const Machine& machine,
                         const std::vector<fs::path>& folders,
                         const std::string& file) {
  for (const fs::path& folder : folders) {
    for (const std::string& pattern : {file + ".*", file}) {
      const std::vector<fs::path> found = machine.glob(folder.relative_path() / pattern);
      if (!found.empty()) {
        return folder / found.back().filename();
      }
    }
  }
  return "";
}

}  // namespace

Findings check_gpus(const Machine& machine) {
  const std::optional<std::string> visible = machine.environment("CUDA_VISIBLE_DEVICES");
  if (!machine.text("proc/driver/nvidia/version")) {
    return !visible || visible->empty() || *visible == "-1"
               ? info("none: no NVIDIA driver")
               : warning("CUDA_VISIBLE_DEVICES=" + *visible +
                             ", but there is no NVIDIA driver here (/proc/driver/nvidia): CUDA "
                             "will find no GPU",
                         "install the driver, or start the container with GPUs (docker run --gpus "
                         "all); for training on CPUs unset the variable");
  }
  const std::vector<fs::path> devices = machine.glob("dev/nvidia[0-9]*");
  Findings findings = check_devices(machine, devices);
  if (visible) {
    append(findings, check_visible_devices(*visible, std::ssize(devices)));
  }
  return findings;
}

// Checks that the files exist, without loading a library.
Findings check_libraries(const Machine& machine) {
  const std::vector<fs::path> folders = loader_folders(machine);
  std::vector<std::string> parts;
  std::vector<std::string> missing;
  for (const auto& [name, file] : kLibraries) {
    const std::string path = find_library(machine, folders, file);
    if (path.empty()) {
      missing.emplace_back(name);
    } else {
      parts.push_back(std::string(name) + ": " + path);
    }
  }
  if (!missing.empty()) {
    parts.push_back("not found: " + join(missing, ", "));
  }
  return info(join(parts, "; "));
}

}  // namespace unisono::cli::doctor
