#include "launch/hostlist.hpp"

#include <charconv>
#include <cstddef>
#include <cstdint>

#include <fmt/format.h>

#include <ration/error.hpp>

namespace ration {
namespace {

constexpr std::size_t kMost = 1 << 20;  // beyond is no cluster's list

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Reads from the left; knows where it is for messages.
class Reader {
 public:
  Reader(std::string_view text, std::string_view source) : text_(text), source_(source) {}

  [[nodiscard]] bool at_end() const { return position_ == text_.size(); }
  [[nodiscard]] char next() const { return at_end() ? '\0' : text_[position_]; }

  bool take(char wanted) {
    if (next() != wanted || at_end()) return false;
    ++position_;
    return true;
  }

  void expect(char wanted) {
    if (!take(wanted)) fail(fmt::format("expected \"{}\"", wanted));
  }

  /// The digits from here; at least one.
  std::string_view digits() {
    const std::size_t begin = position_;
    while (is_digit(next())) ++position_;
    if (position_ == begin) fail("expected a number");
    return text_.substr(begin, position_ - begin);
  }

  std::uint64_t number(std::string_view digits) const {
    std::uint64_t value = 0;
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (result.ec != std::errc()) fail("the number is too large");
    return value;
  }

  /// Up to a bracket, a comma or the end; may be empty.
  std::string_view plain() {
    const std::size_t begin = position_;
    while (!at_end() && next() != '[' && next() != ']' && next() != ',') ++position_;
    return text_.substr(begin, position_ - begin);
  }

  [[noreturn]] void fail(std::string_view what) const {
    const std::string found = at_end() ? "the end" : fmt::format("\"{}\"", next());
    throw InvalidArgument(fmt::format("{}=\"{}\": {} at character {}, found {}", source_, text_,
                                      what, position_ + 1, found));
  }

 private:
  const std::string_view text_;
  const std::string_view source_;
  std::size_t position_ = 0;
};

// What stands in a bracket: `1-3,07` -> 1 2 3 07. The bracket is open already.
std::vector<std::string> read_ranges(Reader& reader) {
  std::vector<std::string> numbers;
  do {
    const std::string_view low = reader.digits();
    const std::string_view high = reader.take('-') ? reader.digits() : low;
    const std::uint64_t first = reader.number(low);
    const std::uint64_t last = reader.number(high);
    if (last < first) reader.fail(fmt::format("the range {}-{} runs backwards", low, high));
    if (last - first >= kMost - numbers.size()) reader.fail("too many hosts");
    for (std::uint64_t i = first; i <= last; ++i) {
      numbers.push_back(fmt::format("{:0{}}", i, low.size()));
    }
  } while (reader.take(','));
  reader.expect(']');
  return numbers;
}

// Each of `names` followed by each of `endings`.
std::vector<std::string> combine(const Reader& reader, const std::vector<std::string>& names,
                                 const std::vector<std::string>& endings) {
  if (names.size() * endings.size() > kMost) reader.fail("too many hosts");
  std::vector<std::string> result;
  result.reserve(names.size() * endings.size());
  for (const std::string& name : names) {
    for (const std::string& ending : endings) result.push_back(name + ending);
  }
  return result;
}

// One name with its brackets.
std::vector<std::string> read_names(Reader& reader) {
  std::vector<std::string> names{""};
  bool any = false;
  for (;;) {
    const std::string_view plain = reader.plain();
    for (std::string& name : names) name += plain;
    any = any || !plain.empty();
    if (!reader.take('[')) break;
    names = combine(reader, names, read_ranges(reader));
    any = true;
  }
  if (!any) reader.fail("expected a host's name");
  return names;
}

}  // namespace

std::vector<std::string> expand_hostlist(std::string_view list, std::string_view source) {
  Reader reader(list, source);
  std::vector<std::string> hosts;
  do {
    for (std::string& name : read_names(reader)) hosts.push_back(std::move(name));
    if (hosts.size() > kMost) reader.fail("too many hosts");
  } while (reader.take(','));
  if (!reader.at_end()) reader.fail("expected \",\"");
  return hosts;
}

std::vector<int> expand_tasks_per_node(std::string_view list, std::string_view source) {
  Reader reader(list, source);
  std::vector<int> tasks;
  do {
    const std::uint64_t count = reader.number(reader.digits());
    std::uint64_t nodes = 1;
    if (reader.take('(')) {
      reader.expect('x');
      nodes = reader.number(reader.digits());
      reader.expect(')');
    }
    if (count > kMost || nodes > kMost || tasks.size() + nodes > kMost) {
      reader.fail("the number is too large");
    }
    tasks.insert(tasks.end(), nodes, static_cast<int>(count));
  } while (reader.take(','));
  if (!reader.at_end()) reader.fail("expected \",\"");
  return tasks;
}

}  // namespace ration
