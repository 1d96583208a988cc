#pragma once

#include <map>
#include <memory>
#include <string>

#include "unisono/comm/process_group.h"

#include "attacks/script/call.h"
#include "attacks/script/line.h"

namespace unisono::attacks {

/// Plays a rank's script, and says how each line ends: "SECONDS start STEP verb", then "ok STEP",
/// "error STEP CODE text" or "wrong STEP text". Lines of groups that could not be made are left
/// out.
class Player {
 public:
  /// Throws only what the script asks for.
  void play(const Line& line);

  /// Ends all groups.
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
  std::map<int, Call> under_way_;  // By step.
};

/// One line of output, in one write.
void report(const std::string& word, int step, const std::string& text);

}  // namespace unisono::attacks
