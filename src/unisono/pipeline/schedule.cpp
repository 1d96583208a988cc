#include "unisono/pipeline/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <span>
#include <system_error>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/base/file.h"
#include "unisono/base/text.h"

namespace unisono::pipeline {
namespace {

constexpr std::uint64_t kMaxFileBytes = std::uint64_t{64} << 20;
constexpr std::size_t kMaxShownBytes = 40;

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r";
  const std::size_t begin = text.find_first_not_of(kBlanks);
  return begin == std::string_view::npos
             ? std::string_view()
             : text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

// Removes the part before the separator, and the separator, from the text. Returns the part.
std::string_view take_until(std::string_view& text, char separator) {
  const std::size_t end = std::min(text.find(separator), text.size());
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return part;
}

// Removes the number at the start of the text, and returns it.
std::optional<int> take_number(std::string_view& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) {
    return std::nullopt;
  }
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

std::optional<ActionKind> kind_of(char letter) {
  for (const ActionKind kind : {ActionKind::kForward,
                                ActionKind::kBackward,
                                ActionKind::kBackwardInput,
                                ActionKind::kBackwardWeight}) {
    if (letter_of(kind) == letter) {
      return kind;
    }
  }
  return std::nullopt;
}

std::optional<Action> parse_action(std::string_view text) {
  const std::optional<int> stage = take_number(text);
  if (!stage || text.empty()) {
    return std::nullopt;
  }
  const std::optional<ActionKind> kind = kind_of(text.front());
  text.remove_prefix(1);
  const std::optional<int> chunk = take_number(text);
  if (!kind || !chunk || !text.empty()) {
    return std::nullopt;
  }
  return Action{.kind = *kind, .stage = *stage, .chunk = *chunk};
}

// Returns true for PyTorch's actions on sharded parameters, which do not compute.
bool is_sharding(std::string_view text) {
  constexpr std::array<std::string_view, 3> kWords{"UNSHARD", "RESHARD", "REDUCE_GRAD"};
  return take_number(text) && std::find(kWords.begin(), kWords.end(), text) != kWords.end();
}

class Table {
 public:
  explicit Table(const std::string& name) : name_(name) {}

  void add_line(std::string_view line) {
    schedule_.orders.emplace_back();
    cells_.emplace_back();
    for (int cell = 1; !line.empty(); ++cell) {
      add_cell(trimmed(take_until(line, ',')), cell);
    }
  }

  Schedule finish() {
    while (!schedule_.orders.empty() && schedule_.orders.back().empty()) {
      schedule_.orders.pop_back();
    }
    place_stages();
    validate(schedule_, name_, [this](int rank, int place) {
      return place_of(rank, cells_[as_index(rank)][as_index(place)]);
    });
    return std::move(schedule_);
  }

 private:
  static std::string place_of(int rank, int cell) {
    return fmt::format("line {} (rank {}), cell {}", rank + 1, rank, cell);
  }

  [[noreturn]] void fail(const std::string& problem) const {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: {}", name_, problem));
  }

  void add_cell(std::string_view text, int cell) {
    constexpr std::string_view kOverlap = ")OVERLAP_F_B";
    if (text.empty() || is_sharding(text)) {
      return;
    }
    if (text.starts_with('(') && text.ends_with(kOverlap)) {
      for (std::string_view pair = text.substr(1, text.size() - 1 - kOverlap.size());
           !pair.empty();) {
        add_action(trimmed(take_until(pair, ';')), cell);
      }
      return;
    }
    add_action(text, cell);
  }

  void add_action(std::string_view text, int cell) {
    const std::optional<Action> action = parse_action(text);
    if (!action) {
      const bool is_transfer = text.find("SEND_") != std::string_view::npos ||
                               text.find("RECV_") != std::string_view::npos;
      fail(fmt::format(
          "{}: \"{}\" {}",
          place_of(schedule_.n_ranks() - 1, cell),
          as_utf8(utf8_prefix(text, kMaxShownBytes)),
          is_transfer ? "is a transfer; those follow from the computation: write the "
                        "table as compute_only"
                      : "is not an action; an action is a stage, F, B, I or W, and a chunk: 0F3"));
    }
    schedule_.orders.back().push_back(*action);
    cells_.back().push_back(cell);
    ++n_actions_;
    n_stages_ = std::max(n_stages_, std::int64_t{action->stage} + 1);
    n_chunks_ = std::max(n_chunks_, std::int64_t{action->chunk} + 1);
  }

