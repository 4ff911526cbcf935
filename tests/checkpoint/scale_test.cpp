// A checkpoint of a thousand ranks is read by one in little time and memory.

#include <chrono>
#include <functional>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <xxhash.h>

#include "checkpoint/load.hpp"
#include "checkpoint/shard_table.hpp"
#include "core/align.hpp"
#include "cost.hpp"
#include "io/file.hpp"
#include "support/folder.hpp"

namespace ration::test {
namespace {

using checkpoint::Manifest;

constexpr int kWorld = 1024;
constexpr int kUnits = 130;

/// As large as Llama 70B: 80 layers' worth of elements in 130 units of 9 parameters, 4 kinds each.
checkpoint::OptimizerEntry large() {
  checkpoint::OptimizerEntry optimizer{.name = "optimizer", .stage = 3, .steps = 9};
  optimizer.groups = {{.rule = "AdamW", .options = {{"learning_rate", 1e-4}}}};
  for (int u = 0; u < kUnits; ++u) {
    checkpoint::FlatEntry flat{.dtype = DType::bf16};
    flat.kinds = {{"parameter", DType::bf16}, {"master"}, {"exp_avg"}, {"exp_avg_sq"}};
    for (int p = 0; p < 9; ++p) {
      flat.length = round_up(flat.length, kAlignElements);
      flat.parameters.push_back({.name = fmt::format("layers.{}.weight.{}", u, p),
                                 .shape = {8192, 7168},
                                 .offset = flat.length});
      flat.length += flat.parameters.back().count();
    }
    optimizer.units.push_back({.name = fmt::format("layers.{}", u), .flats = {std::move(flat)}});
  }
  return optimizer;
}

/// The file of a rank with tables that are right and holes for the rest.
checkpoint::ShardEntry write_sparse(const std::filesystem::path& folder, const Manifest& manifest,
                                    int rank) {
  std::vector<checkpoint::PlacedSlice> slices;
  std::uint64_t place = 4096;
  std::uint64_t blocks = 0;
  const auto& units = manifest.optimizers[0].units;
  for (int u = 0; u < kUnits; ++u) {
    const auto& flat = units[static_cast<std::size_t>(u)].flats[0];
    const std::int64_t shard = round_up((flat.length + kWorld - 1) / kWorld, kAlignElements);
    const std::int64_t start = std::min(flat.length, shard * rank);
    for (int kind = 0; kind < 4; ++kind) {
      checkpoint::PlacedSlice slice;
      slice.flat = u;
      slice.kind = kind;
      slice.start = start;
      slice.length = std::min(flat.length, start + shard) - start;
      if (slice.length == 0) continue;
      slice.dtype = flat.kinds[static_cast<std::size_t>(kind)].dtype;
      slice.offset = place;
      slice.first_checksum = blocks;
      blocks += checkpoint::blocks_of(slice.bytes());
      place = round_up(place + slice.bytes(), std::uint64_t{4096});
      slices.push_back(slice);
    }
  }
  const std::vector<std::byte> rows = checkpoint::to_rows(slices);
  const std::vector<std::byte> sums(blocks * 8);
  checkpoint::ShardEntry entry{.file = checkpoint::shard_name(rank, kWorld)};
  entry.index = {place, rows.size(), XXH3_64bits(rows.data(), rows.size())};
  entry.checksums = {place + rows.size(), sums.size(), XXH3_64bits(sums.data(), sums.size())};
  entry.size = place + rows.size() + sums.size();
  const io::File file(folder / entry.file, io::Access::write_new);
  file.write(entry.index.offset, rows);
  file.write(entry.checksums.offset, sums);
  entry.rest = checkpoint::checksum_of_rest(file, slices, entry.index, entry.checksums);
  return entry;
}

/// What a rank of `world` wants of it, as the engine says it: its share of each flat, by parameter.
class Share : public checkpoint::LoadedPart {
 public:
  Share(const checkpoint::OptimizerEntry& optimizer, int rank, int world)
      : optimizer_(optimizer), rank_(rank), world_(world) {}
  [[nodiscard]] const checkpoint::OptimizerEntry& describe() const override { return optimizer_; }
  [[nodiscard]] std::vector<checkpoint::WantedPiece> wanted() const override {
    std::vector<checkpoint::WantedPiece> pieces;
    for (const auto& unit : optimizer_.units) {
      const auto& flat = unit.flats[0];
      const std::int64_t shard = round_up((flat.length + world_ - 1) / world_, kAlignElements);
      const std::int64_t begin = shard * rank_;
      const std::int64_t end = std::min(flat.length, begin + shard);
      for (const auto& p : flat.parameters) {
        const std::int64_t first = std::max(begin, p.offset);
        const std::int64_t last = std::min(end, p.offset + p.count());
        if (first >= last) continue;
        pieces.push_back({.parameter = p.name,
                          .first = first - p.offset,
                          .count = last - first,
                          .states = {"exp_avg", "exp_avg_sq"}});
      }
    }
    return pieces;
  }
  void write(std::size_t, int, std::int64_t, std::int64_t, DType, const std::byte*) override {}

 private:
  const checkpoint::OptimizerEntry& optimizer_;
  int rank_, world_;
};

class Scale : public testing::Test {
 protected:
  void SetUp() override {
    Manifest manifest;
    manifest.uuid = "0123456789abcdef0123456789abcdef";
    manifest.step = 9;
    manifest.optimizers = {large()};
    for (int rank = 0; rank < kWorld; ++rank)
      manifest.shards.push_back(write_sparse(folder(), manifest, rank));
    io::replace_file(folder() / checkpoint::kManifestName, to_text(manifest));
  }
  [[nodiscard]] std::filesystem::path folder() const {
    const std::filesystem::path step = root_ / "step-00000009";
    std::filesystem::create_directories(step);
    return step;
  }

 private:
  Folder root_;
};

// The choice of a step, the plan of one rank and the tables of the files it meets; no data.
TEST_F(Scale, AThousandRanksArePlannedForInSeconds) {
  const auto text = io::read_file(folder() / checkpoint::kManifestName, checkpoint::kManifestLimit);
  RecordProperty("manifest_bytes", static_cast<int>(text.size()));
  const auto report = [&](const char* what, const Cost& cost) {
    fmt::print("{}: {:.2f} s, {} MiB\n", what, cost.seconds, cost.peak >> 20);
    EXPECT_GE(cost.seconds, 0) << what;
    EXPECT_LT(cost.seconds, 10) << what;
    EXPECT_LT(cost.peak, std::size_t{128} << 20) << what;
  };
  fmt::print("manifest of {} bytes\n", text.size());
  const auto planned = [&](int rank, int world) {
    const checkpoint::Found found = checkpoint::find(folder(), {});
    checkpoint::Opened opened{.folder = found.folder,
                              .manifest = checkpoint::parse_manifest(found.text, "manifest.json")};
    const auto optimizer = opened.manifest.optimizers[0];
    Share share(optimizer, rank, world);
    checkpoint::LoadedPart* const parts[] = {&share};
    const checkpoint::LoadPlan plan(opened, parts, {});
    // A world of one meets all files, the same world one.
    for (int shard = world == 1 ? 0 : rank; shard < (world == 1 ? kWorld : rank + 1); ++shard)
      checkpoint::ShardReader(opened.folder, opened.manifest, shard).check_rest();
  };
  report("rank 1000 of 1024", cost_of([&] { planned(1000, kWorld); }));
  report("the only rank", cost_of([&] { planned(0, 1); }));
}

}  // namespace
}  // namespace ration::test
