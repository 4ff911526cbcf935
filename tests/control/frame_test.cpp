// Frames: whole again however they are cut, and nothing but refused whatever arrives instead.

#include <algorithm>
#include <array>
#include <cstring>
#include <random>

#include <gtest/gtest.h>

#include <ration/error.hpp>

#include "control/bytes.hpp"
#include "control/tcp/protocol.hpp"

namespace ration::tcp {
namespace {

/// One frame of each kind.
std::vector<Bytes> samples() {
  std::vector<Bytes> frames;
  const auto add = [&](auto message) { frames.push_back(*encode(std::move(message))); };
  const FoldKey key{7, "step", 41};
  add(Hello{.rank = 3, .size = 8, .process = {"host", 12}});
  add(Welcome{.process = {"host", 12}});
  add(Refusal{.final = true, .text = "no"});
  add(Seated{});
  add(Met{});
  add(Heartbeat{});
  add(Opening{7, {3, 1, 2}});
  Record record;
  record.key = key;
  record.leader = 3;
  record.member = 1;
  record.size = 3;
  record.what = "a step";
  record.bytes = bytes_of("a record");
  add(record);
  Combine combine;
  combine.key = key;
  combine.records = {bytes_of("one"), {}, bytes_of("three")};
  add(combine);
  Result result;
  result.key = key;
  result.failed = true;
  result.failure = {Failure::Kind::timeout, "late"};
  result.bytes = bytes_of("a result");
  add(result);
  Late late;
  late.key = key;
  late.what = "a step";
  late.seconds = 1.5;
  late.names = {3, 1, 2};
  add(late);
  add(Patience{key});
  add(Leaving{7, 3, 1, 3});
  add(JobFailure{{Failure::Kind::io_error, "text"}});
  add(Departing{});
  add(Departed{{1, 5}});
  return frames;
}

std::vector<Frame> decode_all(FrameDecoder& decoder, std::span<const std::byte> bytes) {
  std::vector<Frame> frames;
  while (auto frame = decoder.next(bytes)) frames.push_back(std::move(*frame));
  return frames;
}

TEST(Frames, AreWholeAgainHoweverTheyAreCut) {
  Bytes stream;
  const auto frames = samples();
  ASSERT_EQ(frames.size(), kFrameKinds);
  for (const Bytes& frame : frames) stream.insert(stream.end(), frame.begin(), frame.end());
  for (const std::size_t step : {1UL, 2UL, 3UL, 7UL, 64UL, stream.size()}) {
    FrameDecoder decoder(kMostOfRank);
    std::vector<Frame> decoded;
    for (std::size_t at = 0; at < stream.size(); at += step) {
      const auto piece = std::span(stream).subspan(at, std::min(step, stream.size() - at));
      for (Frame& frame : decode_all(decoder, piece)) decoded.push_back(std::move(frame));
    }
    ASSERT_EQ(decoded.size(), frames.size());
    for (std::size_t i = 0; i < frames.size(); ++i) {
      EXPECT_EQ(static_cast<std::size_t>(decoded[i].kind), i);
      EXPECT_TRUE(std::ranges::equal(decoded[i].payload, std::span(frames[i]).subspan(kFrameHead)));
      EXPECT_NO_THROW(check_decodes(decoded[i]));
    }
  }
}

TEST(Frames, SayWhatWasSaid) {
  const auto frames = samples();
  const auto decoded = [&]<class T>(T /*kind*/) {
    FrameDecoder decoder(kMostOfRank);
    std::span<const std::byte> input(frames[static_cast<std::size_t>(T::kKind)]);
    return decode<T>(*decoder.next(input));
  };
  EXPECT_EQ(decoded(Hello{}).rank, 3);
  EXPECT_EQ(decoded(Hello{}).process.host, "host");
  EXPECT_TRUE(decoded(Refusal{}).final);
  EXPECT_EQ(decoded(Opening{}).names, (std::vector<int>{3, 1, 2}));
  EXPECT_EQ(decoded(Record{}).key.channel, "step");
  EXPECT_EQ(decoded(Record{}).key.number, 41U);
  EXPECT_EQ(text_of(decoded(Record{}).bytes), "a record");
  EXPECT_EQ(decoded(Combine{}).records.size(), 3U);
  EXPECT_EQ(text_of(decoded(Combine{}).records[2]), "three");
  EXPECT_TRUE(decoded(Result{}).failed);
  EXPECT_EQ(decoded(Result{}).failure.kind, Failure::Kind::timeout);
  EXPECT_EQ(decoded(Late{}).seconds, 1.5);
  EXPECT_EQ(decoded(JobFailure{}).failure.text, "text");
}

TEST(Frames, OfAnotherKindOrLengthAreRefused) {
  for (const Bytes& bytes : samples()) {
    FrameDecoder decoder(kMostOfRank);
    std::span<const std::byte> input(bytes);
    Frame frame = *decoder.next(input);
    frame.payload.push_back(std::byte{0});
    EXPECT_THROW(check_decodes(frame), CommunicationError) << static_cast<int>(frame.kind);
    frame.payload.pop_back();
    if (frame.kind != FrameKind::met) {
      EXPECT_THROW(decode<Met>(frame), CommunicationError);
    }
    while (!frame.payload.empty()) {
      frame.payload.pop_back();
      EXPECT_THROW(check_decodes(frame), CommunicationError) << static_cast<int>(frame.kind);
    }
  }
}

TEST(Frames, LongerThanAllowedAreRefusedByTheirHead) {
  const Bytes frame = *encode(Refusal{.text = std::string(300, 'x')});
  FrameDecoder stranger(kMostOfStranger);
  std::span<const std::byte> head = std::span(frame).first(kFrameHead);
  EXPECT_THROW(stranger.next(head), CommunicationError);
  FrameDecoder rank(kMostOfRank);
  std::span<const std::byte> all(frame);
  EXPECT_TRUE(rank.next(all));
}

TEST(Frames, TakeNoMemoryForWhatIsOnlyAnnounced) {
  // A gigabyte announced by each of 10,000: it would not fit.
  std::vector<FrameDecoder> decoders(10'000, FrameDecoder(kMostOfRank));
  std::array<std::byte, kFrameHead + 1> bytes{};
  const auto length = static_cast<std::uint32_t>(kMostOfRank);
  std::memcpy(bytes.data(), &length, sizeof length);
  for (FrameDecoder& decoder : decoders) {
    std::span<const std::byte> input(bytes);
    EXPECT_FALSE(decoder.next(input));
    EXPECT_EQ(decoder.wanted(), kMostOfRank - 1);
  }
}

TEST(Frames, AHelloFitsWhatAStrangerMaySend) {
  const Hello hello{.process = {std::string(kMostHostName, 'h'), 1}};
  EXPECT_LE(encode(hello)->size(), kMostOfStranger);
}

// What arrives is what was sent, with bytes changed, cut off, doubled or put in; or anything.
TEST(Frames, OfRandomAndMutatedBytesHarmNothing) {
  constexpr int kRounds = 200'000;
  const auto frames = samples();
  std::mt19937_64 random(2026);
  int decoded = 0;
  int refused = 0;
  for (int round = 0; round < kRounds; ++round) {
    Bytes bytes = frames[random() % frames.size()];
    if (round % 4 == 0) {
      bytes.resize(random() % 64);
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    }
    for (auto changes = random() % 4; changes > 0 && !bytes.empty(); --changes) {
      const auto at = bytes.begin() + static_cast<std::ptrdiff_t>(random() % bytes.size());
      switch (random() % 4) {
        case 0:
          *at = static_cast<std::byte>(random());
          break;
        case 1:
          bytes.erase(at, bytes.end());
          break;
        case 2:
          bytes.insert(at, static_cast<std::byte>(random()));
          break;
        default:
          bytes.erase(at);
      }
    }
    FrameDecoder decoder(round % 2 ? kMostOfRank : kMostOfStranger);
    std::span<const std::byte> input(bytes);
    try {
      while (const auto frame = decoder.next(input)) {
        check_decodes(*frame);
        ++decoded;
      }
    } catch (const CommunicationError&) {
      ++refused;
    }
  }
  EXPECT_GT(decoded, kRounds / 10);
  EXPECT_GT(refused, kRounds / 10);
}

}  // namespace
}  // namespace ration::tcp
