#pragma once
// Weights and moments in fewer bits, as loops for rules.kernel.cpp, the one source that includes
// this: compiled once per instruction set.

#include "device/host/kernel_elements.hpp"
#include "update/kernels.hpp"
#include "update/random_bits.hpp"

namespace ration::update::RATION_LEVEL {
namespace {

void scale(const float* from, float factor, float* to, std::size_t count) {
  RATION_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) to[i] = from[i] * factor;
}

// NaNs whose payload the rounding would carry into infinity (0x7f800001) or into zero (0x7fffffff,
// what GPUs produce) keep their upper half instead, made quiet; all else has the split master's
// bits.
void round_half_up(const float* from, std::uint16_t* to, std::size_t count) {
  RATION_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t b = bits_of(from[i]);
    const std::uint32_t rounded = ((b + 0x8000u) >> 16) & 0xffffu;
    const std::uint32_t quiet = (b >> 16) | 0x40u;
    const bool nan = (b & 0x7fffffffu) > 0x7f800000u;
    const bool lost = nan & ((rounded & 0x7fffu) <= 0x7f80u);
    to[i] = static_cast<std::uint16_t>(lost ? quiet : rounded);
  }
}

// The split master: the bf16 weight is the fp32 value rounded half up, the residue its lower 16
// bits. The rounding carried exactly when the residue's highest bit is set, so the upper half is
// the weight less that bit, for each of the 2^32 patterns (both steps wrap around). With rounding
// to even a tie's carry would depend on the upper half's last bit, which it changes: 1 pattern in
// 131,072 could not be decoded. The price of a bijection: there are more NaNs than codes with a NaN
// for a weight. So NaNs 0x7f800001 to 0x7f807fff show an infinity, and 0x7fff8000 to 0x7fffffff a
// zero, as the model's weight (the fp32 value stays the NaN); x86's own NaN, 0xffc00000, is
// neither.
void split(const float* from, std::uint16_t* weights, std::uint16_t* residues, std::size_t count) {
  RATION_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t b = bits_of(from[i]);
    weights[i] = static_cast<std::uint16_t>((b + 0x8000u) >> 16);
    residues[i] = static_cast<std::uint16_t>(b);
  }
}

void join(const std::uint16_t* weights, const std::uint16_t* residues, float* to,
          std::size_t count) {
  RATION_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t residue = residues[i];
    const std::uint32_t upper = std::uint32_t{weights[i]} - (residue >> 15);
    to[i] = float_of((upper << 16) | residue);
  }
}

// Adds 16 random bits below the last that is kept: the expected value is the value itself. What
// would become infinite, and what is already infinite or NaN, is cut off instead.
std::uint16_t round_with(float value, std::uint32_t random16) {
  const std::uint32_t b = bits_of(value);
  const std::uint32_t rounded = b + random16;
  const bool overflow = (rounded & 0x7f800000u) == 0x7f800000u;
  return static_cast<std::uint16_t>((overflow ? b : rounded) >> 16);
}

// Elements whose upper 32 index bits are equal.
template <bool two>
void round_stretch(const RandomKey& key, std::uint32_t first, const float* __restrict from1,
                   std::uint16_t* __restrict to1, const float* __restrict from2,
                   std::uint16_t* __restrict to2, std::size_t count) {
  const RandomKey k = key;
  RATION_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t hash = random_hash(k, first + static_cast<std::uint32_t>(i));
    to1[i] = round_with(from1[i], hash >> 16);
    if constexpr (two) to2[i] = round_with(from2[i], hash & 0xffffu);
  }
}

void round_randomly(const RandomBits& random, const float* from1, std::uint16_t* to1,
                    const float* from2, std::uint16_t* to2, std::size_t count) {
  for (std::size_t done = 0; done < count;) {
    const std::uint64_t element = random.first_element + done;
    const auto low = static_cast<std::uint32_t>(element);
    const std::uint64_t room = 0x100000000u - low;
    const std::size_t piece = count - done < room ? count - done : static_cast<std::size_t>(room);
    const RandomKey key = random_key(random.seed, static_cast<std::uint32_t>(element >> 32));
    if (from2 == nullptr) {
      round_stretch<false>(key, low, from1 + done, to1 + done, nullptr, nullptr, piece);
    } else {
      round_stretch<true>(key, low, from1 + done, to1 + done, from2 + done, to2 + done, piece);
    }
    done += piece;
  }
}

}  // namespace
}  // namespace ration::update::RATION_LEVEL
