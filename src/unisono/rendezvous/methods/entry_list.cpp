#include "unisono/rendezvous/methods/entry_list.h"

#include <cstddef>
#include <set>
#include <vector>

#include "unisono/rendezvous/roster/roster_codec.h"

namespace unisono::rendezvous {

bool is_full(const std::vector<Entry>& entries) {
  return !entries.empty() &&
         entries.size() >= static_cast<std::size_t>(entries.front().member.world_size);
}

std::vector<Entry> give_out_ranks(std::vector<Entry> entries) {
  std::set<int> taken;
  for (const Entry& entry : entries) {
    taken.insert(entry.member.rank);
  }
  int next = 0;
  for (Entry& entry : entries) {
    if (entry.member.rank >= 0) {
      continue;
    }
    while (taken.contains(next)) {
      ++next;
    }
    entry.member.rank = next++;
  }
  return entries;
}

}  // namespace unisono::rendezvous
