#pragma once
// Files to tokens: a token is the place of a byte among the distinct bytes of the whole text.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace chargpt {

struct Text {
  std::vector<std::uint8_t> tokens;
  std::vector<std::uint8_t> vocabulary;  ///< the distinct bytes, ascending
};

/// The licence texts that every Debian system carries (package base-files): the regular files of
/// /usr/share/common-licenses, by name. Empty where there are none.
std::vector<std::string> licence_texts();

/// Joins the files, in order. Throws std::runtime_error naming the file that cannot be read.
Text read_text(std::span<const std::string> files);

/// Cuts a string into tokens.
Text tokenize(std::span<const char> bytes);

}  // namespace chargpt
