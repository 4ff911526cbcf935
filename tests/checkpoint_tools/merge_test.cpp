// One file out of all shards.

#include "checkpoint/merge.hpp"

#include <cmath>
#include <fstream>

#include <hdf5.h>
#include <nlohmann/json.hpp>

#include "checkpoint/safetensors.hpp"
#include "made.hpp"
#include "support/throws.hpp"

namespace ration::test {
namespace {

std::vector<std::byte> whole(const ck::ForeignFile& file, const std::string& name) {
  const int place = file.find(name);
  EXPECT_GE(place, 0) << name;
  if (place < 0) return {};
  const ck::ForeignTensor& tensor = file.tensors()[static_cast<std::size_t>(place)];
  std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.count) * size_of(tensor.dtype));
  file.read(static_cast<std::size_t>(place), 0, tensor.count, bytes.data());
  return bytes;
}

void expect_tensor(const ck::ForeignFile& file, const std::string& name,
                   const Made::Expected& expected) {
  SCOPED_TRACE(name);
  const int place = file.find(name);
  ASSERT_GE(place, 0);
  const ck::ForeignTensor& tensor = file.tensors()[static_cast<std::size_t>(place)];
  EXPECT_EQ(tensor.dtype, expected.dtype);
  EXPECT_EQ(tensor.shape, expected.shape);
  EXPECT_EQ(whole(file, name), expected.bytes);
}

constexpr const char* kParameters[] = {"wte", "wpe/x", "weight", "bias", "scale", "empty", "table"};
constexpr const char* kKinds[] = {"model.h5", "model.safetensors"};

// Shards in numeric order, not 1, 10, 11, 2.
TEST(Merge, EveryParameterOfAnyNumberOfRanks) {
  for (const int world : {1, 3, 12}) {
    const Made made(world);
    for (const char* name : kKinds) {
      SCOPED_TRACE(fmt::format("{} ranks, {}", world, name));
      const auto output = made.root / name;
      const ck::MergeReport report = ck::merge(made.folder, made.manifest, output, {});
      EXPECT_EQ(report.files, std::vector{output.string()});
      EXPECT_EQ(report.tensors, std::size(kParameters));
      const auto file = ck::open_foreign(output);
      for (const char* p : kParameters) expect_tensor(*file, p, made.expected(p, "parameter"));
    }
  }
}

TEST(Merge, ManyBlocksAndBuffers) {
  ck::OptimizerEntry optimizer = made_optimizer();
  optimizer.units = {{.name = "wide",
                      .flats = {flat_of(DType::f32, true, {{"parameter"}},
                                        {{.name = "small", .shape = {33}},
                                         {.name = "large", .shape = {3001, 4001}},
                                         {.name = "other", .shape = {1001, 1003}}})}}};
  const Made made(3, made_manifest({optimizer}));
  for (const char* name : kKinds) {
    ck::merge(made.folder, made.manifest, made.root / name, {});
    const auto file = ck::open_foreign(made.root / name);
    for (const char* p : {"small", "large", "other"})
      expect_tensor(*file, p, made.expected(p, "parameter"));
  }
}

TEST(Merge, Fp32ComesFromMasters) {
  const Made made(4);
  for (const char* name : kKinds) {
    ck::merge(made.folder, made.manifest, made.root / name, {.tensors = {.dtype = DType::f32}});
    const auto file = ck::open_foreign(made.root / name);
    expect_tensor(*file, "wte", made.expected("wte", "master"));
    expect_tensor(*file, "weight", made.expected("weight", "parameter"));
    Made::Expected table = made.expected("table", "parameter");
    std::vector<std::byte> widened(table.bytes.size() * 2);
    for (std::size_t i = 0; i < table.bytes.size() / 2; ++i) {
      f16 half;
      std::memcpy(&half, table.bytes.data() + i * 2, 2);
      const auto value = static_cast<float>(half);
      std::memcpy(widened.data() + i * 4, &value, 4);
    }
    EXPECT_EQ(whole(*file, "table"), widened);
  }
}

// The nearest of the type's numbers by float64, the even one of two.
std::uint16_t rounded(double value, int mantissa_bits, int least_exponent, int most_exponent) {
  const int exponent_bits = 15 - mantissa_bits;
  const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const double size = std::fabs(value);
  const int exponent = size == 0 ? least_exponent : std::max(std::ilogb(size), least_exponent);
  const double unit = std::ldexp(1.0, exponent - mantissa_bits);
  const double units = std::nearbyint(size / unit);  // ties to even
  if (units * unit >= std::ldexp(1.0, most_exponent + 1)) {
    return static_cast<std::uint16_t>(sign | (((1 << exponent_bits) - 1) << mantissa_bits));
  }
  const auto field = static_cast<std::uint64_t>(units) +
                     (static_cast<std::uint64_t>(exponent - least_exponent) << mantissa_bits);
  return static_cast<std::uint16_t>(sign | field);
}

