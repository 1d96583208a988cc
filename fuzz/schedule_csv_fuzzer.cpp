// Tables of pipeline schedules.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "unisono/base/error.h"
#include "unisono/pipeline/schedule.h"
#include "unisono/pipeline/timeline.h"

#include "expect.h"
#include "input.h"

namespace unisono::fuzz {
namespace {

// Returns std::nullopt if the text is not a valid schedule.
std::optional<pipeline::Schedule> read(const std::string& text) {
  try {
    return pipeline::parse_csv(text, "table");
  } catch (const Error& error) {
    expect(error.code() == ErrorCode::kInvalidArgument, error.what());
    return std::nullopt;
  }
}

}  // namespace
}  // namespace unisono::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using unisono::fuzz::expect;
  namespace pipeline = unisono::pipeline;
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (const auto schedule = unisono::fuzz::read(text)) {
    expect(unisono::fuzz::read(pipeline::to_csv(*schedule)) == schedule,
           "what is written is read again");
    const auto one = [](const pipeline::Action&) { return 1.0; };
    const double planned = pipeline::step_time(pipeline::simulate(*schedule, one));
    expect(planned > 0, "what is read comes to its end");
    const double by_arrival =
        pipeline::step_time(pipeline::simulate(*schedule, one, {.is_by_arrival = true}));
    expect(by_arrival > 0, "also by what has arrived");
  }
  return 0;
}
