#include "control/tcp/protocol.hpp"

#include <unistd.h>

#include <array>
#include <cstring>
#include <type_traits>

#include <fmt/format.h>
#include <xxhash.h>

#include "core/record.hpp"

namespace ration::tcp {
namespace {

template <class T>
concept HasFields = requires(T& value) {
  value.fields();
};

template <class T>
void put(RecordWriter& writer, T& value);

template <class T>
void put_list(RecordWriter& writer, std::vector<T>& values) {
  if constexpr (std::is_trivially_copyable_v<T>) {
    writer.put_list(values);
  } else {
    writer.put(std::uint64_t{values.size()});
    for (T& value : values) put(writer, value);
  }
}

template <class T>
void put(RecordWriter& writer, T& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    writer.put_text(value);
  } else if constexpr (std::is_same_v<T, Failure>) {
    writer.put(static_cast<std::uint8_t>(value.kind));
    writer.put_text(value.text);
  } else if constexpr (requires { typename T::value_type; }) {
    put_list(writer, value);
  } else if constexpr (HasFields<T>) {
    std::apply([&](auto&... fields) { (put(writer, fields), ...); }, value.fields());
  } else {
    writer.put(value);
  }
}

template <class T>
void get(RecordReader& reader, T& value);

template <class T>
void get_list(RecordReader& reader, std::vector<T>& values) {
  if constexpr (std::is_trivially_copyable_v<T>) {
    reader.get_list(values);
  } else {
    // Not resized to what the sender says: a list is as long as there are bytes for it.
    for (auto left = reader.get<std::uint64_t>(); left > 0; --left)
      get(reader, values.emplace_back());
  }
}

template <class T>
void get(RecordReader& reader, T& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    value = reader.get_text();
  } else if constexpr (std::is_same_v<T, Failure>) {
    const auto kind = reader.get<std::uint8_t>();
    if (kind > static_cast<std::uint8_t>(Failure::Kind::remote_error))
      throw CommunicationError("a failure of no known kind");
    value.kind = static_cast<Failure::Kind>(kind);
    value.text = reader.get_text();
  } else if constexpr (std::is_same_v<T, bool>) {
    value = reader.get<std::uint8_t>() != 0;
  } else if constexpr (requires { typename T::value_type; }) {
    get_list(reader, value);
  } else if constexpr (HasFields<T>) {
    std::apply([&](auto&... fields) { (get(reader, fields), ...); }, value.fields());
  } else {
    value = reader.get<T>();
  }
}

}  // namespace

Process Process::self() {
  std::array<char, kMostHostName + 1> name{};
  if (gethostname(name.data(), kMostHostName) != 0) std::strcpy(name.data(), "unknown");
  return {name.data(), getpid()};
}

std::string Process::text() const {
  return fmt::format("(host {}, pid {})", host, pid);
}

TokenHash TokenHash::of(const std::string& token) {
  const XXH128_hash_t hash = XXH3_128bits(token.data(), token.size());
  return {hash.low64, hash.high64};
}

template <class T>
SharedFrame encode(T message) {
  auto bytes = std::make_shared<Bytes>();
  RecordWriter writer(*bytes);
  writer.put(std::uint32_t{0});
  writer.put(static_cast<std::uint8_t>(T::kKind));
  put(writer, message);
  const auto length = bytes->size() - kFrameHead;
  if (length > kMostOfRank)
    throw InvalidArgument(
        fmt::format("a record of {} bytes: control carries at most {}", length, kMostOfRank));
  const auto head = static_cast<std::uint32_t>(length);
  std::memcpy(bytes->data(), &head, sizeof head);
  return bytes;
}

template <class T>
T decode(const Frame& frame) {
  if (frame.kind != T::kKind)
    throw CommunicationError(fmt::format("a frame of kind {} where kind {} was expected",
                                         static_cast<int>(frame.kind), static_cast<int>(T::kKind)));
  RecordReader reader(frame.payload);
  T message;
  get(reader, message);
  if (!reader.at_end()) throw CommunicationError("a frame holds more than it should");
  return message;
}

template SharedFrame encode(Hello);
template Hello decode(const Frame&);
template SharedFrame encode(Welcome);
template Welcome decode(const Frame&);
template SharedFrame encode(Refusal);
template Refusal decode(const Frame&);
template SharedFrame encode(Seated);
template Seated decode(const Frame&);
template SharedFrame encode(Met);
template Met decode(const Frame&);
template SharedFrame encode(Heartbeat);
template Heartbeat decode(const Frame&);
template SharedFrame encode(Opening);
template Opening decode(const Frame&);
template SharedFrame encode(Record);
template Record decode(const Frame&);
template SharedFrame encode(Combine);
template Combine decode(const Frame&);
template SharedFrame encode(Result);
template Result decode(const Frame&);
template SharedFrame encode(Late);
template Late decode(const Frame&);
template SharedFrame encode(Patience);
template Patience decode(const Frame&);
template SharedFrame encode(Leaving);
template Leaving decode(const Frame&);
template SharedFrame encode(JobFailure);
template JobFailure decode(const Frame&);
template SharedFrame encode(Departing);
template Departing decode(const Frame&);
template SharedFrame encode(Departed);
template Departed decode(const Frame&);

namespace {

template <class T>
void check(const Frame& frame) {
  const SharedFrame again = encode(decode<T>(frame));
  // A bool may have come as any number but 0.
  if (again->size() != kFrameHead + frame.payload.size())
    throw Error("a frame that was decoded is not the same when encoded again");
}

template <class... T>
void check_one_of(const Frame& frame) {
  ((frame.kind == T::kKind ? check<T>(frame) : void()), ...);
}

}  // namespace

void check_decodes(const Frame& frame) {
  check_one_of<Hello, Welcome, Refusal, Seated, Met, Heartbeat, Opening, Record, Combine, Result,
               Late, Patience, Leaving, JobFailure, Departing, Departed>(frame);
}

}  // namespace ration::tcp
