#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace unisono::data {

/// Throws Error unless `folder` is a folder: kNotFound, with `hint` where to get it from; kSystem;
/// kInvalidArgument when it is something else.
void check_data_folder(const std::string& folder, const std::string& hint);

/// The path of file `name` in a folder, or else of `name`.gz; nothing if neither is there.
[[nodiscard]] std::optional<std::string> find_plain_or_gzip(const std::filesystem::path& folder,
                                                            const std::string& name);

}  // namespace unisono::data
