#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "unisono/base/dtype.h"
#include "unisono/base/error.h"
#include "unisono/base/reduce_kind.h"
#include "unisono/kernels/reduce.h"

namespace unisono::kernels {
namespace {

using Cells = std::vector<std::string>;

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) {
    words.push_back(word);
  }
  return words;
}

Cells cells_of(const std::string& line) {
  std::istringstream stream(line.substr(1));
  Cells cells;
  for (std::string cell; std::getline(stream, cell, '|');) {
    cells.push_back(cell);
  }
  return cells;
}

// The lines of the page's only table.
std::vector<Cells> table_of_page() {
  std::ifstream page(UNISONO_REDUCTIONS_PAGE);
  std::vector<Cells> table;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("|")) {
      table.push_back(cells_of(line));
    }
  }
  return table;
}

bool is_reducible(DType dtype, ReduceKind kind) {
  try {
    check_reduction(dtype, kind);
    return true;
  } catch (const Error&) {
    return false;
  }
}

TEST(ReductionsPage, ItsTableIsWhatCheckReductionSays) {
  const std::vector<Cells> table = table_of_page();
  ASSERT_GT(table.size(), 2U) << "no table in " << UNISONO_REDUCTIONS_PAGE;
  std::map<std::pair<std::string, std::string>, std::string> cells;
  for (std::size_t row = 2; row < table.size(); ++row) {
    ASSERT_EQ(table[row].size(), table[0].size()) << "row " << row;
    for (std::size_t column = 1; column < table[row].size(); ++column) {
      for (const std::string& dtype : words_of(table[0][column])) {
        const auto operation = words_of(table[row][0]);
        ASSERT_EQ(operation.size(), 1U) << "row " << row;
        EXPECT_TRUE(cells.try_emplace({operation.front(), dtype}, table[row][column]).second)
            << operation.front() << " of " << dtype << " is there twice";
      }
    }
  }
  for (int dtype = 0; dtype < kDTypeCount; ++dtype) {
    for (int kind = 0; kind < kReduceKindCount; ++kind) {
      const std::string operation = to_string(static_cast<ReduceKind>(kind));
      const std::string type = to_string(static_cast<DType>(dtype));
      const auto cell = cells.extract({operation, type});
      ASSERT_FALSE(cell.empty()) << operation << " of " << type << " is missing";
      EXPECT_EQ(words_of(cell.mapped()) != std::vector<std::string>{"-"},
                is_reducible(static_cast<DType>(dtype), static_cast<ReduceKind>(kind)))
          << operation << " of " << type << ": '" << cell.mapped() << "'";
    }
  }
  EXPECT_TRUE(cells.empty()) << "the page knows an operation or a dtype that does not exist";
}

}  // namespace
}  // namespace unisono::kernels
