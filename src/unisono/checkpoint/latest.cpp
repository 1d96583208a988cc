#include "unisono/checkpoint/latest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <string_view>
#include <system_error>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/base/text.h"
#include "unisono/checkpoint/checked_file.h"
#include "unisono/checkpoint/folder.h"
#include "unisono/checkpoint/manifest.h"
#include "unisono/checkpoint/save.h"

namespace unisono::checkpoint {
namespace {

constexpr std::uint64_t kMostLatestBytes = 4096;

/// Returns the reason why a checkpoint is not complete, or an empty text.
using Examine = std::function<std::string(const std::string&)>;

/// The checkpoints of a folder.
struct Candidates {
  std::string problem;             // Problem of the file "latest"; otherwise empty.
  std::vector<std::string> names;  // In order of preference.
  // Checkpoints with higher steps than the checkpoint in "latest".
  std::vector<std::string> not_due;
};

/// The part of the shards that one rank examines.
struct Share {
  int rank = 0;
  int world_size = 1;
};

std::string problem_of(const std::string& checkpoint, const Share& share, bool reads_bytes) {
  try {
    const std::optional<Manifest> manifest = read_manifest(checkpoint);
    if (!manifest) {
      return fmt::format("has no {}", kManifestName);
    }
    for (std::size_t i = static_cast<std::size_t>(share.rank); i < manifest->shards.size();
         i += static_cast<std::size_t>(share.world_size)) {
      const Shard& shard = manifest->shards[i];
      CheckedFile file(checkpoint + "/" + shard.file, shard.sums);
      if (reads_bytes) {
        file.verify();
      }
    }
  } catch (const Error& error) {
    // Other errors do not show that the checkpoint is incomplete, and going back to an older
    // checkpoint loses work.
    if (error.code() != ErrorCode::kCorruptData && error.code() != ErrorCode::kNotFound) {
      throw;
    }
    const std::string problem = error.what();
    return problem.starts_with(checkpoint + "/") ? problem.substr(checkpoint.size() + 1) : problem;
  }
  return "";
}

Candidates find_candidates(const std::string& root) {
  Candidates candidates;
  std::vector<std::int64_t> steps = list_steps(root);
  std::ranges::reverse(steps);
  const LatestName latest = read_latest(root).value_or(LatestName{});
  candidates.problem = latest.problem;
  const auto is_due = [&](std::int64_t step) { return !latest.step || step <= *latest.step; };
  std::rotate(steps.begin(), std::ranges::find_if(steps, is_due), steps.end());
  for (const std::int64_t step : steps) {
    if (const std::optional<std::string> path = find_checkpoint(root, step)) {
      candidates.names.push_back(path->substr(path->rfind('/') + 1));
      if (!is_due(step)) {
        candidates.not_due.push_back(candidates.names.back());
      }
    }
  }
  return candidates;
}

[[noreturn]] void refuse_all(const std::string& root,
                             const std::vector<std::string>& passed,
                             const LatestOptions& options) {
  throw Error(ErrorCode::kCorruptData,
              options.allow_older
                  ? fmt::format("{}: has no whole checkpoint: {}; restore a whole one, or start "
                                "again in another folder",
                                root,
                                fmt::join(passed, "; "))
                  : fmt::format("{}: the latest checkpoint is not whole: {}; write the name of "
                                "another one into {}/latest, or allow an older one",
                                root,
                                fmt::join(passed, "; "),
                                root));
}

void log_choice(const std::string& root,
                const std::string& name,
                const std::vector<std::string>& passed,
                const std::vector<std::string>& not_due) {
  std::string text = fmt::format("{}: uses checkpoint {}", root, name);
  if (!passed.empty()) {
    text += fmt::format("; skipped: {}", fmt::join(passed, "; "));
  }
  const bool is_not_due = std::ranges::find(not_due, name) != not_due.end();
  if (!not_due.empty() && !is_not_due) {
    text += fmt::format("; \"latest\" names an earlier one than {}", fmt::join(not_due, ", "));
  }
  const base::Logger logger("checkpoint");
  if (!passed.empty()) {
    logger.warning(text);
  } else if (!not_due.empty()) {
    logger.info(text);
  }
}

std::optional<std::string> choose(const std::string& root,
                                  const Candidates& candidates,
                                  const LatestOptions& options,
                                  const Examine& examine,
                                  bool logs) {
  std::vector<std::string> passed;
  if (!candidates.problem.empty()) {
    passed.push_back(candidates.problem);
  }
  for (const std::string& name : candidates.names) {
    if (!options.allow_older && !passed.empty()) {
      break;
    }
    std::string path = fmt::format("{}/{}", root, name);
    if (const std::string problem = examine(path); !problem.empty()) {
      passed.push_back(fmt::format("{} ({})", name, problem));
      continue;
    }
    if (logs) {
      log_choice(root, name, passed, candidates.not_due);
    }
    return path;
  }
  if (!passed.empty()) {
    refuse_all(root, passed, options);
  }
  return std::nullopt;
}

// Serializes the members that other ranks need: the problem and the names.
std::string encode_candidates(const Candidates& candidates) {
  std::string bytes = candidates.problem;
  for (const std::string& name : candidates.names) {
    bytes += '\0' + name;
  }
  return bytes;
}

Candidates decode_candidates(std::string_view bytes) {
  Candidates candidates;
  const auto take = [&] {
    const std::string_view text = bytes.substr(0, bytes.find('\0'));
    bytes.remove_prefix(std::min(bytes.size(), text.size() + 1));
    return std::string(text);
  };
  candidates.problem = take();
  while (!bytes.empty()) {
    candidates.names.push_back(take());
  }
  return candidates;
}

bool is_checkpoint(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path + "/" + kManifestName, ignored);
}

}  // namespace

