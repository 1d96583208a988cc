#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "unisono/base/error.h"
#include "unisono/checkpoint/folder.h"
#include "unisono/checkpoint/latest.h"
#include "unisono/checkpoint/manifest.h"
#include "unisono/checkpoint/reader.h"
#include "unisono/checkpoint/safetensors.h"
#include "unisono/checkpoint/tensor_box.h"
#include "unisono/cli/commands.h"
#include "unisono/cli/parse.h"

namespace unisono::cli {
namespace {

using checkpoint::CheckpointTensor;
using checkpoint::Reader;

// Exit codes as in diff and cmp.
constexpr int kDifferent = 1;
constexpr int kTrouble = 2;
constexpr std::size_t kByteBits = 8;

struct CheckpointArguments {
  std::string path;
  std::string other;
  std::string prefix;
};

std::uint64_t bytes_of(const CheckpointTensor& tensor) {
  return checkpoint::count_bytes(tensor.info.dtype, tensor.info.shape).value_or(0);
}

std::uint64_t bytes_of(const Reader& reader) {
  std::uint64_t n_bytes = 0;
  for (const auto& [name, tensor] : reader.tensors()) {
    n_bytes += bytes_of(tensor);
  }
  return n_bytes;
}

std::string summary(const Reader& reader) {
  const std::optional<checkpoint::Manifest>& manifest = reader.manifest();
  const std::size_t n_files = reader.files().size();
  return fmt::format("{}{} tensors, {} bytes, {} file{}",
                     manifest ? fmt::format("step {}, ", manifest->step) : "",
                     reader.tensors().size(),
                     bytes_of(reader),
                     n_files,
                     n_files == 1 ? "" : "s");
}

// Returns the paths of the checkpoints in `path`: `path` itself if it is a checkpoint.
std::vector<std::string> checkpoints_in(const std::string& path) {
  std::vector<std::string> paths;
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored) && !checkpoint::read_manifest(path)) {
    for (const std::int64_t step : checkpoint::list_steps(path)) {
      if (std::optional<std::string> found = checkpoint::find_checkpoint(path, step)) {
        paths.push_back(*std::move(found));
      }
    }
  }
  if (paths.empty()) {
    paths.push_back(path);
  }
  return paths;
}

// Calls `action` for each checkpoint, and continues after an error.
int for_each(const std::vector<std::string>& paths,
             const std::function<void(const std::string&)>& action) {
  int exit_code = 0;
  for (const std::string& path : paths) {
    try {
      action(path);
    } catch (const Error& error) {
      print_error(error.what());
      exit_code = kDifferent;
    }
  }
  return exit_code;
}

int list_checkpoints(const std::string& root, const std::vector<std::string>& paths) {
  std::optional<std::string> latest;
  const int exit_code = for_each({root}, [&](const std::string& path) {
    latest = checkpoint::latest_checkpoint(path, {.reads_bytes = false});
  });
  return exit_code | for_each(paths, [&](const std::string& path) {
           fmt::print("{}: {}{}\n",
                      std::filesystem::path(path).filename().string(),
                      summary(Reader(path)),
                      path == latest ? " (latest)" : "");
         });
}

int list(const CheckpointArguments& arguments) {
  const std::vector<std::string> paths = checkpoints_in(arguments.path);
  if (paths.front() != arguments.path) {
    return list_checkpoints(arguments.path, paths);
  }
  const Reader reader(arguments.path);
  fmt::print("{}\n", summary(reader));
  for (const auto& [name, tensor] : reader.tensors()) {
    const std::size_t n_parts = tensor.boxes.size();
    fmt::print("  {} {}{}\n",
               name,
               checkpoint::describe(tensor.info.dtype, tensor.info.shape),
               n_parts == 1 ? "" : fmt::format(" in {} parts", n_parts));
  }
  return 0;
}

void verify_one(const std::string& path) {
  Reader reader(path);
  reader.verify();
  fmt::print("{}: {}: {}\n",
             path,
             summary(reader),
             reader.manifest() ? "all check sums are right"
                               : "well formed; it has no check sums to compare with");
}

void verify_latest(const std::string& root) {
  const std::optional<checkpoint::LatestName> latest = checkpoint::read_latest(root);
  if (latest && !latest->problem.empty()) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: {}; write the name of a checkpoint into {}/{}",
                            root,
                            latest->problem,
                            root,
                            checkpoint::kLatestName));
  }
}

int verify(const CheckpointArguments& arguments) {
  const std::vector<std::string> paths = checkpoints_in(arguments.path);
  const int exit_code = for_each(paths, verify_one);
  const bool is_root = paths.front() != arguments.path;
  return is_root ? exit_code | for_each({arguments.path}, verify_latest) : exit_code;
}

std::vector<std::byte> read_whole(Reader& reader, const CheckpointTensor& tensor) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(bytes_of(tensor)));
  reader.read(tensor.info.name, bytes);
  return bytes;
}

int export_file(const CheckpointArguments& arguments) {
  Reader reader(arguments.path);
  std::vector<std::vector<std::byte>> contents;
  std::vector<checkpoint::TensorBytes> tensors;
  for (const auto& [name, tensor] : reader.tensors()) {
    if (name.starts_with(arguments.prefix)) {
      contents.push_back(read_whole(reader, tensor));
      tensors.push_back({.info = tensor.info, .bytes = contents.back()});
      tensors.back().info.name.erase(0, arguments.prefix.size());
    }
  }
  if (tensors.empty()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("{}: no tensor's name begins with \"{}\"; `unisono checkpoint ls` lists "
                    "them",
                    reader.path(),
                    arguments.prefix));
  }
  checkpoint::write_safetensors(arguments.other, tensors, {{"format", "pt"}});
  fmt::print("{} tensors in {}\n", tensors.size(), arguments.other);
  return 0;
}

