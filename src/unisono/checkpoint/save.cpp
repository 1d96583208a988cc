#include "unisono/checkpoint/save.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>

#include "unisono/base/bytes.h"
#include "unisono/base/error.h"
#include "unisono/base/file.h"
#include "unisono/base/log.h"
#include "unisono/base/process.h"
#include "unisono/base/thread.h"
#include "unisono/checkpoint/folder.h"
#include "unisono/checkpoint/manifest.h"
#include "unisono/checkpoint/reader.h"
#include "unisono/checkpoint/safetensors.h"
#include "unisono/checkpoint/safetensors_header.h"
#include "unisono/comm/objects.h"
#include "unisono/comm/options.h"

namespace unisono::checkpoint {
namespace {

constexpr char kDone = '\xff';

// Encodes the result of a step. The first byte is kDone on success, otherwise the error code.
std::string outcome_of(const std::function<std::string()>& step) {
  try {
    return kDone + step();
  } catch (const Error& error) {
    return static_cast<char>(error.code()) + std::string(error.what());
  } catch (const std::exception& error) {
    return static_cast<char>(ErrorCode::kInternal) + std::string(error.what());
  } catch (...) {
    return static_cast<char>(ErrorCode::kInternal) +
           std::string("an object that is no std::exception was thrown");
  }
}

}  // namespace

std::vector<std::string> do_on_all(ProcessGroup& group,
                                   std::optional<std::chrono::milliseconds> timeout,
                                   const std::function<std::string()>& step) {
  const ObjectOptions options{.timeout = timeout};
  std::vector<std::string> outcomes = all_gather_object(group, outcome_of(step), options);
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    const std::string& outcome = outcomes[rank];
    UNISONO_CHECK(!outcome.empty(), "an outcome has a first byte");
    if (outcome[0] != kDone) {
      throw Error(static_cast<ErrorCode>(outcome[0]),
                  fmt::format("rank {} of {}: {}", rank, outcomes.size(), outcome.substr(1)));
    }
  }
  for (std::string& outcome : outcomes) {
    outcome.erase(0, 1);
  }
  return outcomes;
}

namespace {

// Minimum size for dividing a tensor.
constexpr std::uint64_t kLargeBytes = std::uint64_t{1} << 18;

// Returns true if each row of a non-empty tensor ends at a byte boundary.
bool has_whole_rows(const TensorInfo& tensor) {
  const std::vector<std::int64_t> row(tensor.shape.begin() + 1, tensor.shape.end());
  return count_bytes(tensor.dtype, row).has_value();
}

void check_parts(std::span<const TensorPart> parts, std::int64_t step, const SaveOptions& options) {
  if (step < 0 || options.keep_last < 0) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("save a checkpoint: step {} and keep_last {} must not be negative",
                            step,
                            options.keep_last));
  }
  for (const TensorPart& part : parts) {
    if (!count_bytes(part.tensor.dtype, part.tensor.shape) ||
        !is_within(part.box, part.tensor.shape) ||
        count_bytes(part.tensor.dtype, part.box.sizes) != part.bytes.size()) {
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format("save a checkpoint: tensor \"{}\": {} bytes are not the part {} of {}",
                      part.tensor.name,
                      part.bytes.size(),
                      describe(part.box),
                      describe(part.tensor.dtype, part.tensor.shape)));
    }
  }
}

FileSums write_shard(const std::string& path, std::span<const TensorPart> parts) {
  std::vector<TensorBytes> tensors;
  std::vector<StoredPart> stored;
  for (const TensorPart& part : parts) {
    tensors.push_back(
        {.info = {.name = part.tensor.name, .dtype = part.tensor.dtype, .shape = part.box.sizes},
         .bytes = part.bytes});
    stored.push_back({.tensor = part.tensor, .box = part.box});
  }
  return write_safetensors(path, tensors, sharding_metadata(stored, "save " + path));
}

std::string encode_sums(const FileSums& sums) {
  ByteWriter writer;
  writer.put(sums.n_bytes);
  writer.put(sums.crc32);
  for (const std::uint32_t crc : sums.block_crc32s) {
    writer.put(crc);
  }
  return {reinterpret_cast<const char*>(writer.bytes().data()), writer.bytes().size()};
}

