#include "unisono/torch/checkpoint.h"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include <torch/nn/module.h>
#include <torch/serialize/output-archive.h>

#include "unisono/base/atomic_file.h"
#include "unisono/base/buffer.h"
#include "unisono/base/dtype.h"
#include "unisono/base/error.h"
#include "unisono/base/error_text.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"

namespace unisono {
namespace {

/// Does `save` on rank 0; throws its error on every rank.
void do_on_rank_0(ProcessGroup& group,
                  const std::filesystem::path& path,
                  const std::function<void()>& save) {
  std::optional<Error> error;
  if (group.rank() == 0) {
    try {
      save();
    } catch (const Error& failure) {
      error = failure;
    } catch (const std::exception& failure) {
      // The others wait for the outcome, whatever it is.
      error =
          Error(ErrorCode::kInvalidArgument, "save " + path.string() + ": " + error_text(failure));
    }
  }
  share_outcome(group, error);
}

}  // namespace

void share_outcome(ProcessGroup& group,
                   const std::optional<Error>& error,
                   std::optional<std::chrono::milliseconds> timeout) {
  const BroadcastOptions options{.timeout = timeout, .label = "outcome of saving"};
  std::string message = error ? error->what() : "";
  std::array<std::int64_t, 3> header{error ? 1 : 0,
                                     error ? static_cast<std::int64_t>(error->code()) : 0,
                                     static_cast<std::int64_t>(message.size())};
  group.broadcast(as_buffer(std::span<std::int64_t>(header)), options);
  if (header[0] == 0) {
    return;
  }
  message.resize(static_cast<std::size_t>(header[2]));
  group.broadcast({.data = message.data(), .count = header[2], .dtype = DType::kUInt8}, options);
  throw Error(static_cast<ErrorCode>(header[1]), message);
}

void save_archive(const std::filesystem::path& path,
                  const std::function<void(::torch::serialize::OutputArchive&)>& fill) {
  AtomicFile file(path);
  ::torch::serialize::OutputArchive archive;
  fill(archive);
  archive.save_to([&](const void* data, std::size_t n_bytes) {
    file.write({static_cast<const std::byte*>(data), n_bytes});
    return n_bytes;
  });
  file.commit();
}

void save_module(const ::torch::nn::Module& module, const std::filesystem::path& path) {
  save_archive(path, [&](::torch::serialize::OutputArchive& archive) { module.save(archive); });
}

void save_on_rank_0(ProcessGroup& group,
                    const ::torch::nn::Module& module,
                    const std::filesystem::path& path) {
  do_on_rank_0(group, path, [&] { save_module(module, path); });
}

void check_can_save_on_rank_0(ProcessGroup& group, const std::filesystem::path& path) {
  do_on_rank_0(group, path, [&] { const AtomicFile file(path); });
}

}  // namespace unisono