TEST(Merge, CastsRoundToNearestEven) {
  const Made made(2);
  struct Case {
    DType dtype;
    int mantissa, least, most;
  };
  for (const Case& c : {Case{DType::bf16, 7, -126, 127}, Case{DType::f16, 10, -14, 15}}) {
    ck::merge(made.folder, made.manifest, made.root / "m.safetensors",
              {.tensors = {.dtype = c.dtype}});
    const auto file = ck::open_foreign(made.root / "m.safetensors");
    for (const char* name : {"weight", "wte", "table"}) {
      const Made::Expected stored = made.expected(name, "parameter");
      const std::vector<std::byte> merged = whole(*file, name);
      const std::size_t element = size_of(stored.dtype);
      ASSERT_EQ(merged.size() / 2, stored.bytes.size() / element);
      for (std::size_t i = 0; i < merged.size() / 2; ++i) {
        std::uint32_t bits = 0;
        std::memcpy(&bits, stored.bytes.data() + i * element, element);
        double value = std::bit_cast<float>(bits);
        if (stored.dtype == DType::bf16) value = std::bit_cast<float>(bits << 16);
        if (stored.dtype == DType::f16) {
          f16 half;
          half.bits = static_cast<std::uint16_t>(bits);
          value = static_cast<float>(half);
        }
        std::uint16_t got = 0;
        std::memcpy(&got, merged.data() + i * 2, 2);
        ASSERT_EQ(got, rounded(value, c.mantissa, c.least, c.most))
            << name << " " << i << ": " << value << " to " << name_of(c.dtype);
      }
    }
  }
}

TEST(Merge, AllBringsStates) {
  const Made made(4);
  for (const char* name : kKinds) {
    ck::merge(made.folder, made.manifest, made.root / name, {.tensors = {.states = true}});
    const auto file = ck::open_foreign(made.root / name);
    expect_tensor(*file, "wte", made.expected("wte", "parameter"));
    for (const char* kind : {"master", "exp_avg", "exp_avg_sq"})
      expect_tensor(*file, fmt::format("wte.{}", kind), made.expected("wte", kind));
    expect_tensor(*file, "weight.exp_avg", made.expected("weight", "exp_avg"));
    EXPECT_EQ(file->find("table.exp_avg"), -1);
  }
}

TEST(Merge, SeveralOptimizersArePrefixes) {
  const Made made(3, made_manifest({made_optimizer("actor"), made_optimizer("critic")}));
  for (const char* name : kKinds) {
    ck::merge(made.folder, made.manifest, made.root / name, {});
    const auto file = ck::open_foreign(made.root / name);
    expect_tensor(*file, "actor/wte", made.expected("wte", "parameter", 0));
    expect_tensor(*file, "critic/wte", made.expected("wte", "parameter", 1));
  }
}

TEST(Merge, TiedNames) {
  const Made made(2);
  ck::merge(made.folder, made.manifest, made.root / "m.h5", {});
  expect_tensor(*ck::open_foreign(made.root / "m.h5"), "lm_head",
                made.expected("wte", "parameter"));
  ck::merge(made.folder, made.manifest, made.root / "m.safetensors", {});
  std::ifstream file(made.root / "m.safetensors", std::ios::binary);
  std::uint64_t length = 0;
  file.read(reinterpret_cast<char*>(&length), 8);
  std::string text(length, '\0');
  file.read(text.data(), static_cast<std::streamsize>(length));
  const auto header = nlohmann::json::parse(text);
  EXPECT_EQ(header["__metadata__"]["ration.tied"], R"({"lm_head":"wte"})");
  EXPECT_FALSE(header.contains("lm_head"));
  EXPECT_EQ((8 + length) % 8, 0u);
}

TEST(Merge, PiecesOfAGivenSizeWithAnIndex) {
  const Made made(3);
  const ck::MergeReport report =
      ck::merge(made.folder, made.manifest, made.root / "m.safetensors", {.largest_file = 6000});
  ASSERT_EQ(report.files.size(), 4u);  // wte and wpe/x; weight; bias ... ; table alone
  EXPECT_TRUE(report.files.back().ends_with("m.safetensors.index.json"));
  std::ifstream text(report.files.back());
  const auto index = nlohmann::json::parse(text);
  EXPECT_EQ(index["metadata"]["total_size"], report.bytes);
  for (const char* name : kParameters) {
    const auto file = ck::open_foreign(made.root / index["weight_map"][name].get<std::string>());
    expect_tensor(*file, name, made.expected(name, "parameter"));
  }
  EXPECT_THROW(ck::merge(made.folder, made.manifest, made.root / "m.h5", {.largest_file = 6000}),
               InvalidArgument);
}

