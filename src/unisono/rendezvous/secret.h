#pragma once

#include <string>

#include "unisono/base/config.h"

namespace unisono::rendezvous {

struct LaunchInfo;

/// Returns the job's secret: the configuration's, or the contents of UNISONO_SECRET_FILE or of
/// ~/.unisono/secret. Returns "" if there is no secret and the ranks meet on loopback.
///
/// Throws Error(kInvalidArgument) if there is no secret but other machines could connect, if `host`
/// has no address, or if the file is not private to this user; Error(kNotFound) if the configured
/// file does not exist.
[[nodiscard]] std::string find_secret(const base::Config& config, const std::string& host);

/// Returns the secret for a rank. A secret from the launcher's key space takes precedence over
/// ~/.unisono/secret.
[[nodiscard]] std::string find_secret(const base::Config& config, const LaunchInfo& launch_info);

/// Writes a new random secret to a file that only this user can read.
///
/// Throws Error(kInvalidArgument) if the file exists, Error(kSystem).
void write_secret(const std::string& path);

/// Returns true if the user has set a secret: UNISONO_SECRET or UNISONO_SECRET_FILE.
[[nodiscard]] bool is_secret_given(const base::Config& config);

}  // namespace unisono::rendezvous