std::optional<LatestName> read_latest(const std::string& root) {
  const std::string pointer = root + "/" + kLatestName;
  std::error_code error;
  const std::uint64_t n_bytes = std::filesystem::file_size(pointer, error);
  if (!error && n_bytes > kMostLatestBytes) {
    return LatestName{.step = {}, .problem = fmt::format("latest has {} bytes", n_bytes)};
  }
  std::vector<std::string> lines;
  try {
    lines = read_text_lines(pointer);
  } catch (const Error& failure) {
    if (failure.code() == ErrorCode::kNotFound) {
      return std::nullopt;
    }
    if (failure.code() == ErrorCode::kSystem) {
      throw;
    }
    return LatestName{.step = {}, .problem = failure.what()};
  }
  if (lines.size() != 1) {
    return LatestName{.step = {},
                      .problem = lines.empty() ? "latest is empty"
                                               : fmt::format("latest has {} lines", lines.size())};
  }
  // Shells of some systems write a blank before the end of the line.
  const std::string name = lines.front().substr(0, lines.front().find_last_not_of(" \t") + 1);
  LatestName latest{.step = step_of(name), .problem = ""};
  if (!latest.step) {
    latest.problem =
        fmt::format("latest names \"{}\", which is not a checkpoint", escape_text(lines.front()));
  } else if (!find_checkpoint(root, *latest.step)) {
    latest.problem = fmt::format("latest names {}, which does not exist", name);
  }
  return latest;
}

std::optional<std::string> latest_checkpoint(const std::string& root,
                                             const LatestOptions& options) {
  return choose(
      root,
      find_candidates(root),
      options,
      [&](const std::string& path) { return problem_of(path, {}, options.reads_bytes); },
      true);
}

std::optional<std::string> latest_checkpoint(ProcessGroup& group,
                                             const std::string& root,
                                             const LatestOptions& options) {
  Candidates candidates;
  const std::string found = do_on_all(group, options.timeout, [&]() -> std::string {
                              if (group.rank() != 0) {
                                return "";
                              }
                              candidates = find_candidates(root);
                              return encode_candidates(candidates);
                            }).front();
  if (group.rank() != 0) {
    candidates = decode_candidates(found);
  }
  const Share share{.rank = group.rank(), .world_size = group.world_size()};
  const Examine examine = [&](const std::string& path) -> std::string {
    const std::vector<std::string> problems = do_on_all(
        group, options.timeout, [&] { return problem_of(path, share, options.reads_bytes); });
    const auto first =
        std::ranges::find_if(problems, [](const auto& text) { return !text.empty(); });
    return first == problems.end()
               ? ""
               : fmt::format(
                     "rank {} of {}: {}", first - problems.begin(), problems.size(), *first);
  };
  return choose(root, candidates, options, examine, group.rank() == 0);
}

std::string resolve(const std::string& path, const LatestOptions& options) {
  return is_checkpoint(path) ? path : latest_checkpoint(path, options).value_or(path);
}

std::string resolve(ProcessGroup& group, const std::string& path, const LatestOptions& options) {
  const std::vector<std::string> is_one = do_on_all(
      group, options.timeout, [&]() -> std::string { return is_checkpoint(path) ? "1" : ""; });
  return is_one.front().empty() ? latest_checkpoint(group, path, options).value_or(path) : path;
}

}  // namespace unisono::checkpoint
