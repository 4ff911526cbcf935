#pragma once
// Small records that ranks exchange: written and read in order, checked while reading.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <ration/error.hpp>

namespace ration {

class RecordWriter {
 public:
  explicit RecordWriter(std::vector<std::byte>& bytes) : bytes_(&bytes) { bytes_->clear(); }

  template <class T>
  void put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    append(&value, sizeof value);
  }
  void put_text(std::string_view text) {
    put(static_cast<std::uint64_t>(text.size()));
    append(text.data(), text.size());
  }
  template <class T>
  void put_list(const std::vector<T>& values) {
    static_assert(std::is_trivially_copyable_v<T>);
    put(static_cast<std::uint64_t>(values.size()));
    append(values.data(), values.size() * sizeof(T));
  }

 private:
  void append(const void* data, std::size_t size) {
    const std::size_t before = bytes_->size();
    bytes_->resize(before + size);
    if (size) std::memcpy(bytes_->data() + before, data, size);
  }
  std::vector<std::byte>* bytes_;
};

class RecordReader {
 public:
  explicit RecordReader(const std::vector<std::byte>& bytes) : bytes_(bytes) {}

  template <class T>
  T get() {
    T value;
    take(&value, sizeof value);
    return value;
  }
  std::string get_text() {
    std::string text(length(1), '\0');
    take(text.data(), text.size());
    return text;
  }
  template <class T>
  void get_list(std::vector<T>& values) {
    values.resize(length(sizeof(T)));
    take(values.data(), values.size() * sizeof(T));
  }
  [[nodiscard]] bool at_end() const { return position_ == bytes_.size(); }

 private:
  std::size_t length(std::size_t element) {
    const auto count = get<std::uint64_t>();
    if (count > (bytes_.size() - position_) / element)
      throw CommunicationError("a record of another rank is cut short");
    return static_cast<std::size_t>(count);
  }
  void take(void* data, std::size_t size) {
    if (size > bytes_.size() - position_)
      throw CommunicationError("a record of another rank is cut short");
    if (size) std::memcpy(data, bytes_.data() + position_, size);
    position_ += size;
  }
  const std::vector<std::byte>& bytes_;
  std::size_t position_ = 0;
};

/// Records one behind the other: a fold in which each rank gets what all have said.
inline void concatenate(std::span<const std::vector<std::byte>> records,
                        std::vector<std::byte>& all) {
  for (const auto& record : records) all.insert(all.end(), record.begin(), record.end());
}

/// A record that is one plain value.
template <class T>
std::vector<std::byte> plain_record(const T& value) {
  std::vector<std::byte> record;
  RecordWriter(record).put(value);
  return record;
}
template <class T>
T read_plain(const std::vector<std::byte>& record) {
  return RecordReader(record).get<T>();
}

}  // namespace ration
