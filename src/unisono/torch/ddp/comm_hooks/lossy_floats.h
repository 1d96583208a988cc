#pragma once

#include <cstdint>

namespace unisono::ddp {

// What compression does with arrays of floats, each in one pass.

/// sums[i] += floats[i].
void add_floats(float* sums, const float* floats, std::int64_t count);

void divide_floats(float* floats, float divisor, std::int64_t count);

/// error[i] -= sent[i]; what is no finite number then becomes zero, as a gradient that overflowed
/// once would stay for ever.
void subtract_finite(float* error, const float* sent, std::int64_t count);

/// error[i] += factor * (floats[i] - sent[i]); what is no finite number then becomes zero.
void add_lost(
    float* error, const float* floats, const float* sent, float factor, std::int64_t count);

}  // namespace unisono::ddp
