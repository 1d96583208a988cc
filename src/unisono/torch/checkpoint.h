#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>

#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"

namespace torch::nn {
class Module;
}

namespace torch::serialize {
class OutputArchive;
}

namespace unisono {

/// Writes an archive of LibTorch's format to `path`: what torch::save() makes and torch::load()
/// reads. The file is there whole or not at all, and replaces an older one only when whole.
///
/// Throws Error(kSystem) when the disk is full, the folder is missing or can't be written; then no
/// part of it is left.
void save_archive(const std::filesystem::path& path,
                  const std::function<void(torch::serialize::OutputArchive&)>& fill);

/// The module's parameters and buffers, under their names in it. A program without unisono loads
/// them with torch::load(module, path); Python with torch.jit.load(path).state_dict().
void save_module(const torch::nn::Module& module, const std::filesystem::path& path);

/// save_module() on rank 0; a collective operation. When it returns the file is there, on every
/// rank's side of the call; if it can't be written every rank throws rank 0's error.
///
/// Of a wrapped module pass `*model.module()`.
void save_on_rank_0(ProcessGroup& group,
                    const torch::nn::Module& module,
                    const std::filesystem::path& path);

/// Throws now, on every rank, what save_on_rank_0() would find out after the training: a folder
/// that is missing or can't be written. A collective operation; leaves no file.
void check_can_save_on_rank_0(ProcessGroup& group, const std::filesystem::path& path);

/// Throws rank 0's `error` on every rank; if it has none, does nothing. What other ranks pass is
/// ignored. A collective operation, for what rank 0 has done for all of them.
void share_outcome(ProcessGroup& group,
                   const std::optional<Error>& error,
                   std::optional<std::chrono::milliseconds> timeout = std::nullopt);

}  // namespace unisono