FileSums decode_sums(const std::string& bytes) {
  ByteReader reader(std::as_bytes(std::span(bytes)));
  FileSums sums{.n_bytes = reader.get<std::uint64_t>().value_or(0),
                .crc32 = reader.get<std::uint32_t>().value_or(0),
                .block_crc32s = {}};
  while (const std::optional<std::uint32_t> crc = reader.get<std::uint32_t>()) {
    sums.block_crc32s.push_back(*crc);
  }
  return sums;
}

void write_manifest(const std::string& folder,
                    std::int64_t step,
                    const std::vector<std::string>& encoded_sums) {
  Manifest manifest{.release = std::string(release()),
                    .step = step,
                    .world_size = static_cast<int>(encoded_sums.size()),
                    .shards = {}};
  for (const std::string& sums : encoded_sums) {
    manifest.shards.push_back(
        {.file = shard_name(static_cast<int>(manifest.shards.size())), .sums = decode_sums(sums)});
  }
  AtomicFile file(folder + "/" + kManifestName);
  const std::string text = encode_manifest(manifest);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

std::string describe_lines(std::span<const TensorInfo> tensors) {
  std::string lines;
  for (const TensorInfo& tensor : tensors) {
    lines += fmt::format("\"{}\", {}\n", tensor.name, describe(tensor.dtype, tensor.shape));
  }
  return lines;
}

// Returns the first lines that differ between two different texts.
std::pair<std::string, std::string> first_difference(std::string_view a, std::string_view b) {
  const auto take_line = [](std::string_view& text) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    return line.empty() ? std::string("no more") : std::string(line);
  };
  std::pair<std::string, std::string> lines;
  while (lines.first == lines.second) {
    lines = {take_line(a), take_line(b)};
  }
  return lines;
}

// Throws if the ranks pass different common tensors. Without this check, a tensor that only some
// ranks have could be lost silently, because another rank may be assigned to save it.
void compare_common(ProcessGroup& group,
                    std::span<const TensorInfo> common,
                    const SaveOptions& options) {
  const std::string own = describe_lines(common);
  const std::vector<std::string> hashes =
      do_on_all(group, options.timeout, [&] { return fmt::format("{:x}", fnv1a(own)); });
  const auto other = std::adjacent_find(hashes.begin(), hashes.end(), std::not_equal_to<>());
  if (other == hashes.end()) {
    return;
  }
  const auto rank = static_cast<std::size_t>(other - hashes.begin());
  const std::vector<std::string> texts = do_on_all(group, options.timeout, [&] {
    const auto own_rank = static_cast<std::size_t>(group.rank());
    return own_rank == rank || own_rank == rank + 1 ? own : "";
  });
  const auto [left, right] = first_difference(texts[rank], texts[rank + 1]);
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("save a checkpoint: all ranks must pass the same common tensors, but "
                          "where rank {} has {}, rank {} has {}",
                          rank,
                          left,
                          rank + 1,
                          right));
}

// Creates the folder after checking that all ranks have valid parts of the same step.
void begin_on_all(ProcessGroup& group,
                  const std::string& root,
                  std::int64_t step,
                  std::span<const TensorPart> parts,
                  std::span<const TensorInfo> common,
                  const SaveOptions& options) {
  const std::vector<std::string> steps = do_on_all(group, options.timeout, [&] {
    check_parts(parts, step, options);
    return std::to_string(step);
  });
  const auto other = std::adjacent_find(steps.begin(), steps.end(), std::not_equal_to<>());
  if (other != steps.end()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("save a checkpoint in {}: rank {} saves step {}, but rank {} step {}",
                            root,
                            other - steps.begin(),
                            *other,
                            other - steps.begin() + 1,
                            *(other + 1)));
  }
  compare_common(group, common, options);
  (void)do_on_all(group, options.timeout, [&]() -> std::string {
    if (group.rank() == 0) {
      begin_checkpoint(root, step);
    }
    return "";
  });
}

}  // namespace

