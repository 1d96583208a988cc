#include "unisono/collective/choose.h"

#include <algorithm>
#include <cstddef>

#include "unisono/collective/canonical_tree.h"

namespace unisono::collective {
namespace {

// The sizes that determine the costs of one-shot and two-shot. Each is the maximum over all nodes.
struct Shape {
  double n_nodes;
  double local_size = 0;
  double n_subtrees = 0;          // Partial results that a node sends for a chunk.
  double n_chunks_elsewhere = 0;  // Chunks of other nodes that a rank works on.
};

Shape shape_of(const Topology& topology) {
  Shape shape{.n_nodes = static_cast<double>(topology.n_nodes())};
  for (int node = 0; node < topology.n_nodes(); ++node) {
    const auto ranks = topology.ranks_of(node);
    const auto n_subtrees = maximal_subtrees(ranks, topology.world_size()).size();
    const auto size = static_cast<double>(ranks.size());
    shape.local_size = std::max(shape.local_size, size);
    shape.n_subtrees = std::max(shape.n_subtrees, static_cast<double>(n_subtrees));
    shape.n_chunks_elsewhere =
        std::max(shape.n_chunks_elsewhere, (topology.world_size() - size) / size);
  }
  return shape;
}

// Returns the time of n simultaneous messages.
double time_of_messages(double n, const LinkCosts& links) {
  return n > 0 ? links.latency + (n - 1) * links.message : 0;
}

Cost cost_of_one_shot(const Topology& topology, const LinkCosts& links) {
  const Shape shape = shape_of(topology);
  const double read_bytes = shape.local_size - 1;
  if (topology.n_nodes() == 1) {
    return {.fixed = links.session, .per_byte = read_bytes * links.local_byte};
  }
  const double n_messages = (shape.n_nodes - 1) * shape.n_subtrees;
  return {.fixed = 2 * links.session + time_of_messages(2 * n_messages, links),
          .per_byte =
              (read_bytes + shape.local_size) * links.local_byte + n_messages * links.remote_byte};
}

Cost cost_of_two_shot(const Topology& topology, const LinkCosts& links) {
  const Shape shape = shape_of(topology);
  if (topology.n_nodes() == 1) {
    return {.fixed = 2 * links.session, .per_byte = 2 * links.local_byte};
  }
  const double n_partials = (shape.n_nodes - 1 + shape.n_chunks_elsewhere) * shape.n_subtrees;
  const double n_results = shape.n_nodes - 1 + shape.n_chunks_elsewhere;
  const double share = (shape.n_nodes - 1) / shape.n_nodes;
  return {.fixed = 3 * links.session + time_of_messages(n_partials, links) +
                   time_of_messages(n_results, links),
          .per_byte = 2 * links.local_byte + (shape.n_subtrees + 1) * share * links.remote_byte};
}

// Load of the busiest node and of the busiest rank in one step, in fractions of the buffer.
class StepLoad {
 public:
  StepLoad(const Topology& topology, int n_chunks)
      : topology_(topology),
        part_(1.0 / n_chunks),
        node_out_(static_cast<std::size_t>(topology.n_nodes())),
        node_in_(node_out_) {}

  void add(int rank, const Step& step) {
    double n_messages = 0;
    double n_local = 0;
    const int node = topology_.node_of(rank);
    for (const StepSend& send : step.sends) {
      if (topology_.node_of(send.to) != node) {
        node_out_[static_cast<std::size_t>(node)] += send.chunks.size() * part_;
        ++n_messages;
      }
    }
    for (const StepReceive& receive : step.receives) {
      if (topology_.node_of(receive.from) != node) {
        node_in_[static_cast<std::size_t>(node)] += receive.chunks.size() * part_;
        ++n_messages;
      } else {
        n_local += receive.chunks.size() * part_;
      }
    }
    n_messages_ = std::max(n_messages_, n_messages);
    n_local_ = std::max(n_local_, n_local);
  }

  [[nodiscard]] Cost cost(const LinkCosts& links) const {
    const double remote = std::max(*std::max_element(node_out_.begin(), node_out_.end()),
                                   *std::max_element(node_in_.begin(), node_in_.end()));
    const bool has_peers = topology_.n_nodes() < topology_.world_size();
    return {.fixed = (has_peers ? links.session : 0) + time_of_messages(n_messages_, links),
            .per_byte = remote * links.remote_byte + n_local_ * links.local_byte};
  }

