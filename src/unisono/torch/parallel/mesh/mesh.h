#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"

namespace unisono::parallel {

struct MeshDimension {
  std::string name;
  int size;
};

/// A group's ranks as a grid with named dimensions, of which the last one runs fastest: in
/// {{"data", 2}, {"pipe", 2}} ranks 0 and 1 are one pipeline and ranks 0 and 2 hold the same part.
///
/// A line of a dimension is the ranks that differ in nothing but their coordinate there; it is a
/// process group of its own.
class Mesh {
 public:
  /// A collective operation of the group, at the cost of one new_group() for all lines.
  ///
  /// Throws Error(kInvalidArgument) unless names are different and not empty, sizes are 1 at least
  /// and their product is the number of ranks; kMismatch on all ranks where meshes differ.
  Mesh(std::shared_ptr<ProcessGroup> group,
       std::vector<MeshDimension> dimensions,
       const GroupOptions& options = {});

  [[nodiscard]] const std::vector<MeshDimension>& dimensions() const { return dimensions_; }

  /// All ranks.
  [[nodiscard]] const std::shared_ptr<ProcessGroup>& world() const { return world_; }

  // Those that take a name throw Error(kInvalidArgument), with the names that there are, for
  // another one.

  /// This rank's line of a dimension. A rank's number in it is its coordinate.
  [[nodiscard]] const std::shared_ptr<ProcessGroup>& group(const std::string& dimension) const;

  [[nodiscard]] int size(const std::string& dimension) const;

  /// Where this rank is in a dimension, from 0.
  [[nodiscard]] int coordinate(const std::string& dimension) const;

  /// The same in all of them, in their order.
  [[nodiscard]] const std::vector<int>& coordinates() const { return coordinates_; }

  /// The rank at these coordinates. Throws Error(kInvalidArgument) for those outside the mesh.
  [[nodiscard]] int rank_at(const std::vector<int>& coordinates) const;

 private:
  [[nodiscard]] std::size_t find(const std::string& dimension) const;

  std::shared_ptr<ProcessGroup> world_;
  std::vector<MeshDimension> dimensions_;
  std::vector<int> coordinates_;
  std::vector<std::shared_ptr<ProcessGroup>> lines_;  // Of this rank, one for each dimension.
};

}  // namespace unisono::parallel
