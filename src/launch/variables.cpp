#include "launch/variables.hpp"

#include <charconv>
#include <limits>

#include <fmt/format.h>

#include <ration/error.hpp>

namespace ration {

std::string Variables::text(const char* name) const {
  const char* value = get_(name);
  return value ? value : "";
}

std::optional<int> Variables::number(const char* name, int least, int most) const {
  const std::string value = text(name);
  if (value.empty()) return std::nullopt;
  int number = 0;
  const char* end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, number);
  if (error != std::errc() || stop != end || number < least || number > most) {
    const std::string range = most == std::numeric_limits<int>::max()
                                  ? fmt::format("{} or more", least)
                                  : fmt::format("from {} to {}", least, most);
    throw InvalidArgument(fmt::format("{}: expected a whole number, {}", quoted(name), range));
  }
  return number;
}

std::string Variables::quoted(const char* name) const {
  return fmt::format("{}=\"{}\"", name, text(name));
}

}  // namespace ration
