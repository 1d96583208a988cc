#include "unisono/report/event_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/rendezvous/roster/node_id.h"
#include "unisono/report/append_file.h"
#include "unisono/report/event_record.h"
#include "unisono/report/named_value.h"

namespace unisono {
namespace {

using report::AppendFile;
using report::EventTime;

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

// TensorBoard reads the files of a folder in the order of their names, so the time comes first.
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
    return std::make_unique<AppendFile>(path, AppendFile::Open::kNew, Logger("event file"));
  }
}

}  // namespace

EventFile::EventFile(const std::string& folder, std::optional<std::int64_t> resumed_at) {
  create_folder(folder);
  file_ = create_file(folder);
  std::string start = report::version_record(now_at(0));
  if (resumed_at) {
    start += report::restart_record(now_at(*resumed_at + 1));
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
  (void)file_->append(report::scalars_record(now_at(step), values));
}

void EventFile::add_text(std::int64_t step, std::string_view name, std::string_view text) {
  (void)file_->append(report::text_record(now_at(step), name, text));
}

const std::string& EventFile::path() const {
  return file_->path();
}

}  // namespace unisono
