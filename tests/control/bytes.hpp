#pragma once
// Folds of text.

#include <span>
#include <string>

#include "control/control.hpp"

namespace ration {

inline Bytes bytes_of(const std::string& text) {
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

inline std::string text_of(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline void concatenate(std::span<const Bytes> records, Bytes& result) {
  for (const Bytes& record : records) result.insert(result.end(), record.begin(), record.end());
}

inline std::string fold(Control& control, const std::string& channel, const std::string& record,
                        const Control::Combine& combine = concatenate) {
  Bytes result;
  control.fold(channel, bytes_of(record), combine, result, "a fold");
  return text_of(result);
}

}  // namespace ration
