#include "unisono/checkpoint/saver.h"

#include <cstddef>
#include <cstdint>
#include <exception>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/log.h"
#include "unisono/base/thread.h"
#include "unisono/checkpoint/outcome.h"
#include "unisono/checkpoint/save.h"
#include "unisono/comm/process_group.h"

namespace unisono::checkpoint {
namespace {

std::vector<int> all_ranks(const ProcessGroup& group) {
  std::vector<int> ranks(static_cast<std::size_t>(group.world_size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// What the exception in hand becomes when it is this rank's part in save_checkpoint().
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
    Logger("rank " + std::to_string(group_->rank()))
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
    // The others' threads wait for this rank's: they are told, and it throws when they do.
    failure_ = told_to_all(*group_, options_);
  }
}

void Saver::copy(std::span<const TensorPart> parts, std::span<const TensorInfo> common) {
  common_.assign(common.begin(), common.end());
  parts_.assign(parts.begin(), parts.end());
  bytes_.resize(parts_.size());
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    // Memory of the copy before is used again.
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
  }
  if (failure_) {
    std::rethrow_exception(std::exchange(failure_, nullptr));
  }
}

}  // namespace unisono::checkpoint
