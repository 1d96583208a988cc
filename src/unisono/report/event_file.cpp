#include "unisono/report/event_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <system_error>

#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/rendezvous/this_node.h"
#include "unisono/report/append_file.h"
#include "unisono/report/event_record.h"

namespace unisono::report {
namespace {

EventTime now_at(std::int64_t step) {
  const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
  return {.unix_seconds = std::chrono::duration<double>(since_epoch).count(), .step = step};
}

void create_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    throw system_error("can't create the folder " + folder + " for TensorBoard", error.value());
  }
}

// The name begins with the time, because TensorBoard reads the files of a folder in alphabetical
// order.
std::unique_ptr<AppendFile> create_file(const std::string& folder) {
  constexpr int kMostOfOneSecond = 1000;
  const auto seconds = static_cast<std::int64_t>(now_at(0).unix_seconds);
  const std::string start = fmt::format(
      "{}/events.out.tfevents.{:010}.{}.{}", folder, seconds, rendezvous::host_name(), ::getpid());
  for (int i = 0;; ++i) {
    const std::string path = fmt::format("{}.{:03}", start, i);
    std::error_code ignored;
    if (i < kMostOfOneSecond && std::filesystem::exists(path, ignored)) {
      continue;
    }
    return std::make_unique<AppendFile>(path, AppendFile::Open::kNew, base::Logger("event file"));
  }
}

}  // namespace

EventFile::EventFile(const std::string& folder, std::optional<std::int64_t> resumed_at) {
  create_folder(folder);
  file_ = create_file(folder);
  std::string start = version_record(now_at(0));
  if (resumed_at) {
    start += restart_record(now_at(*resumed_at + 1));
  }
  if (const int error_number = file_->append(start); error_number != 0) {
    (void)::unlink(path().c_str());
    throw system_error("can't write to " + path(), error_number);
  }
}

EventFile::~EventFile() = default;
EventFile::EventFile(EventFile&&) noexcept = default;
EventFile& EventFile::operator=(EventFile&&) noexcept = default;

void EventFile::add_scalars(std::int64_t step, std::span<const NamedValue> values) {
  (void)file_->append(scalars_record(now_at(step), values));
}

void EventFile::add_text(std::int64_t step, std::string_view name, std::string_view text) {
  (void)file_->append(text_record(now_at(step), name, text));
}

const std::string& EventFile::path() const {
  return file_->path();
}

}  // namespace unisono::report
