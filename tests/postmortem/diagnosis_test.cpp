// Jobs that fail in every way, and what their records say of it.

#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "failed_job.hpp"
#include "postmortem/diagnosis.hpp"
#include "support/deadline.hpp"

namespace ration::test {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using tools::Diagnosis;
using tools::Finding;

Diagnosis diagnosis_of(const RecordFolder& folder) {
  return tools::diagnose(tools::read_job(folder.path()));
}

TEST(Diagnosis, OfAJobThatIsFineIsEmpty) {
  const RecordFolder folder;
  run_failing_job(3, [](int, Communicator& c) {
    const auto stream = c.make_stream("test", 64);
    for (int i = 0; i < 2000; ++i) all_reduce(c, *stream, "x");
  });
  const Diagnosis diagnosis = diagnosis_of(folder);
  EXPECT_TRUE(diagnosis.findings.empty()) << diagnosis.findings.front().text;
  EXPECT_TRUE(diagnosis.waiting.empty());
}

TEST(Diagnosis, NamesTheRankThatDivergedAndBothOperations) {
  const RecordFolder folder;
  run_failing_job(4, [](int rank, Communicator& c) {
    const auto stream = c.make_stream("test", 64);
    all_reduce(c, *stream, "h.0");
    rank == 2 ? all_reduce(c, *stream, "h.7", 5) : all_reduce(c, *stream, "h.1", 7);
  });
  const Diagnosis diagnosis = diagnosis_of(folder);
  ASSERT_GE(diagnosis.findings.size(), 1u);
  const Finding& finding = diagnosis.findings[0];
  EXPECT_EQ(finding.kind, Finding::Kind::diverged);
  EXPECT_THAT(finding.ranks, ElementsAre(2));
  EXPECT_EQ(finding.text,
            "rank 2 called all_reduce #1 \"h.7\" (f64 x 5) of world where ranks 0, 1, 3 called "
            "all_reduce #1 \"h.1\" (f64 x 7) of world");
}

TEST(Diagnosis, OfTwoRanksThatDivergeNamesBoth) {
  const RecordFolder folder;
  run_failing_job(2, [](int rank, Communicator& c) {
    const auto stream = c.make_stream("test", 64);
    all_reduce(c, *stream, rank == 0 ? "a" : "b");
  });
  const Finding finding = diagnosis_of(folder).findings.at(0);
  EXPECT_THAT(finding.ranks, ElementsAre(0, 1));
  EXPECT_THAT(finding.text, HasSubstr("no side has the majority"));
}

// The operations that differed are kept no longer; the histories tell.
TEST(Diagnosis, KnowsThatRanksDivergedLongAgo) {
  const RecordFolder folder;
  std::vector<RecordingCommunicator> ranks;  // each alone: as if nobody had checked
  for (int rank = 0; rank < 3; ++rank) ranks.push_back(make_recording(make_threads(1)[0]));
  for (int rank = 0; rank < 3; ++rank) {
    Communicator& c = *ranks[static_cast<std::size_t>(rank)].communicator;
    const auto stream = c.make_stream("test", 64);
    for (int i = 0; i < 3000; ++i) all_reduce(c, *stream, i == 7 && rank == 1 ? "other" : "x");
  }
  for (int rank = 0; rank < 3; ++rank) {
    write_postmortem(*ranks[static_cast<std::size_t>(rank)].recording, rank, 3, "");
  }
  const Diagnosis diagnosis = diagnosis_of(folder);
  ASSERT_EQ(diagnosis.findings.size(), 1u);
  EXPECT_EQ(diagnosis.findings[0].kind, Finding::Kind::diverged);
  EXPECT_THAT(diagnosis.findings[0].ranks, ElementsAre(1));
  EXPECT_THAT(diagnosis.findings[0].text,
              HasSubstr("rank 1 had called other operations than ranks 0, 2 before all_reduce "
                        "#1976 \"x\""));
}

TEST(Diagnosis, NamesTheRankThatStoppedAndWhatTheOthersWaitedIn) {
  const WithTimeout timeout(300ms);
  const RecordFolder folder;
  run_failing_job(3, [](int rank, Communicator& c) {
    const auto stream = c.make_stream("test", 64);
    for (int i = 0; i < (rank == 1 ? 5 : 6); ++i) all_reduce(c, *stream, "x");
  });
  const Diagnosis diagnosis = diagnosis_of(folder);
  ASSERT_GE(diagnosis.findings.size(), 2u);
  EXPECT_EQ(diagnosis.findings[0].kind, Finding::Kind::stopped);
  EXPECT_THAT(diagnosis.findings[0].ranks, ElementsAre(1));
  EXPECT_EQ(diagnosis.findings[0].text,
            "rank 1 never came to all_reduce #5 \"x\" (f64 x 1) of world, in which ranks 0, 2 "
            "waited; it called all_reduce #4 \"x\" (f64 x 1) of world last");
  EXPECT_EQ(diagnosis.findings[1].kind, Finding::Kind::failed);
  EXPECT_THAT(diagnosis.findings[1].text, HasSubstr("timed out"));
}

// Rank 2 throws; rank 1 waits for it, and rank 0, which is ahead elsewhere, for rank 1.
TEST(Diagnosis, DoesNotBlameARankThatItselfWaited) {
  const RecordFolder folder;
  run_failing_job(3, [](int rank, Communicator& c) {
    const auto first = c.split(rank == 0 ? 1 : 0, 0);   // ranks 1, 2
    const auto second = c.split(rank == 2 ? 1 : 0, 0);  // ranks 0, 1
    const auto stream = c.make_stream("test", 64);
    if (rank == 2) throw InvalidArgument("rank 2: parameter \"w\": boom");
    if (rank == 1) all_reduce(*first, *stream, "a");
    all_reduce(*second, *stream, "b");
  });
  const Diagnosis diagnosis = diagnosis_of(folder);
  ASSERT_GE(diagnosis.findings.size(), 1u);
  for (const Finding& finding : diagnosis.findings) EXPECT_THAT(finding.ranks, ElementsAre(2));
  EXPECT_EQ(diagnosis.findings.back().kind, Finding::Kind::failed);
  EXPECT_EQ(diagnosis.findings.back().text, "rank 2 failed first: rank 2: parameter \"w\": boom");
}

TEST(Diagnosis, FindsRanksThatWaitForEachOther) {
  const WithTimeout timeout(300ms);
  const RecordFolder folder;
  run_failing_job(2, [](int rank, Communicator& c) {
    const auto one = c.split(0, 0);
    const auto two = c.split(0, 0);
    const auto stream = c.make_stream("test", 64);
    all_reduce(rank == 0 ? *one : *two, *stream, "x");
    all_reduce(rank == 0 ? *two : *one, *stream, "x");
  });
  const Finding finding = diagnosis_of(folder).findings.at(0);
  EXPECT_EQ(finding.kind, Finding::Kind::deadlocked);
  EXPECT_THAT(finding.ranks, ElementsAre(0, 1));
  EXPECT_THAT(finding.text, HasSubstr("rank 0 waited in all_reduce #0 \"x\" (f64 x 1) of "
                                      "world/0:0 for rank 1; rank 1 waited in all_reduce #0"));
}

// That rank 0 then waits elsewhere, for both, says nothing more.
TEST(Diagnosis, BlamesNobodyForWaitingWhereRanksDiverged) {
  const WithTimeout timeout(300ms);
  const RecordFolder folder;
  run_failing_job(3, [](int rank, Communicator& c) {
    const auto stream = c.make_stream("test", 64);
    Bytes result;
    if (rank == 0) {
      c.control().fold(
          "save", {}, [](std::span<const Bytes>, Bytes&) {}, result, "save");
    } else {
      all_reduce(c, *stream, rank == 1 ? "a" : "b");
    }
  });
  const Diagnosis diagnosis = diagnosis_of(folder);
  ASSERT_EQ(diagnosis.findings.size(), 2u);
  EXPECT_EQ(diagnosis.findings[0].kind, Finding::Kind::diverged);
  EXPECT_THAT(diagnosis.findings[0].ranks, ElementsAre(1, 2));
  EXPECT_EQ(diagnosis.findings[1].kind, Finding::Kind::failed);
}

TEST(Diagnosis, NamesRanksThatLeftNoRecord) {
  const WithTimeout timeout(300ms);
  const RecordFolder folder;
  run_failing_job(4, [](int rank, Communicator& c) {
    const auto stream = c.make_stream("test", 64);
    if (rank != 2) all_reduce(c, *stream, "x");
  });
  std::filesystem::remove(folder.file("rank-00002.json"));
  const Diagnosis diagnosis = diagnosis_of(folder);
  EXPECT_EQ(diagnosis.findings.at(0).kind, Finding::Kind::no_record);
  EXPECT_THAT(diagnosis.findings[0].ranks, ElementsAre(2));
  EXPECT_THAT(diagnosis.findings[0].text, HasSubstr("rank 2 left no record"));
  EXPECT_THAT(diagnosis.waiting,
              ElementsAre("ranks 0, 1, 3 waited in all_reduce #0 \"x\" (f64 x 1) of world"));
}

TEST(Diagnosis, TellsARanksOwnFailureFromOneItHeardOf) {
  const auto [c, recording] = make_recording(make_threads(1)[0]);
  {
    const RecordFolder folder;
    write_postmortem(*recording, 0, 3, "rank 1 has died: its connection was closed");
    write_postmortem(*recording, 2, 3, "rank 1 has died: its connection was closed");
    const Finding finding = diagnosis_of(folder).findings.back();
    EXPECT_THAT(finding.ranks, ElementsAre(1));
    EXPECT_EQ(finding.text, "rank 0 heard first: rank 1 has died: its connection was closed");
  }
  const RecordFolder folder;
  write_postmortem(*recording, 0, 3, "rank 2: no such file");
  write_postmortem(*recording, 1, 3, "rank 2: no such file");
  write_postmortem(*recording, 2, 3, "no such file");  // the last to write is the first to fail
  const Finding finding = diagnosis_of(folder).findings.back();
  EXPECT_THAT(finding.ranks, ElementsAre(2));
  EXPECT_EQ(finding.text, "rank 2 failed first: no such file");
}

TEST(Diagnosis, ComparesFolds) {
  const WithTimeout timeout(300ms);
  const Control::Combine nothing = [](std::span<const Bytes>, Bytes&) {};
  {
    const RecordFolder folder;
    run_failing_job(3, [&](int rank, Communicator& c) {
      Bytes result;
      const char* what = rank == 0 ? "header of save 3" : "header of step 3";
      c.control().fold("step", {}, nothing, result, what);
    });
    const Finding finding = diagnosis_of(folder).findings.at(0);
    EXPECT_EQ(finding.text,
              "rank 0 called fold #0 of channel step \"header of save 3\" of world where ranks 1, "
              "2 called fold #0 of channel step \"header of step 3\" of world");
  }
  const RecordFolder folder;
  run_failing_job(3, [&](int rank, Communicator& c) {
    Bytes result;
    if (rank != 2) c.control().fold("save", {}, nothing, result, "save of step 3");
  });
  const Finding finding = diagnosis_of(folder).findings.at(0);
  EXPECT_EQ(finding.kind, Finding::Kind::stopped);
  EXPECT_EQ(finding.text,
            "rank 2 never came to fold #0 of channel save \"save of step 3\" of world, in which "
            "ranks 0, 1 waited; it had not called any operation");
}

TEST(Diagnosis, ComparesMessagesOfAPair) {
  const WithTimeout timeout(300ms);
  const RecordFolder folder;
  std::array<std::int64_t, 3> values{};  // a send's memory is read when the receiver comes
  run_failing_job(3, [&](int rank, Communicator& c) {
    const auto stream = c.make_stream("test", 64);
    std::int64_t& value = values.at(static_cast<std::size_t>(rank));
    const auto pair = [&](OperationKind kind, int peer) {
      c.submit(*stream, {.kind = kind,
                         .count = 1,
                         .type = DType::i64,
                         .send = &value,
                         .recv = &value,
                         .peer = peer,
                         .tag = "m"});
      stream->synchronize();
    };
    if (rank == 0) pair(OperationKind::send, 2);
    if (rank == 2) pair(OperationKind::recv, 0);
    if (rank == 2) pair(OperationKind::recv, 0);
  });
  const Finding finding = diagnosis_of(folder).findings.at(0);
  EXPECT_EQ(finding.kind, Finding::Kind::stopped);
  EXPECT_THAT(finding.ranks, ElementsAre(0));
  EXPECT_THAT(finding.text, HasSubstr("never came to recv #1 \"m\" (i64 x 1, from 0) of world, in "
                                      "which rank 2 waited"));
}

TEST(Diagnosis, NamesManyRanksShortly) {
  EXPECT_EQ(tools::name_ranks({3}), "rank 3");
  EXPECT_EQ(tools::name_ranks({0, 1}), "ranks 0, 1");
  EXPECT_EQ(tools::name_ranks({0, 1, 2, 7, 9, 10}), "ranks 0-2, 7, 9, 10");
}

}  // namespace
}  // namespace ration::test
