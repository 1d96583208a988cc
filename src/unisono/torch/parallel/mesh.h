#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"

namespace unisono::parallel {

/// Name and size of a dimension of a Mesh.
struct MeshDimension {
  std::string name;
  int size;
};

/// A group's ranks as a grid with named dimensions; the last dimension varies fastest. In {{"data",
/// 2}, {"pipe", 2}}, ranks 0 and 1 form a pipeline, and ranks 0 and 2 hold the same part.
///
/// A line of a dimension is the set of ranks that differ only in the coordinate of that dimension.
/// Each line is a separate process group.
///
/// The mesh holds the group and this rank's lines. The construction is a collective operation; the
/// other members are local and thread-safe.
class Mesh {
 public:
  /// A collective operation of the group, at the cost of one new_groups() for all lines.
  ///
  /// Throws Error(kInvalidArgument) unless names are distinct and not empty, sizes are at least 1,
  /// and the product of the sizes is the number of ranks. Throws kMismatch on all ranks if the
  /// meshes differ.
  Mesh(std::shared_ptr<ProcessGroup> group,
       std::vector<MeshDimension> dimensions,
       const GroupOptions& options = {});

  [[nodiscard]] const std::vector<MeshDimension>& dimensions() const { return dimensions_; }

  /// All ranks.
  [[nodiscard]] const std::shared_ptr<ProcessGroup>& world() const { return world_; }

  // Functions that take a name throw Error(kInvalidArgument) for an unknown name; the message lists
  // the known names.

  /// This rank's line of a dimension. A rank's number in the line equals the rank's coordinate.
  [[nodiscard]] const std::shared_ptr<ProcessGroup>& group(const std::string& dimension) const;

  /// Returns the number of ranks in a line of the dimension.
  [[nodiscard]] int size(const std::string& dimension) const;

  /// Returns this rank's coordinate in a dimension, from 0.
  [[nodiscard]] int coordinate(const std::string& dimension) const;

  /// This rank's coordinates in the order of the dimensions.
  [[nodiscard]] const std::vector<int>& coordinates() const { return coordinates_; }

  /// Returns the rank at these coordinates. Throws Error(kInvalidArgument) for coordinates outside
  /// the mesh.
  [[nodiscard]] int rank_at(const std::vector<int>& coordinates) const;

 private:
  [[nodiscard]] std::size_t find(const std::string& dimension) const;

  std::shared_ptr<ProcessGroup> world_;
  std::vector<MeshDimension> dimensions_;
  std::vector<int> coordinates_;
  std::vector<std::shared_ptr<ProcessGroup>> lines_;  // Lines of this rank, by dimension.
};

/// Runs `body` as each of `n_ranks` ranks of a new group, with the ranks as threads of this
/// process, and waits for all. A pipeline's program can thus run in one process. The compute
/// threads are divided among the ranks.
///
/// If a rank throws, the rank's group is aborted, and the function throws the first exception.
void run_in_threads(int n_ranks,
                    const std::function<void(const std::shared_ptr<ProcessGroup>& group)>& body);

}  // namespace unisono::parallel
