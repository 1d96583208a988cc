#include "unisono/peers/deadlock.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace unisono::peers {
namespace {

// The search stops after this number; the next search starts anew.
constexpr int kMostQuestions = 64;

// A wait, and for each of its late ranks the wait that blocks the rank.
struct Node {
  transport::Stall wait;
  std::vector<std::optional<std::size_t>> next;
  bool is_in_vain = true;
};

bool is_same(const transport::Stall& one, const transport::Stall& other) {
  return one.rank == other.rank && one.id == other.id;
}

bool are_in_one_operation(const transport::Stall& one, const transport::Stall& other) {
  return !one.id.is_message && one.id == other.id;
}

// Returns the index of the wait, after adding an unknown wait.
std::size_t place_of(std::vector<Node>& nodes, transport::Stall wait) {
  const auto found = std::find_if(
      nodes.begin(), nodes.end(), [&](const Node& known) { return is_same(known.wait, wait); });
  const std::size_t place = static_cast<std::size_t>(found - nodes.begin());
  if (found == nodes.end()) {
    nodes.push_back({.wait = std::move(wait), .next = {}});
  }
  return place;
}

// Returns whether all waits are in a single operation. All ranks have then called the operation,
// and data may be in flight.
bool is_one_operation(const std::vector<Node>& nodes, std::span<const std::size_t> way) {
  return std::all_of(way.begin(), way.end(), [&](std::size_t place) {
    return are_in_one_operation(nodes[place].wait, nodes[way.front()].wait);
  });
}

// Returns all waits that are reachable from `start` within the limit of questions.
std::vector<Node> explore(const transport::Stall& start, const AskRank& ask) {
  std::vector<Node> nodes{{.wait = start, .next = {}}};
  int n_questions = 0;
  for (std::size_t at = 0; at < nodes.size(); ++at) {
    const transport::Stall waiter = nodes[at].wait;
    for (const transport::LateRank& late : waiter.late) {
      std::optional<transport::Stall> answer;
      if (n_questions++ < kMostQuestions) {
        answer = ask(late.rank, waiter);
      }
      std::optional<std::size_t> place;
      if (answer) {
        place = place_of(nodes, std::move(*answer));
      }
      nodes[at].next.push_back(place);
    }
  }
  return nodes;
}

// Returns whether the wait depends on a blocked wait outside its own operation.
bool leads_out(const std::vector<Node>& nodes, std::size_t from) {
  std::vector<std::size_t> same{from};
  for (std::size_t at = 0; at < same.size(); ++at) {
    for (const std::optional<std::size_t> next : nodes[same[at]].next) {
      if (!next || !nodes[*next].is_in_vain) {
        continue;
      }
      if (!are_in_one_operation(nodes[*next].wait, nodes[from].wait)) {
        return true;
      }
      if (std::find(same.begin(), same.end(), *next) == same.end()) {
        same.push_back(*next);
      }
    }
  }
  return false;
}

// Returns whether the wait can't end, given the present marks: for a receive from any rank all
// possible senders must be blocked; for any other wait see leads_out().
bool is_in_vain(const std::vector<Node>& nodes, std::size_t at) {
  const Node& node = nodes[at];
  if (!node.wait.is_for_any) {
    return leads_out(nodes, at);
  }
  return !node.next.empty() && std::all_of(node.next.begin(), node.next.end(), [&](auto next) {
    return next && nodes[*next].is_in_vain;
  });
}

// Determines the waits that can't end: the largest set of waits that depend only on each other.
void find_those_in_vain(std::vector<Node>& nodes) {
  bool has_changed = true;
  while (std::exchange(has_changed, false)) {
    for (std::size_t at = 0; at < nodes.size(); ++at) {
      if (nodes[at].is_in_vain && !is_in_vain(nodes, at)) {
        nodes[at].is_in_vain = false;
        has_changed = true;
      }
    }
  }
}

// Returns the shortest path of at least one step from a wait to another, including both, through
// waits that can't end; empty if there is no path.
std::vector<std::size_t> find_way(const std::vector<Node>& nodes,
                                  std::size_t from,
                                  std::size_t goal) {
  struct Step {
    std::size_t node;
    std::size_t by;
  };

  std::vector<Step> steps{{from, 0}};
  for (std::size_t at = 0; at < steps.size(); ++at) {
    for (const std::optional<std::size_t> next : nodes[steps[at].node].next) {
      if (!next || !nodes[*next].is_in_vain) {
        continue;
      }
      if (*next == goal) {
        std::vector<std::size_t> way{goal};
        for (std::size_t back = at; back != 0; back = steps[back].by) {
          way.push_back(steps[back].node);
        }
        way.push_back(from);
        std::reverse(way.begin(), way.end());
        if (is_one_operation(nodes, way)) {
          continue;
        }
        return way;
      }
      const bool is_known = std::any_of(
          steps.begin(), steps.end(), [&](const Step& step) { return step.node == *next; });
      if (!is_known) {
        steps.push_back({*next, at});
      }
    }
  }
  return {};
}

std::vector<transport::Stall> waits_of(const std::vector<Node>& nodes,
                                       std::span<const std::size_t> places) {
  std::vector<transport::Stall> waits;
  for (const std::size_t place : places) {
    waits.push_back(nodes[place].wait);
  }
  return waits;
}

// Collects the cycle and, for each receive from any rank in the cycle, the paths of the other
// ranks.
class Collector {
 public:
  explicit Collector(const std::vector<Node>& nodes) : nodes_(nodes) {}