TEST(Merge, ADamagedShardLeavesNothing) {
  const Made made(3);
  flip(made.folder / ck::shard_name(1, 3), offset_in(made, 1) + 3);
  for (const char* name : kKinds) {
    std::ofstream(made.root / name) << "former";
    const auto before = names_in(made.root.path());
    EXPECT_THAT(thrown<CorruptCheckpoint>(
                    [&] { ck::merge(made.folder, made.manifest, made.root / name, {}); }),
                testing::HasSubstr("rank-00001-of-00003.h5"));
    EXPECT_EQ(names_in(made.root.path()), before);
    EXPECT_EQ(std::filesystem::file_size(made.root / name), 6u);
  }
}

TEST(Merge, NamesThatDoNotFitAreRefused) {
  ck::OptimizerEntry optimizer = made_optimizer();
  optimizer.units[0].flats[0].parameters[1].name = "wte/below";
  const Made made(1, made_manifest({optimizer}));
  EXPECT_THAT(thrown<InvalidArgument>(
                  [&] { ck::merge(made.folder, made.manifest, made.root / "m.h5", {}); }),
              testing::HasSubstr("\"wte/below\""));
  optimizer.units[0].flats[0].parameters[1].name = "wte.exp_avg";
  const Made twice(1, made_manifest({optimizer}));
  EXPECT_THAT(thrown<InvalidArgument>([&] {
                ck::merge(twice.folder, twice.manifest, twice.root / "m.h5",
                          {.tensors = {.states = true}});
              }),
              testing::HasSubstr("\"wte.exp_avg\""));
  EXPECT_EQ(names_in(twice.root.path()).size(), names_in(made.root.path()).size());
}

// By HDF5 alone, as any other program reads it.
std::vector<std::byte> read_by_hdf5(const std::filesystem::path& path, const std::string& name,
                                    std::size_t bytes) {
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  const hid_t set = H5Dopen2(file, name.c_str(), H5P_DEFAULT);
  const hid_t type = H5Dget_type(set);
  std::vector<std::byte> values(bytes);
  EXPECT_GE(H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), 0) << name;
  H5Tclose(type);
  H5Dclose(set);
  H5Fclose(file);
  return values;
}

TEST(View, ShowsTheShards) {
  for (const int world : {1, 5, 12}) {
    SCOPED_TRACE(world);
    const Made made(world);
    const auto view = made.root / "view.h5";
    ck::merge_view(made.folder, made.manifest, view, {.states = true});
    for (const char* name : {"wte", "wpe/x", "weight", "bias", "scale", "table", "lm_head"}) {
      const auto expected =
          made.expected(name == std::string("lm_head") ? "wte" : name, "parameter");
      EXPECT_EQ(read_by_hdf5(view, name, expected.bytes.size()), expected.bytes) << name;
    }
    const auto moment = made.expected("wpe/x", "exp_avg_sq");
    EXPECT_EQ(read_by_hdf5(view, "wpe/x.exp_avg_sq", moment.bytes.size()), moment.bytes);
  }
}

TEST(View, MovesWithItsFolder) {
  const Made made(3);
  ck::merge_view(made.folder, made.manifest, made.root / "view.h5", {});
  const Folder other;
  std::filesystem::rename(made.root.path(), other / "moved");
  const auto expected = made.expected("weight", "parameter");
  EXPECT_EQ(read_by_hdf5(other / "moved/view.h5", "weight", expected.bytes.size()), expected.bytes);
}

TEST(View, AMissingShardIsNaN) {
  const Made made(3);
  const auto view = made.root / "view.h5";
  ck::merge_view(made.folder, made.manifest, view, {});
  std::filesystem::remove(made.folder / ck::shard_name(2, 3));
  const auto expected = made.expected("weight", "parameter");
  const auto seen = read_by_hdf5(view, "weight", expected.bytes.size());
  const ck::FlatEntry& flat = made.manifest.optimizers[0].units[1].flats[0];
  const auto kept = static_cast<std::size_t>(2 * ck::shard_length(flat, 3));
  EXPECT_TRUE(std::equal(seen.begin(), seen.begin() + kept * 4, expected.bytes.begin()));
  for (std::size_t i = kept; i < 1430; ++i) {
    float value = 0;
    std::memcpy(&value, seen.data() + i * 4, 4);
    ASSERT_TRUE(std::isnan(value)) << i;
  }
}

TEST(View, IsRefusedOverDamagedShardsAndForOtherTypes) {
  const Made made(2);
  EXPECT_THROW(
      ck::merge_view(made.folder, made.manifest, made.root / "v.h5", {.dtype = DType::f16}),
      InvalidArgument);
  std::filesystem::resize_file(made.folder / ck::shard_name(1, 2), 5000);
  EXPECT_THAT(thrown<CorruptCheckpoint>(
                  [&] { ck::merge_view(made.folder, made.manifest, made.root / "v.h5", {}); }),
              testing::HasSubstr("rank-00001-of-00002.h5"));
  EXPECT_EQ(names_in(made.root.path()).size(), 1u);
}

}  // namespace
}  // namespace ration::test
