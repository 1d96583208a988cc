#include "unisono/base/loaded_library.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"

namespace unisono {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(LoadedLibrary, FindsFunctions) {
  double (*cosine)(double) = nullptr;
  LoadedLibrary("libm.so.6").find("cos", cosine);
  EXPECT_EQ(cosine(0.5), std::cos(0.5));
}

TEST(LoadedLibrary, SaysWhichLibraryOrFunctionIsMissing) {
  EXPECT_THAT([] { (void)LoadedLibrary("libunisono_of_nowhere.so.1"); },
              ThrowsMessage<Error>(HasSubstr("libunisono_of_nowhere.so.1")));
  EXPECT_THAT(
      [] {
        int (*function)() = nullptr;
        LoadedLibrary("libm.so.6").find("unisono_of_nowhere", function);
      },
      ThrowsMessage<Error>(AllOf(HasSubstr("libm.so.6"), HasSubstr("unisono_of_nowhere"))));
}

}  // namespace
}  // namespace unisono
