// What a rank remembers of its operations and folds.

#include <chrono>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <ration/error.hpp>

#include "comm/decorators/flight_log.hpp"
#include "comm/threads/threads.hpp"
#include "elements.hpp"
#include "support/deadline.hpp"
#include "support/ranks.hpp"

namespace ration {
namespace {

using namespace std::chrono_literals;
using Mode = ThreadsOptions::Mode;

class Recorded : public testing::TestWithParam<Mode> {
 protected:
  [[nodiscard]] std::vector<std::shared_ptr<Communicator>> threads(int ranks) const {
    return make_threads(ranks, {.mode = GetParam()});
  }
};

Operation all_reduce(std::int64_t& value, const char* tag) {
  return {.kind = OperationKind::all_reduce,
          .count = 1,
          .type = DType::i64,
          .send = &value,
          .recv = &value,
          .tag = tag};
}

void no_result(std::span<const Bytes>, Bytes&) {}

TEST_P(Recorded, CountsBytesPerKind) {
  const auto communicators = threads(4);
  run_ranks(4, [&](int rank) {
    const auto [c, recording] = make_recording(communicators[z(rank)]);
    const auto part = c->split(rank / 2, 0);  // recorded too
    const auto stream = c->make_stream("test");
    Buffer whole(DType::bf16, 400);
    Buffer shard(DType::bf16, 100);
    for (int i = 0; i < 3; ++i) {
      const Sequence sequence = c->submit(*stream, {.kind = OperationKind::reduce_scatter,
                                                    .count = 100,
                                                    .type = DType::bf16,
                                                    .send = whole.data(),
                                                    .send_type = DType::bf16,
                                                    .recv = shard.data(),
                                                    .recv_type = DType::bf16,
                                                    .tag = "h.0"});
      c->release(*stream, sequence);
    }
    const Sequence sequence = part->submit(*stream, {.kind = OperationKind::all_gather,
                                                     .count = 100,
                                                     .type = DType::bf16,
                                                     .send = shard.data(),
                                                     .recv = whole.data(),
                                                     .tag = "h.1"});
    part->release(*stream, sequence);
    stream->synchronize();
    EXPECT_EQ(recording->bytes(OperationKind::reduce_scatter), 3 * 100 * 2 * 3);
    EXPECT_EQ(recording->operations(OperationKind::reduce_scatter), 3);
    EXPECT_EQ(recording->bytes(OperationKind::all_gather), 100 * 2 * 1);
    EXPECT_EQ(recording->bytes(OperationKind::all_reduce), 0);
    EXPECT_EQ(c->sent_bytes() + part->sent_bytes(), 3 * 600 + 200);
    const auto last = nlohmann::json::parse(recording->json());
    ASSERT_EQ(last.size(), 5);  // and the split
    EXPECT_EQ(last[4]["kind"], "all_gather");
    EXPECT_EQ(last[4]["tag"], "h.1");
    EXPECT_EQ(last[4]["sent_bytes"], 200);
  });
}

TEST(Recording, KeepsTheLast1024) {
  const auto [c, recording] = make_recording(make_threads(1)[0]);
  const auto stream = c->make_stream("test");
  for (int i = 0; i < 1500; ++i) c->submit(*stream, {.kind = OperationKind::barrier});
  stream->synchronize();
  const auto last = recording->last();
  ASSERT_EQ(last.size(), 1024);
  for (std::size_t i = 0; i < last.size(); ++i) EXPECT_EQ(last[i].sequence, 476 + i);
  EXPECT_EQ(recording->operations(OperationKind::barrier), 1500);
}

TEST_P(Recorded, SaysWhatIsDoneAndWhen) {
  const auto communicators = threads(2);
  run_ranks(2, [&](int rank) {
    const auto [c, recording] = make_recording(communicators[z(rank)]);
    const auto stream = c->make_stream("test");
    std::int64_t value = rank;
    c->submit(*stream, all_reduce(value, "a"));
    stream->synchronize();
    const auto last = recording->last();
    ASSERT_EQ(last.size(), 1);
    EXPECT_EQ(last[0].group, "world");
    EXPECT_EQ(last[0].kind, "all_reduce");
    EXPECT_EQ(last[0].type, "i64");
    EXPECT_EQ(last[0].count, 1);
    EXPECT_EQ(last[0].tag, "a");
    EXPECT_EQ(last[0].state, OperationState::done);
    EXPECT_GE(last[0].submitted_ms, 0);
    EXPECT_GE(last[0].ended_ms, last[0].submitted_ms);
  });
}

TEST_P(Recorded, SaysWhatWasNeverDone) {
  const WithTimeout timeout(300ms);
  const auto communicators = threads(2);
  run_ranks(2, [&](int rank) {
    const auto [c, recording] = make_recording(communicators[z(rank)]);
    auto stream = c->make_stream("test");
    std::int64_t value = rank;
    c->submit(*stream, all_reduce(value, "a"));
    stream->synchronize();
    if (rank == 1) return;
    c->submit(*stream, all_reduce(value, "b"));
    c->submit(*stream, all_reduce(value, "c"));
    EXPECT_EQ(recording->last()[1].state, OperationState::submitted);
    EXPECT_LT(recording->last()[1].ended_ms, 0);
    EXPECT_THROW(stream->synchronize(), CommunicationError);
    stream.reset();
    const auto last = recording->last();
    ASSERT_EQ(last.size(), 3);
    EXPECT_EQ(last[0].state, OperationState::done);
    EXPECT_EQ(last[1].state, OperationState::failed);
    EXPECT_EQ(last[2].state, OperationState::failed);  // behind it in its stream
  });
}

TEST(Recording, OutlivesItsCommunicator) {
  std::shared_ptr<Recording> recording;
  {
    auto made = make_recording(make_threads(1)[0]);
    recording = made.recording;
    const auto stream = made.communicator->make_stream("test");
    made.communicator->submit(*stream, {.kind = OperationKind::barrier});
    made.communicator.reset();  // before its stream, as an exception may do
    stream->synchronize();
  }
  ASSERT_EQ(recording->last().size(), 1);
  EXPECT_EQ(recording->last()[0].state, OperationState::done);
}

TEST(Recording, KeepsFoldsByChannel) {
  const auto [c, recording] = make_recording(make_threads(1)[0]);
  Bytes result;
  c->control().fold("step", Bytes(10), no_result, result, "header of step 0");
  c->control().fold("save", Bytes(20), no_result, result, "save of step 0");
  EXPECT_THROW(c->control().fold(
                   "step", {}, [](std::span<const Bytes>, Bytes&) { throw InvalidArgument("no"); },
                   result, "header of step 1"),
               InvalidArgument);
  const auto last = recording->last();
  ASSERT_EQ(last.size(), 3);
  for (const RecordedOperation& fold : last) EXPECT_EQ(fold.kind, "fold");
  EXPECT_EQ(last[0].channel, "step");
  EXPECT_EQ(last[0].tag, "header of step 0");
  EXPECT_EQ(last[0].sent_bytes, 10);
  EXPECT_EQ(last[0].state, OperationState::done);
  EXPECT_EQ(last[1].channel, "save");
  EXPECT_EQ(last[1].sequence, 0);
  EXPECT_EQ(last[2].sequence, 1);
  EXPECT_EQ(last[2].state, OperationState::failed);
}

TEST_P(Recorded, NamesPartsBySplitAndColour) {
  const auto communicators = threads(4);
  run_ranks(4, [&](int rank) {
    const auto [c, recording] = make_recording(communicators[z(rank)]);
    const auto halves = c->split(rank / 2, 0);
    const auto all = c->split(0, -rank);
    const auto alone = halves->split(rank, 0);
    const auto groups = recording->groups();
    ASSERT_EQ(groups.size(), 4);
    EXPECT_EQ(groups[0].name, "world");
    EXPECT_EQ(groups[1].name, "world/0:" + std::to_string(rank / 2));
    EXPECT_EQ(groups[1].rank, rank % 2);
    EXPECT_EQ(groups[1].size, 2);
    EXPECT_EQ(groups[2].name, "world/1:0");
    EXPECT_EQ(groups[2].rank, 3 - rank);
    EXPECT_EQ(groups[3].name, groups[1].name + "/0:" + std::to_string(rank));
    const auto last = recording->last();
    ASSERT_EQ(last.size(), 3);
    EXPECT_EQ(last[2].channel, "split");
    EXPECT_EQ(last[2].group, groups[1].name);
    EXPECT_EQ(last[1].sequence, 1);
  });
}

TEST(Recording, ForgetsGroupsThatAreNoMore) {
  const auto [c, recording] = make_recording(make_threads(1)[0]);
  const auto stream = c->make_stream("test");
  for (int i = 0; i < 5000; ++i) {
    c->split(0, 0)->submit(*stream, {.kind = OperationKind::barrier});
    stream->synchronize();
  }
  const auto last = recording->last();
  EXPECT_LE(recording->groups().size(), 1025);
  EXPECT_EQ(last.back().group, "world/4999:0");
  for (std::size_t i = 0; i < last.size(); ++i) {
    EXPECT_EQ(last[i].kind, i % 2 ? "barrier" : "fold");
    EXPECT_EQ(last[i].group, i % 2 ? "world/" + std::to_string(4488 + i / 2) + ":0" : "world");
  }
}

TEST(Recording, KeepsGroupsThatAreOnlyIdle) {
  const auto [c, recording] = make_recording(make_threads(1)[0]);
  const auto stream = c->make_stream("test");
  const auto idle = c->split(0, 0);
  for (int i = 0; i < 1500; ++i) c->submit(*stream, {.kind = OperationKind::barrier});
  const auto other = c->split(0, 0);
  idle->submit(*stream, {.kind = OperationKind::barrier});
  stream->synchronize();
  EXPECT_EQ(recording->groups().size(), 3);
  EXPECT_EQ(recording->last().back().group, "world/0:0");
}

// The first is done when another, which is not, has its place in the ring.
TEST(Recording, EndsNothingInPlaceOfWhatItForgot) {
  const auto log = std::make_shared<FlightLog>();
  const auto group = log->add_group("world", 0, 1);
  const Operation barrier{.kind = OperationKind::barrier};
  FlightLog::Pending first = log->begin(*group, barrier);
  for (int i = 0; i < 1023; ++i) log->begin(*group, barrier).done();
  FlightLog::Pending last = log->begin(*group, barrier);
  first.done();
  EXPECT_EQ(log->last().back().state, OperationState::submitted);
  last.done();
  EXPECT_EQ(log->last().back().state, OperationState::done);
}

// Numbered as the backend's messages are.
TEST_P(Recorded, CountsSendsByPeer) {
  const auto communicators = threads(3);
  run_ranks(3, [&](int rank) {
    const RecordingCommunicator recorded = make_recording(communicators[z(rank)]);
    Communicator& c = *recorded.communicator;
    const auto stream = c.make_stream("test");
    std::int64_t value = rank;
    const auto pair = [&](OperationKind kind, int peer) {
      c.submit(*stream, {.kind = kind,
                         .count = 1,
                         .type = DType::i64,
                         .send = &value,
                         .recv = &value,
                         .peer = peer});
    };
    if (rank == 0) {
      for (const int peer : {1, 2, 1}) pair(OperationKind::send, peer);
    } else {
      for (int i = 0; i < 3 - rank; ++i) pair(OperationKind::recv, 0);
    }
    c.submit(*stream, {.kind = OperationKind::barrier});
    stream->synchronize();
    const auto last = recorded.recording->last();
    EXPECT_EQ(last.back().sequence, 0);  // apart
    EXPECT_TRUE(last.back().matched);
    EXPECT_FALSE(last[0].matched);
    if (rank != 0) return;
    EXPECT_EQ(last[0].sequence, 0);
    EXPECT_EQ(last[1].sequence, 0);
    EXPECT_EQ(last[2].sequence, 1);
    EXPECT_EQ(last[2].peer, 1);
  });
}

TEST_P(Recorded, HistoriesAreEqualUntilRanksDiverge) {
  for (const bool checked : {false, true}) {
    const auto communicators = threads(2);
    std::vector<std::vector<RecordedOperation>> last(2);
    run_ranks(2, [&](int rank) {
      const auto [inner, recording] = make_recording(communicators[z(rank)]);
      const auto c = checked ? make_checked(inner) : inner;
      auto stream = c->make_stream("test");
      std::int64_t value = 0;
      c->submit(*stream, all_reduce(value, "a"));
      c->submit(*stream, all_reduce(value, rank == 0 ? "b" : "x"));
      c->submit(*stream, all_reduce(value, "c"));
      EXPECT_THROW(stream->synchronize(), CommunicationError);
      last[z(rank)] = recording->last();
    });
    EXPECT_EQ(last[0][0].history, last[1][0].history);
    EXPECT_NE(last[0][1].history, last[1][1].history);
    EXPECT_NE(last[0][2].history, last[1][2].history);
  }
}

TEST(Recording, CutsALongTagAndStillWritesJson) {
  const auto [c, recording] = make_recording(make_threads(1)[0]);
  const auto stream = c->make_stream("test");
  std::string tag(62, 'x');
  tag += "\xC3\xA4 and more";  // cut in the middle of a letter
  c->submit(*stream, {.kind = OperationKind::barrier, .tag = tag.c_str()});
  EXPECT_EQ(recording->last()[0].tag, tag.substr(0, 63));
  EXPECT_EQ(nlohmann::json::parse(recording->json()).size(), 1);
}

INSTANTIATE_TEST_SUITE_P(Threads, Recorded, testing::Values(Mode::direct, Mode::streams),
                         [](const auto& info) {
                           return info.param == Mode::direct ? "direct" : "streams";
                         });

}  // namespace
}  // namespace ration
