#pragma once

#include <map>
#include <memory>
#include <string>

#include "unisono/comm/process_group.h"

#include "attacks/script/call.h"
#include "attacks/script/line.h"

namespace unisono::attacks {

/// Plays a rank's script and reports the result of each line: "SECONDS start STEP verb", then "ok
/// STEP", "error STEP CODE text" or "wrong STEP text". Skips lines of groups that could not be
/// created.
class Player {
 public:
  /// Throws only exceptions that the script requests.
  void play(const Line& line);

  /// Destroys all groups.
  void leave();

 private:
  void carry_out(const Line& line);
  void init(const Line& line);
  void make_group(const Line& line);
  void wait_for(const Line& line);
  void call(const Line& line);
  static void end_as_asked(const std::string& how);

  [[nodiscard]] const std::shared_ptr<ProcessGroup>& group_of(const Line& line) const;

  std::map<std::int64_t, std::shared_ptr<ProcessGroup>> groups_;
  std::map<int, Call> under_way_;  // Active calls by step.
};

/// Prints one line with a single write.
void report(const std::string& word, int step, const std::string& text);

}  // namespace unisono::attacks