  void add_circle(std::span<const std::size_t> way) {
    add_text(describe_deadlock(waits_of(nodes_, way.first(way.size() - 1))));
    add(way);
    for (std::size_t at = 0; at < places_.size(); ++at) {
      add_others_of(places_[at]);
    }
  }

  [[nodiscard]] Deadlock result() const {
    return {.waits = waits_of(nodes_, places_), .text = text_, .gone = gone_};
  }

 private:
  [[nodiscard]] bool has(std::size_t place) const {
    return std::find(places_.begin(), places_.end(), place) != places_.end();
  }

  void add(std::span<const std::size_t> way) {
    for (const std::size_t place : way) {
      if (!has(place)) {
        places_.push_back(place);
        const std::string& gone = nodes_[place].wait.gone;
        gone_ += gone.empty() || gone_.find(gone) != std::string::npos
                     ? ""
                     : (gone_.empty() ? "" : " and ") + gone;
      }
    }
  }

  void add_text(const std::string& text) { text_ += (text_.empty() ? "" : "; ") + text; }

  void add_others_of(std::size_t place) {
    const Node& node = nodes_[place];
    for (const std::optional<std::size_t> next : node.next) {
      if (!node.wait.is_for_any || !next || has(*next)) {
        continue;
      }
      const std::vector<std::size_t> back = find_way(nodes_, *next, place);
      if (back.empty()) {
        add_text(fmt::format("rank {} waits in {} for rank {}, which waits in {}",
                             node.wait.rank,
                             node.wait.text,
                             nodes_[*next].wait.rank,
                             nodes_[*next].wait.text));
        add(std::span(&*next, 1));
      } else {
        add_text(describe_deadlock(waits_of(nodes_, back)));
        add(back);
      }
    }
  }

  const std::vector<Node>& nodes_;
  std::vector<std::size_t> places_;
  std::string text_;
  std::string gone_;
};

}  // namespace

std::optional<Deadlock> find_deadlock(const transport::Stall& start, const AskRank& ask) {
  std::vector<Node> nodes = explore(start, ask);
  find_those_in_vain(nodes);
  const std::vector<std::size_t> way =
      nodes.front().is_in_vain ? find_way(nodes, 0, 0) : std::vector<std::size_t>();
  if (way.empty()) {
    return std::nullopt;
  }
  Collector collector(nodes);
  collector.add_circle(way);
  return collector.result();
}

bool are_same(std::span<const transport::Stall> some, std::span<const transport::Stall> others) {
  return std::equal(some.begin(), some.end(), others.begin(), others.end(), is_same);
}

std::string describe_deadlock(std::span<const transport::Stall> cycle) {
  const auto lowest = std::min_element(
      cycle.begin(), cycle.end(), [](const transport::Stall& one, const transport::Stall& other) {
        return one.rank < other.rank;
      });
  const auto first = static_cast<std::size_t>(lowest - cycle.begin());
  std::string text = fmt::format("rank {}", lowest->rank);
  for (std::size_t n = 0; n < cycle.size(); ++n) {
    const transport::Stall& wait = cycle[(first + n) % cycle.size()];
    const transport::Stall& next = cycle[(first + n + 1) % cycle.size()];
    text +=
        fmt::format("{} waits in {} for rank {}", n == 0 ? "" : ", which", wait.text, next.rank);
  }
  return text;
}

}  // namespace unisono::peers
