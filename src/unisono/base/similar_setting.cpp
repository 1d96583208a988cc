#include "unisono/base/similar_setting.h"

#include <cstddef>
#include <string>
#include <string_view>

#include "unisono/base/config.h"
#include "unisono/base/edit_distance.h"

namespace unisono {

std::string similar_setting(std::string_view name) {
  std::size_t least = 4;
  std::string similar;
  for (const ConfigRow& row : config_table()) {
    const std::size_t distance = edit_distance(name, row.name);
    if (distance == 0) {
      return "";
    }
    if (distance < least) {
      least = distance;
      similar = row.name;
    }
  }
  return similar;
}

}  // namespace unisono