  // Places each stage on the rank that lists it first.
  void place_stages() {
    if (n_actions_ == 0) {
      fail("the table is empty");
    }
    // This check also limits the memory that a large number in the table could request.
    if (n_stages_ > n_actions_ || n_chunks_ > n_actions_ / n_stages_) {
      fail(fmt::format(
          "{} actions are too few for {} stages and {} chunks", n_actions_, n_stages_, n_chunks_));
    }
    constexpr int kNowhere = -1;
    schedule_.n_chunks = static_cast<int>(n_chunks_);
    schedule_.rank_of_stage.assign(static_cast<std::size_t>(n_stages_), kNowhere);
    for (int rank = 0; rank < schedule_.n_ranks(); ++rank) {
      for (const Action& action : schedule_.orders[as_index(rank)]) {
        int& place = schedule_.rank_of_stage[as_index(action.stage)];
        place = place == kNowhere ? rank : place;
      }
    }
    const auto missing =
        std::find(schedule_.rank_of_stage.begin(), schedule_.rank_of_stage.end(), kNowhere);
    if (missing != schedule_.rank_of_stage.end()) {
      fail(fmt::format("no rank has stage {}, but there is a stage {}",
                       missing - schedule_.rank_of_stage.begin(),
                       n_stages_ - 1));
    }
  }

  const std::string& name_;
  Schedule schedule_;
  std::vector<std::vector<int>> cells_;  // The cell of each action.
  std::int64_t n_actions_ = 0;
  std::int64_t n_stages_ = 0;
  std::int64_t n_chunks_ = 0;
};

}  // namespace

const char* to_string(ActionKind kind) noexcept {
  switch (kind) {
    case ActionKind::kForward:
      return "forward";
    case ActionKind::kBackward:
      return "backward";
    case ActionKind::kBackwardInput:
      return "input gradients";
    case ActionKind::kBackwardWeight:
      return "weight gradients";
  }
  return "unknown";
}

char letter_of(ActionKind kind) noexcept {
  switch (kind) {
    case ActionKind::kForward:
      return 'F';
    case ActionKind::kBackward:
      return 'B';
    case ActionKind::kBackwardInput:
      return 'I';
    case ActionKind::kBackwardWeight:
      return 'W';
  }
  return '?';
}

std::string describe(const Action& action) {
  return fmt::format(
      "{} of chunk {} in stage {}", to_string(action.kind), action.chunk, action.stage);
}

int stages_of(const Schedule& schedule, int rank) {
  return static_cast<int>(
      std::count(schedule.rank_of_stage.begin(), schedule.rank_of_stage.end(), rank));
}

int peak_activations(const Schedule& schedule, int rank) {
  int n_live = 0;
  int peak = 0;
  for (const Action& action : schedule.orders[static_cast<std::size_t>(rank)]) {
    n_live += change_of_activations(action.kind);
    peak = std::max(peak, n_live);
  }
  return peak;
}

std::vector<int> input_stages(const Action& action, int n_stages, const std::vector<Skip>& skips) {
  std::vector<int> stages;
  switch (action.kind) {
    case ActionKind::kForward:
      if (action.stage > 0) {
        stages.push_back(action.stage - 1);
      }
      for (const Skip& skip : skips) {
        if (skip.to == action.stage) {
          stages.push_back(skip.from);
        }
      }
      break;
    case ActionKind::kBackward:
    case ActionKind::kBackwardInput:
      if (action.stage + 1 < n_stages) {
        stages.push_back(action.stage + 1);
      }
      for (const Skip& skip : skips) {
        if (skip.from == action.stage) {
          stages.push_back(skip.to);
        }
      }
      break;
    case ActionKind::kBackwardWeight:
      break;
  }
  return stages;
}

Schedule parse_csv(std::string_view text, const std::string& name) {
  Table table(name);
  while (!text.empty()) {
    table.add_line(trimmed(take_until(text, '\n')));
  }
  return table.finish();
}

Schedule read_csv(const std::string& path) {
  RegularFile file(path);
  if (file.n_bytes() > kMaxFileBytes) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("{}: {} bytes are too many for a table of a schedule", path, file.n_bytes()));
  }
  std::string text(file.n_bytes(), '\0');
  text.resize(file.read(std::as_writable_bytes(std::span(text))));
  return parse_csv(text, path);
}

std::string to_csv(const Schedule& schedule) {
  std::string text;
  for (const std::vector<Action>& order : schedule.orders) {
    const char* separator = "";
    for (const Action& action : order) {
      text +=
          fmt::format("{}{}{}{}", separator, action.stage, letter_of(action.kind), action.chunk);
      separator = ",";
    }
    text += "\r\n";
  }
  return text;
}

}  // namespace unisono::pipeline
