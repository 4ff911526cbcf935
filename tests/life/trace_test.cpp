// The timeline that trace writes.

#include <ration/trace.hpp>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include <unistd.h>

#include <nlohmann/json.hpp>

#include "support/throws.hpp"

namespace ration::test {
namespace {

class Trace : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }

  nlohmann::json written() const {
    std::ifstream file(path_);
    return nlohmann::json::parse(file);
  }

  const std::string path_ =
      testing::TempDir() + "ration_trace_" + std::to_string(::getpid()) + ".json";
};

TEST_F(Trace, HasGatherReduceAndUpdateSpansPerRankAndStream) {
  for (const auto mode : {ThreadsOptions::Mode::direct, ThreadsOptions::Mode::streams}) {
    trace::start();
    with_ranks(4,
               [](const ProcessGroup& group) {
                 TinyTrainer trainer(group, {.config = {.stage = 3}});
                 for (int i = 0; i < 3; ++i) trainer.step();
               },
               {.mode = mode});
    trace::write(path_);
    const nlohmann::json json = written();
    std::map<int, std::set<std::string>> spans;  // by rank: "stream/what"
    std::map<std::pair<int, int>, std::string> streams;
    std::set<std::string> processes;
    std::set<std::string> units;
    for (const auto& event : json.at("traceEvents")) {
      const int rank = event.at("pid");
      if (event.at("ph") == "M") {
        if (event.at("name") == "process_name") processes.insert(event["args"]["name"]);
        if (event.at("name") == "thread_name")
          streams[{rank, event["tid"]}] = event["args"]["name"];
        continue;
      }
      EXPECT_EQ(event.at("ph"), "X");
      EXPECT_GE(event.at("ts").get<double>(), 0.0);
      EXPECT_GE(event.at("dur").get<double>(), 0.0);
      const std::string name = event["name"];
      spans[rank].insert(streams.at({rank, event["tid"]}) + "/" + name);
      if (name == "update") units.insert(event["args"]["of"]);
    }
    EXPECT_THAT(processes, testing::IsSupersetOf({"rank 0", "rank 1", "rank 2", "rank 3"}));
    for (int rank = 0; rank < 4; ++rank) {
      EXPECT_THAT(spans[rank], testing::IsSupersetOf({"compute/gather", "gather/all_gather",
                                                      "reduce/reduce_scatter", "compute/update",
                                                      "compute/header"}));
    }
    EXPECT_THAT(units, testing::ElementsAre("embedding", "h.0", "h.1", "h.2", "ln_f"));
  }
}

TEST_F(Trace, RecordsOnlyBetweenStartAndWrite) {
  with_ranks(1, [](const ProcessGroup& group) { TinyTrainer(group, {}).step(); });
  trace::start();
  trace::write(path_);
  EXPECT_TRUE(written().at("traceEvents").empty());
  with_ranks(1, [](const ProcessGroup& group) { TinyTrainer(group, {}).step(); });
  trace::start();
  trace::write(path_);
  EXPECT_TRUE(written().at("traceEvents").empty());
}

TEST_F(Trace, OfAnyUnitNameIsValid) {
  trace::start();
  with_ranks(1, [](const ProcessGroup& group) {
    std::string cut = "u";  // its 47 bytes end within a character
    while (cut.size() < 80) cut += "\u00e9";
    TinyTrainer trainer(group, {.model = {{cut, {{"w", {3}}}},
                                          {"quote \" backslash \\ \x01", {{"v", {3}}}},
                                          {"no UTF-8 \xff", {{"u", {3}}}}}});
    trainer.step();
  });
  trace::write(path_);
  EXPECT_FALSE(written().at("traceEvents").empty());
}

TEST_F(Trace, ThatCannotBeWrittenIsAnIoErrorWithThePath) {
  for (const std::string path : {"/nowhere/trace.json", "/dev/full"}) {
    trace::start();
    with_ranks(1, [](const ProcessGroup& group) { TinyTrainer(group, {}).step(); });
    EXPECT_THAT(thrown<IoError>([&] { trace::write(path); }), testing::HasSubstr(path));
  }
}

}  // namespace
}  // namespace ration::test