 private:
  const Topology& topology_;
  double part_;
  std::vector<double> node_out_;
  std::vector<double> node_in_;
  double n_messages_ = 0;
  double n_local_ = 0;
};

Cost cost_of_steps(Algorithm algorithm, const Topology& topology, const LinkCosts& links) {
  std::vector<StepPlan> plans;
  for (int rank = 0; rank < topology.world_size(); ++rank) {
    plans.push_back(step_plan(algorithm, rank, topology.world_size()));
  }
  // Each buffer is copied in once and out once.
  Cost total{.fixed = links.session, .per_byte = 2 * links.local_byte};
  for (const auto phase : {&StepPlan::combining, &StepPlan::spreading}) {
    for (std::size_t step = 0; step < (plans.front().*phase).size(); ++step) {
      StepLoad load(topology, plans.front().n_chunks);
      for (int rank = 0; rank < topology.world_size(); ++rank) {
        load.add(rank, (plans[static_cast<std::size_t>(rank)].*phase)[step]);
      }
      const Cost cost = load.cost(links);
      total.fixed += cost.fixed;
      total.per_byte += cost.per_byte;
    }
  }
  return total;
}

}  // namespace

Cost cost_of(Algorithm algorithm, const Topology& topology, const LinkCosts& links) {
  switch (algorithm) {
    case Algorithm::kOneShot:
      return cost_of_one_shot(topology, links);
    case Algorithm::kTwoShot:
      return cost_of_two_shot(topology, links);
    default:
      return cost_of_steps(algorithm, topology, links);
  }
}

Chooser::Chooser(const Topology& topology, const LinkCosts& links, std::int64_t slot_bytes)
    : slot_bytes_(slot_bytes), has_one_node_(topology.n_nodes() == 1) {
  std::vector<Algorithm> algorithms{Algorithm::kTwoShot, Algorithm::kOneShot};
  // With one or two nodes neither tree nor halving-doubling can win: both take at least as many
  // steps as one of the two candidates, and transfer at least as many bytes as the other.
  if (topology.n_nodes() > 2) {
    algorithms.insert(algorithms.end(), {Algorithm::kTree, Algorithm::kHalvingDoubling});
  }
  for (const Algorithm algorithm : algorithms) {
    candidates_.push_back({.algorithm = algorithm, .cost = cost_of(algorithm, topology, links)});
  }
}

bool Chooser::is_possible(Algorithm algorithm,
                          Receivers::Kind receivers,
                          std::int64_t n_bytes) const {
  switch (algorithm) {
    case Algorithm::kOneShot:
      // Between nodes a rank that receives a single block does not need the others.
      return n_bytes <= slot_bytes_ && (has_one_node_ || receivers != Receivers::Kind::kOwner);
    case Algorithm::kTwoShot:
      return true;
    default:
      return receivers == Receivers::Kind::kAll;
  }
}

std::vector<Chooser::Estimate> Chooser::estimates(Receivers::Kind receivers,
                                                  std::int64_t n_bytes) const {
  std::vector<Estimate> estimates;
  for (const Candidate& candidate : candidates_) {
    if (is_possible(candidate.algorithm, receivers, n_bytes)) {
      estimates.push_back(
          {.algorithm = candidate.algorithm, .seconds = candidate.cost.at(n_bytes)});
    }
  }
  std::stable_sort(estimates.begin(), estimates.end(), [](const Estimate& a, const Estimate& b) {
    return a.seconds < b.seconds;
  });
  return estimates;
}

Algorithm Chooser::choose(Receivers::Kind receivers, std::int64_t n_bytes) const {
  const Candidate* best = &candidates_.front();  // Two-shot, which is always possible.
  for (const Candidate& candidate : candidates_) {
    if (is_possible(candidate.algorithm, receivers, n_bytes) &&
        candidate.cost.at(n_bytes) < best->cost.at(n_bytes)) {
      best = &candidate;
    }
  }
  return best->algorithm;
}

bool Chooser::depends_on_links(const Topology& topology) {
  // With up to three ranks on a single node, one-shot reads less data and needs fewer barriers.
  // Between two nodes, one-shot sends no more data than two-shot.
  return topology.n_nodes() > 2 || (topology.n_nodes() == 1 && topology.local_world_size() > 3);
}

}  // namespace unisono::collective