std::string save_checkpoint(ProcessGroup& group,
                            const std::string& root,
                            std::int64_t step,
                            std::span<const TensorPart> parts,
                            const SaveOptions& options,
                            std::span<const TensorInfo> common) {
  try {
    begin_on_all(group, root, step, parts, common, options);
    const std::string folder = part_folder(root, step);
    const std::vector<std::string> sums = do_on_all(group, options.timeout, [&] {
      return encode_sums(write_shard(folder + "/" + shard_name(group.rank()), parts));
    });
    const std::vector<std::string> paths = do_on_all(group, options.timeout, [&]() -> std::string {
      if (group.rank() != 0) {
        return "";
      }
      write_manifest(folder, step, sums);
      // Checks that rank 0 can read all files and that they are consistent.
      (void)Reader(folder);
      std::string path = commit_checkpoint(root, step);
      if (options.keep_last > 0) {
        remove_older_checkpoints(root, step, options.keep_last);
      }
      return path;
    });
    return paths.front();
  } catch (...) {
    if (group.rank() == 0) {
      discard_checkpoint(root, step);
    }
    throw;
  }
}

std::vector<std::optional<Box>> divide_evenly(std::span<const TensorInfo> tensors,
                                              int rank,
                                              int world_size) {
  std::vector<std::optional<Box>> boxes;
  std::vector<std::uint64_t> n_bytes(static_cast<std::size_t>(world_size), 0);
  for (const TensorInfo& tensor : tensors) {
    const std::uint64_t size = count_bytes(tensor.dtype, tensor.shape).value_or(0);
    if (size >= kLargeBytes && tensor.shape[0] >= world_size && has_whole_rows(tensor)) {
      boxes.emplace_back(rows_of_rank(tensor.shape, rank, world_size));
      continue;
    }
    // All ranks compute the same assignment.
    const auto least = std::min_element(n_bytes.begin(), n_bytes.end());
    *least += size;
    const bool is_own = least - n_bytes.begin() == rank;
    boxes.push_back(is_own ? std::optional(whole_box(tensor.shape)) : std::nullopt);
  }
  return boxes;
}

namespace {

std::vector<int> all_ranks(const ProcessGroup& group) {
  std::vector<int> ranks(static_cast<std::size_t>(group.world_size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// Takes part in the first exchange of save_checkpoint() with the current exception. Returns the
// exception that all ranks then throw.
std::exception_ptr told_to_all(ProcessGroup& group, const SaveOptions& options) {
  try {
    (void)do_on_all(group, options.timeout, []() -> std::string { throw; });
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

}  // namespace

Saver::Saver(ProcessGroup& group, std::string root, const SaveOptions& options)
    : group_(group.new_group(all_ranks(group))), root_(std::move(root)), options_(options) {}

Saver::~Saver() {
  try {
    wait();
  } catch (const std::exception& error) {
    base::Logger("rank " + std::to_string(group_->rank()))
        .error("the last checkpoint was not saved: " + std::string(error.what()));
  }
}

std::string Saver::save(std::int64_t step,
                        std::span<const TensorPart> parts,
                        std::span<const TensorInfo> common) {
  wait();
  return save_checkpoint(*group_, root_, step, parts, options_, common);
}

void Saver::save_async(std::int64_t step,
                       std::span<const TensorPart> parts,
                       std::span<const TensorInfo> common) {
  wait();
  try {
    copy(parts, common);
    start(step);
  } catch (...) {
    // The saving threads of other ranks wait for this rank. The exchange reports the failure to
    // these threads; all ranks throw at the next call.
    failure_ = told_to_all(*group_, options_);
  }
}

void Saver::copy(std::span<const TensorPart> parts, std::span<const TensorInfo> common) {
  common_.assign(common.begin(), common.end());
  parts_.assign(parts.begin(), parts.end());
  bytes_.resize(parts_.size());
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (parts_[i].snapshot != nullptr) {
      continue;
    }
    // Reuses the memory of the previous copy.
    bytes_[i].assign(parts_[i].bytes.begin(), parts_[i].bytes.end());
    parts_[i].bytes = bytes_[i];
  }
}

void Saver::start(std::int64_t step) {
  const std::string failure = "rank " + std::to_string(group_->rank()) +
                              " can't start the thread that saves checkpoint " +
                              std::to_string(step);
  thread_ = start_thread("uni-save", failure, [this, step] {
    try {
      save_checkpoint(*group_, root_, step, parts_, options_, common_);
    } catch (...) {
      failure_ = std::current_exception();
    }
  });
}

void Saver::wait() {
  if (thread_.joinable()) {
    thread_.join();
    parts_.clear();  // Frees the snapshots.
  }
  if (failure_) {
    std::rethrow_exception(std::exchange(failure_, nullptr));
  }
}

}  // namespace unisono::checkpoint
