#include "operations.h"

#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/checkpoint/reader.h"
#include "unisono/checkpoint/save.h"
#include "unisono/checkpoint/tensor_box.h"
#include "unisono/comm/process_group.h"

#include "memory.h"

namespace bench {
namespace {

using unisono::ProcessGroup;
using unisono::checkpoint::Box;
using unisono::checkpoint::count_bytes;
using unisono::checkpoint::Reader;
using unisono::checkpoint::rows_of_rank;
using unisono::checkpoint::Saver;
using unisono::checkpoint::TensorInfo;
using unisono::checkpoint::TensorPart;

// A tensor has 16 MiB. Ranks have rows of each tensor.
constexpr std::int64_t kTensorMib = 16;
constexpr std::int64_t kRows = 4096;
constexpr std::int64_t kColumns = 1024;

// Owns uninitialized memory; a vector would initialize the memory in an extra pass.
struct Part {
  TensorInfo tensor;
  Box box;
  std::unique_ptr<std::byte[]> memory;
  std::size_t n_bytes;

  [[nodiscard]] std::span<std::byte> bytes() const { return {memory.get(), n_bytes}; }
};

std::vector<Part> parts_of_rank(const ProcessGroup& group, std::int64_t n_mib) {
  std::vector<Part> parts;
  for (std::int64_t i = 0; i < n_mib / kTensorMib; ++i) {
    Part part{.tensor = {.name = fmt::format("tensor{}", i),
                         .dtype = unisono::DType::kFloat32,
                         .shape = {kRows, kColumns}},
              .box = {},
              .memory = nullptr,
              .n_bytes = 0};
    part.box = rows_of_rank(part.tensor.shape, group.rank(), group.world_size());
    part.n_bytes = count_bytes(part.tensor.dtype, part.box.sizes).value();
    part.memory = std::make_unique_for_overwrite<std::byte[]>(part.n_bytes);
    parts.push_back(std::move(part));
  }
  return parts;
}

// Fills the parts with pseudo-random numbers that depend on the row and the tensor.
void fill(const std::vector<Part>& parts) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::size_t n_words = parts[i].n_bytes / 8;
    auto word = static_cast<std::uint64_t>(parts[i].box.offsets[0] * kColumns / 2);
    for (std::size_t at = 0; at < n_words; ++at, ++word) {
      std::uint64_t mixed = (word + (i << 32U)) * 0x9E3779B97F4A7C15U;
      mixed ^= mixed >> 29U;
      std::memcpy(parts[i].memory.get() + 8 * at, &mixed, 8);
    }
  }
}

std::vector<TensorPart> as_parts(const std::vector<Part>& parts) {
  std::vector<TensorPart> given;
  for (const Part& part : parts) {
    given.push_back({.tensor = part.tensor, .box = part.box, .bytes = part.bytes()});
  }
  return given;
}

// Returns all times except the first, which is a warm-up run: its time includes fresh pages of
// memory.
Measured measure_times(ProcessGroup& group,
                       const Options& options,
                       const std::function<void()>& prepare,
                       const std::function<void(int)>& action) {
  Measured measured;
  for (int i = 0; i <= options.n_times; ++i) {
    prepare();
    group.barrier();
    const auto start = std::chrono::steady_clock::now();
    action(i);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    if (i > 0) {
      measured.seconds.push_back(taken.count());
    }
  }
  return measured;
}

// Removes the previous files outside of the measured time.
void remove_saved(const ProcessGroup& group, const Options& options) {
  if (group.rank() == 0) {
    std::filesystem::remove_all(options.folder);
  }
}

double share_of_rank(const ProcessGroup& group, const Options& options, double mib) {
  return mib * group.world_size() / static_cast<double>(options.n_mib);
}

Measured save(ProcessGroup& group, const Options& options) {
  const std::vector<Part> parts = parts_of_rank(group, options.n_mib);
  fill(parts);
  const std::vector<TensorPart> given = as_parts(parts);
  reset_peak();
  const double before = resident_mib();
  Measured measured = measure_times(
      group,
      options,
      [&] { remove_saved(group, options); },
      [&](int step) { unisono::checkpoint::save_checkpoint(group, options.folder, step, given); });
  measured.more_memory = share_of_rank(group, options, peak_mib() - before);
  return measured;
}

// Measures the time for which the training is blocked.
Measured save_async(ProcessGroup& group, const Options& options) {
  const std::vector<Part> parts = parts_of_rank(group, options.n_mib);
  fill(parts);
  const std::vector<TensorPart> given = as_parts(parts);
  Saver saver(group, options.folder);
  const auto prepare = [&] {
    saver.wait();
    remove_saved(group, options);
  };
  const Measured measured =
      measure_times(group, options, prepare, [&](int step) { saver.save_async(step, given); });
  saver.wait();
  return measured;
}

// Measures the minimum work of save_async().
Measured copy(ProcessGroup& group, const Options& options) {
  const std::vector<Part> parts = parts_of_rank(group, options.n_mib);
  fill(parts);
  const std::vector<Part> copies = parts_of_rank(group, options.n_mib);
  const auto prepare = [] {};
  return measure_times(group, options, prepare, [&](int) {
    for (std::size_t i = 0; i < parts.size(); ++i) {
      std::memcpy(copies[i].memory.get(), parts[i].memory.get(), parts[i].n_bytes);
    }
  });
}

// Measures a load into existing memory, like the parameters of a module, from a checkpoint of any
// number of ranks.
Measured load(ProcessGroup& group, const Options& options) {
  const std::vector<Part> parts = parts_of_rank(group, options.n_mib);
  for (const Part& part : parts) {
    std::memset(part.memory.get(), 0, part.n_bytes);
  }
  reset_peak();
  const double before = resident_mib();
  Measured measured = measure_times(
      group,
      options,
      [] {},
      [&](int) {
        Reader reader(options.folder);
        for (const Part& part : parts) {
          reader.read(part.tensor.name, part.box, part.bytes());
        }
      });
  measured.more_memory = share_of_rank(group, options, peak_mib() - before);
  const std::vector<Part> expected = parts_of_rank(group, options.n_mib);
  fill(expected);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (std::memcmp(parts[i].memory.get(), expected[i].memory.get(), parts[i].n_bytes) != 0) {
      throw std::runtime_error(parts[i].tensor.name + " was loaded wrongly");
    }
  }
  return measured;
}

using Operation = Measured (*)(ProcessGroup&, const Options&);

const std::map<std::string, Operation>& operations() {
  static const std::map<std::string, Operation> by_name{
      {"copy", &copy}, {"load", &load}, {"save", &save}, {"save_async", &save_async}};
  return by_name;
}

}  // namespace

std::vector<std::string> operation_names() {
  std::vector<std::string> names;
  for (const auto& [name, operation] : operations()) {
    names.push_back(name);
  }
  return names;
}

Measured measure(ProcessGroup& group, const Options& options) {
  if (options.n_mib < kTensorMib || options.n_mib % kTensorMib != 0) {
    throw std::runtime_error(fmt::format("--mib must be a multiple of {}", kTensorMib));
  }
  return operations().at(options.operation)(group, options);
}

}  // namespace bench
