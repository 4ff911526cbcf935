#pragma once
// Environment variables as text and as whole numbers.

#include <functional>
#include <optional>
#include <string>

namespace ration {

/// As std::getenv.
using Lookup = std::function<const char*(const char* name)>;

/// A variable that is empty counts as not set.
class Variables {
 public:
  explicit Variables(const Lookup& get) : get_(get) {}

  [[nodiscard]] bool has(const char* name) const { return !text(name).empty(); }
  /// Empty when not set.
  [[nodiscard]] std::string text(const char* name) const;
  /// Throws InvalidArgument, naming the variable, when it is no whole number in the range.
  [[nodiscard]] std::optional<int> number(const char* name, int least, int most) const;
  /// `NAME="value"`, for messages.
  [[nodiscard]] std::string quoted(const char* name) const;

 private:
  const Lookup& get_;
};

}  // namespace ration
