#pragma once

#include <string>

#include "unisono/base/config.h"

namespace unisono::rendezvous {

struct LaunchInfo;

/// The job's secret: the configuration's own, or the contents of its file, or of
/// ~/.unisono/secret. Empty, when there is none of these and the ranks meet on loopback.
///
/// Throws Error: kInvalidArgument when there is none but others could connect, or there is no
/// address of `host` and can be none, or when the file is not a private one of this user;
/// kNotFound.
[[nodiscard]] std::string find_secret(const Config& config, const std::string& host);

/// The same for a rank. What it was told in the launcher's key space comes before
/// ~/.unisono/secret.
[[nodiscard]] std::string find_secret(const Config& config, const LaunchInfo& launch_info);

/// Writes a new random secret into a file that this user alone can read.
///
/// Throws Error: kInvalidArgument where there is such a file; kSystem.
void write_secret(const std::string& path);

/// True where the user has set one: UNISONO_SECRET or UNISONO_SECRET_FILE.
[[nodiscard]] bool is_secret_given(const Config& config);

}  // namespace unisono::rendezvous