// Returns the number of elements with a different bit. Elements of less than 8 bits are packed
// without gaps.
std::size_t count_different(std::span<const std::byte> ours,
                            std::span<const std::byte> theirs,
                            std::size_t item_bits) {
  std::size_t n_different = 0;
  std::size_t next = 0;  // First element that is not counted yet.
  for (std::size_t at = 0; at < ours.size(); ++at) {
    const auto bits = std::to_integer<unsigned>(ours[at] ^ theirs[at]);
    for (std::size_t bit = 0; bits != 0 && bit < kByteBits; ++bit) {
      const std::size_t item = (at * kByteBits + bit) / item_bits;
      if ((bits >> bit & 1U) != 0 && item >= next) {
        ++n_different;
        next = item + 1;
      }
    }
  }
  return n_different;
}

// Describes the difference of the tensor in the other checkpoint; empty for equal tensors.
std::string difference(Reader& reader, Reader& other, const CheckpointTensor& tensor) {
  const auto found = other.tensors().find(tensor.info.name);
  if (found == other.tensors().end()) {
    return "only in " + reader.path();
  }
  if (found->second.info != tensor.info) {
    return fmt::format("{} and {}",
                       checkpoint::describe(tensor.info.dtype, tensor.info.shape),
                       checkpoint::describe(found->second.info.dtype, found->second.info.shape));
  }
  const std::vector<std::byte> ours = read_whole(reader, tensor);
  const std::vector<std::byte> theirs = read_whole(other, found->second);
  const auto item_bits = static_cast<std::size_t>(tensor.info.dtype.n_bits());
  const std::size_t n_different = count_different(ours, theirs, item_bits);
  return n_different == 0
             ? ""
             : fmt::format(
                   "{} of {} elements differ", n_different, ours.size() * kByteBits / item_bits);
}

int diff(const CheckpointArguments& arguments) {
  Reader reader(arguments.path);
  Reader other(arguments.other);
  int n_different = 0;
  const auto print = [&](const std::string& name, const std::string& what) {
    fmt::print("{}: {}\n", name, what);
    ++n_different;
  };
  for (const auto& [name, tensor] : reader.tensors()) {
    if (const std::string what = difference(reader, other, tensor); !what.empty()) {
      print(name, what);
    }
  }
  for (const auto& [name, tensor] : other.tensors()) {
    if (!reader.tensors().contains(name)) {
      print(name, "only in " + other.path());
    }
  }
  if (n_different == 0) {
    fmt::print("equal, bit for bit: {} tensors\n", reader.tensors().size());
  }
  return n_different == 0 ? 0 : kDifferent;
}

}  // namespace

int checkpoint_command(const CommandLine& line) {
  CLI::App app("Inspects checkpoints", "unisono checkpoint");
  app.require_subcommand(1);
  CheckpointArguments arguments;
  const char* const what =
      "safetensors file, folder of a checkpoint, or of checkpoints (then the latest)";
  CLI::App* const list_app =
      app.add_subcommand("ls", "List the checkpoints of a folder, or the tensors of one");
  list_app->add_option("path", arguments.path, what)->required();
  CLI::App* const verify_app =
      app.add_subcommand("verify", "Read all of a checkpoint, or of all in a folder, and check it");
  verify_app->add_option("path", arguments.path, what)->required();
  CLI::App* const export_app =
      app.add_subcommand("export", "Write a checkpoint's whole tensors into one safetensors file");
  export_app->add_option("path", arguments.path, what)->required();
  export_app->add_option("file", arguments.other, "The file to write")
      ->type_name("FILE")
      ->required();
  export_app->add_option(
      "--prefix",
      arguments.prefix,
      "Only tensors whose names begin with this, e.g. model.; it is removed from the names");
  CLI::App* const diff_app =
      app.add_subcommand("diff", "List the tensors that differ between two checkpoints");
  diff_app->add_option("path", arguments.path, what)->required();
  diff_app->add_option("other", arguments.other, what)->required();
  add_examples(*list_app,
               {"unisono checkpoint ls checkpoints", "unisono checkpoint ls model.safetensors"});
  add_examples(
      *verify_app,
      {"unisono checkpoint verify checkpoints", "unisono checkpoint verify model.safetensors"});
  add_examples(*export_app,
               {"unisono checkpoint export checkpoints model.safetensors --prefix model.",
                "unisono checkpoint export checkpoints all.safetensors"});
  add_examples(*diff_app,
               {"unisono checkpoint diff before.safetensors after.safetensors",
                "unisono checkpoint diff checkpoints model.safetensors"});
  if (const std::optional<int> exit_code = parse(app, line)) {
    return *exit_code;
  }
  if (list_app->parsed()) {
    return list(arguments);
  }
  if (verify_app->parsed()) {
    return verify(arguments);
  }
  if (export_app->parsed()) {
    return export_file(arguments);
  }
  try {
    return diff(arguments);
  } catch (const Error& error) {
    print_error(error.what());
    return kTrouble;
  }
}

}  // namespace unisono::cli
