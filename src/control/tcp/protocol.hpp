#pragma once
// What frames say, as types, and their way to bytes and back.

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "control/tcp/frame.hpp"
#include "core/failure.hpp"

namespace ration::tcp {

constexpr std::uint64_t kMagic = 0x3130'6e6f'6974'6172;  // "ration01"
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kMostHostName = 64;

/// A process, as messages name it.
struct Process {
  std::string host;
  std::int64_t pid = 0;

  static Process self();
  /// "(host H, pid P)"
  [[nodiscard]] std::string text() const;
  auto fields() { return std::tie(host, pid); }
};

/// A job's token, hashed.
struct TokenHash {
  std::uint64_t low = 0;
  std::uint64_t high = 0;

  static TokenHash of(const std::string& token);
  bool operator==(const TokenHash&) const = default;
  auto fields() { return std::tie(low, high); }
};

struct Hello {
  static constexpr FrameKind kKind = FrameKind::hello;
  std::uint64_t magic = kMagic;
  std::uint32_t version = kVersion;
  TokenHash token;
  int rank = 0;
  int size = 0;
  Process process;
  auto fields() { return std::tie(magic, version, token, rank, size, process); }
};

struct Welcome {
  static constexpr FrameKind kKind = FrameKind::welcome;
  std::uint64_t magic = kMagic;
  TokenHash token;
  Process process;
  auto fields() { return std::tie(magic, token, process); }
};

struct Refusal {
  static constexpr FrameKind kKind = FrameKind::refusal;
  std::uint64_t magic = kMagic;
  bool final = false;  // the right job: trying again is in vain
  std::string text;
  auto fields() { return std::tie(magic, final, text); }
};

struct Seated {
  static constexpr FrameKind kKind = FrameKind::seated;
  auto fields() { return std::tie(); }
};

struct Met {
  static constexpr FrameKind kKind = FrameKind::met;
  auto fields() { return std::tie(); }
};

struct Heartbeat {
  static constexpr FrameKind kKind = FrameKind::heartbeat;
  auto fields() { return std::tie(); }
};

/// One fold of the job.
struct FoldKey {
  std::uint64_t group = 0;
  std::string channel;
  std::uint64_t number = 0;
  auto fields() { return std::tie(group, channel, number); }
};

struct Opening {
  static constexpr FrameKind kKind = FrameKind::opening;
  std::uint64_t group = 0;
  std::vector<int> names;
  auto fields() { return std::tie(group, names); }
};

struct Record {
  static constexpr FrameKind kKind = FrameKind::record;
  FoldKey key;
  int leader = 0;  // by its number in the job
  int member = 0;  // rank in the group
  int size = 0;    // of the group
  std::string what;
  Bytes bytes;
  auto fields() { return std::tie(key, leader, member, size, what, bytes); }
};

struct Combine {
  static constexpr FrameKind kKind = FrameKind::combine;
  FoldKey key;
  std::vector<Bytes> records;
  auto fields() { return std::tie(key, records); }
};

struct Result {
  static constexpr FrameKind kKind = FrameKind::result;
  FoldKey key;
  bool failed = false;
  Failure failure;
  Bytes bytes;
  auto fields() { return std::tie(key, failed, failure, bytes); }
};

struct Late {
  static constexpr FrameKind kKind = FrameKind::late;
  FoldKey key;
  int member = 0;
  std::string what;
  double seconds = 0;
  std::vector<int> names;
  auto fields() { return std::tie(key, member, what, seconds, names); }
};

struct Patience {
  static constexpr FrameKind kKind = FrameKind::patience;
  FoldKey key;
  auto fields() { return std::tie(key); }
};

struct Leaving {
  static constexpr FrameKind kKind = FrameKind::leaving;
  std::uint64_t group = 0;
  int leader = 0;
  int member = 0;
  int size = 0;
  auto fields() { return std::tie(group, leader, member, size); }
};

struct JobFailure {
  static constexpr FrameKind kKind = FrameKind::failure;
  Failure failure;
  auto fields() { return std::tie(failure); }
};

struct Departing {
  static constexpr FrameKind kKind = FrameKind::departing;
  auto fields() { return std::tie(); }
};

struct Departed {
  static constexpr FrameKind kKind = FrameKind::departed;
  std::vector<int> names;
  auto fields() { return std::tie(names); }
};

template <class T>
SharedFrame encode(T message);

/// Throws CommunicationError when the payload is not that.
template <class T>
T decode(const Frame& frame);

/// For tests: decodes the frame as whatever it says it is, and encodes that again. Throws as decode
/// does, and Error when that is not the same.
void check_decodes(const Frame& frame);

}  // namespace ration::tcp
