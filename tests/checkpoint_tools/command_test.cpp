// `ration merge`, `inspect`, `verify`, `diff`, `reshard` and `import`, as a user starts them.

#include <cstdlib>

#include <malloc.h>
#include <nlohmann/json.hpp>

#include "checkpoint/foreign.hpp"
#include "job/command.hpp"
#include "made.hpp"

namespace ration::test {
namespace {

Outcome ration(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), RATION_COMMAND);
  return run_command(arguments);
}

// One line, and the exit code.
void expect_error(const Outcome& outcome, int exit_code, const std::string& text) {
  EXPECT_EQ(outcome.exit_code, exit_code);
  EXPECT_THAT(outcome.err, testing::HasSubstr(text));
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
}

TEST(CheckpointCommands, HaveHelp) {
  for (const char* name : {"merge", "inspect", "verify", "diff", "reshard", "import"}) {
    const Outcome outcome = ration({name, "--help"});
    EXPECT_EQ(outcome.exit_code, 0);
    EXPECT_THAT(outcome.out, testing::HasSubstr("Exit code"));
    EXPECT_THAT(outcome.out, testing::HasSubstr("--json"));
    EXPECT_EQ(ration({name}).exit_code, 2);
  }
}

TEST(CheckpointCommands, MergeWritesAFile) {
  const Made made(3);
  const std::string output = made.root / "m.safetensors";
  const Outcome outcome = ration({"merge", made.root.path(), "-o", output, "--dtype", "bf16",
                                  "--what", "all", "--max-file-size", "1GB", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto said = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(said["files"], std::vector{output});
  EXPECT_TRUE(std::filesystem::exists(output));
  EXPECT_EQ(outcome.err, "");
  const Outcome view =
      ration({"merge", made.root.path(), "-o", made.root / "view.h5", "--view", "--step", "7"});
  EXPECT_EQ(view.exit_code, 0);
  EXPECT_THAT(view.err, testing::HasSubstr("keep "));
}

// What is merged is larger than what it may take, in one tensor and in all.
TEST(CheckpointCommands, MergeAModelLargerThanItsMemory) {
  constexpr std::size_t kMost = std::size_t{128} << 20;
  constexpr std::int64_t kRows = 5000;
  constexpr std::int64_t kColumns = 9001;
  ck::OptimizerEntry optimizer = made_optimizer();
  optimizer.units = {{.name = "wide",
                      .flats = {flat_of(DType::f32, true, {{"parameter"}, {"exp_avg"}},
                                        {{.name = "w", .shape = {kRows, kColumns}},
                                         {.name = "b", .shape = {3}}})}}};
  const Made made(3, made_manifest({optimizer}));
  malloc_trim(0);  // what the test itself holds counts for the command's start
  for (const char* name : {"model.h5", "model.safetensors"}) {
    SCOPED_TRACE(name);
    const std::string output = made.root / name;
    const Outcome outcome = ration({"merge", made.root.path(), "-o", output, "--what", "all"});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_GT(std::filesystem::file_size(output), 2 * kRows * kColumns * sizeof(float));
    EXPECT_GT(outcome.peak_memory, 0U);
    EXPECT_LE(outcome.peak_memory, kMost);
    const auto file = ck::open_foreign(output);
    const int place = file->find("w");
    ASSERT_GE(place, 0);
    std::vector<std::byte> last(kColumns * sizeof(float));
    file->read(static_cast<std::size_t>(place), (kRows - 1) * kColumns, kColumns, last.data());
    EXPECT_EQ(last, values_at(DType::f32, 0, 0, (kRows - 1) * kColumns, kColumns));
  }
}

TEST(CheckpointCommands, BadUsageIsTwo) {
  const Made made(1);
  expect_error(ration({"merge", made.root.path(), "-o", made.root / "m.txt"}), 2, "must end in");
  expect_error(ration({"merge", made.root.path(), "-o", made.root / "no/m.h5"}), 2,
               "no such folder");
  expect_error(ration({"merge", made.root.path(), "-o", made.root / "m.h5", "--step", "3"}), 2,
               "no step 3");
  const Folder empty;
  for (const char* name : {"inspect", "verify"})
    expect_error(ration({name, empty.path()}), 2, "no checkpoint");
  expect_error(ration({"reshard", made.root.path(), "-o", empty.path(), "--world", "0"}), 2, "0");
}

TEST(CheckpointCommands, ADamagedCheckpointIsOne) {
  const Made made(2);
  flip(made.folder / ck::shard_name(1, 2), offset_in(made, 1));
  expect_error(ration({"merge", made.root.path(), "-o", made.root / "m.h5"}), 1,
               "rank-00001-of-00002.h5");
  const Outcome verify = ration({"verify", made.root.path()});
  EXPECT_EQ(verify.exit_code, 1);
  EXPECT_THAT(verify.out, testing::HasSubstr("rank-00001-of-00002.h5: "));
  const auto json = nlohmann::json::parse(ration({"verify", made.root.path(), "--json"}).out);
  EXPECT_EQ(json["steps"][0]["faults"].size(), 1u);
}

TEST(CheckpointCommands, VerifyAllSeesEveryStep) {
  const Folder root;
  save_made(root.path(), made_manifest({made_optimizer()}, 1), 2);
  save_made(root.path(), made_manifest({made_optimizer()}, 2), 2);
  flip(root / "step-00000001/manifest.json", 50);
  EXPECT_EQ(ration({"verify", root.path()}).exit_code, 0);
  EXPECT_EQ(ration({"verify", root.path(), "--all"}).exit_code, 1);
  EXPECT_EQ(ration({"verify", root.path(), "--step", "1"}).exit_code, 1);
  const Outcome inspect = ration({"inspect", root.path()});
  EXPECT_EQ(inspect.exit_code, 1);
  EXPECT_THAT(inspect.out, testing::HasSubstr("damaged"));
}

TEST(CheckpointCommands, InspectSaysWhatIsThere) {
  const Made made(3);
  const Outcome table = ration({"inspect", made.root.path(), "--parameters"});
  EXPECT_EQ(table.exit_code, 0);
  for (const char* word :
       {"world", "wpe/x", "[3, 4, 50]", "exp_avg_sq:f32", "frozen", "tied to wte"})
    EXPECT_THAT(table.out, testing::HasSubstr(word));
  const auto json = nlohmann::json::parse(
      ration({"inspect", made.folder.string(), "--parameters", "--json"}).out)["steps"][0];
  EXPECT_EQ(json["world"], 3);
  EXPECT_EQ(json["parameters"], 35 + 600 + 1430 + 11 + 1 + 7209);
  EXPECT_EQ(json["optimizers"][0]["units"][1]["parameters"][0]["name"], "weight");
}

TEST(CheckpointCommands, ReshardImportAndDiff) {
  const Made made(3);
  const Folder other;
  EXPECT_EQ(ration({"reshard", made.root.path(), "-o", other.path(), "--world", "5"}).exit_code, 0);
  const Outcome same = ration({"diff", made.root.path(), other.path()});
  EXPECT_EQ(same.exit_code, 0) << same.out;
  EXPECT_THAT(same.out, testing::HasSubstr("the same"));
  const std::string file = made.root / "m.safetensors";
  ASSERT_EQ(ration({"merge", made.root.path(), "-o", file}).exit_code, 0);
  const Folder imported;
  EXPECT_EQ(ration({"import", file, "-o", imported.path(), "--step", "3"}).exit_code, 0);
  const Outcome different = ration({"diff", made.root.path(), imported.path(), "--json"});
  EXPECT_EQ(different.exit_code, 1);
  for (const auto& d : nlohmann::json::parse(different.out)["differences"]) {
    EXPECT_NE(d["what"], "parameter");
    if (d["what"] == "weights") {
      EXPECT_FALSE(d["name"] == "weight");
    }
  }
}

// The files as the Python world reads them.
TEST(CheckpointCommands, PythonReadsTheSame) {
  const char* python = std::getenv("RATION_TEST_PYTHON");
  if (!python) python = RATION_TEST_PYTHON;
  if (*python == '\0') GTEST_SKIP() << "no RATION_TEST_PYTHON with h5py, safetensors and torch";
  const Made made(5);
  for (const char* name : {"m.h5", "m.safetensors"}) {
    ASSERT_EQ(
        ration({"merge", made.root.path(), "--what", "all", "-o", made.root / name}).exit_code, 0);
  }
  ASSERT_EQ(ration({"merge", made.root.path(), "--what", "all", "--view", "-o", made.root / "v.h5"})
                .exit_code,
            0);
  const Outcome outcome = run_command({python, RATION_TEST_SCRIPT, made.root / "m.safetensors",
                                       made.root / "m.h5", made.root / "v.h5"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, testing::HasSubstr("17 tensors"));
}

}  // namespace
}  // namespace ration::test
