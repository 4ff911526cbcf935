// Weights of other programs become a checkpoint; HDF5 files that lead elsewhere do not.

#include <fstream>

#include <hdf5.h>

#include "checkpoint/hdf5_object.hpp"
#include "checkpoint/merge.hpp"
#include "checkpoint/reshard.hpp"
#include "made.hpp"
#include "resume/saved.hpp"

namespace ration::test {
namespace {

TEST(Import, MergedFilesComeBack) {
  const Made made(3);
  for (const char* name : {"m.safetensors", "m.h5"}) {
    SCOPED_TRACE(name);
    ck::merge(made.folder, made.manifest, made.root / name, {});
    const Folder output;
    const ck::StepFolder folder =
        ck::import(*ck::open_foreign(made.root / name), output.path(), 0, "optimizer");
    const ck::Manifest manifest = ck::read_manifest(folder.path);
    EXPECT_EQ(manifest.shards.size(), 1u);
    ck::merge(folder.path, manifest, made.root / "again.safetensors", {});
    const auto file = ck::open_foreign(made.root / "again.safetensors");
    for (const char* p : {"wte", "wpe/x", "weight", "bias", "scale", "empty", "table"}) {
      const Made::Expected expected = made.expected(p, "parameter");
      const int place = file->find(p);
      ASSERT_GE(place, 0) << p;
      const ck::ForeignTensor& tensor = file->tensors()[static_cast<std::size_t>(place)];
      EXPECT_EQ(tensor.shape, expected.shape);
      EXPECT_EQ(tensor.dtype, expected.dtype);
      std::vector<std::byte> bytes(expected.bytes.size());
      file->read(static_cast<std::size_t>(place), 0, tensor.count, bytes.data());
      EXPECT_EQ(bytes, expected.bytes) << p;
    }
  }
}

TEST(Import, StartsATraining) {
  const Folder root;
  const Snapshot saved = train_and_save(3, 3, resumable(2), root.path());
  const auto step = ck::list_steps(root.path()).back().path;
  ck::merge(step, ck::read_manifest(step), root / "m.safetensors", {});
  const Folder imported;
  ck::import(*ck::open_foreign(root / "m.safetensors"), imported.path(), 0, "optimizer");
  for (const bool parameters_only : {true, false}) {
    with_loaded(2, resumable(3), imported.path(),
                [&](TinyTrainer& trainer, const LoadReport&) {
                  for (const auto& [name, bits] : snapshot_of(trainer.optimizer()).bits) {
                    if (!name.ends_with("/parameter")) continue;
                    EXPECT_EQ(bits, saved.bits.at(name)) << name;
                  }
                  trainer.step();
                },
                {.parameters_only = parameters_only});
  }
}

// A file with one dataset "x", made as the test says.
class Hdf5 {
 public:
  using Handle = ck::hdf5::Object;
  explicit Hdf5(const std::filesystem::path& path)
      : path_(path), file_(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT)) {}
  [[nodiscard]] hid_t id() const { return file_; }
  void dataset(const char* name, hid_t type, std::vector<hsize_t> shape, hid_t how = H5P_DEFAULT,
               const void* values = nullptr) {
    const Handle space(H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr));
    const Handle set(H5Dcreate2(file_, name, type, space, H5P_DEFAULT, how, H5P_DEFAULT));
    ASSERT_GE(set, 0);
    if (values) {
      ASSERT_GE(H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values), 0);
    }
  }
  std::string refused() {
    file_.close();
    return thrown<CorruptCheckpoint>([&] { ck::open_foreign(path_); });
  }
  std::unique_ptr<ck::ForeignFile> open() {
    file_.close();
    return ck::open_foreign(path_);
  }
  Handle how{H5Pcreate(H5P_DATASET_CREATE)};

 private:
  std::filesystem::path path_;
  Handle file_;
};

std::vector<float> numbers(std::size_t n) {
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<float>(i);
  return values;
}

TEST(Import, ChunkedAndPackedDatasetsAreReadInPieces) {
  const Folder folder;
  Hdf5 file(folder / "x.h5");
  const hsize_t chunk[] = {3, 2, 4};
  H5Pset_chunk(file.how, 3, chunk);
  H5Pset_shuffle(file.how);
  H5Pset_deflate(file.how, 4);
  const std::vector<float> values = numbers(7 * 5 * 9);
  file.dataset("x", H5T_IEEE_F32LE, {7, 5, 9}, file.how, values.data());
  const auto open = file.open();
  for (std::int64_t first = 0; first < 315; first += 4) {
    for (const std::int64_t count : {1, 3, 50, 200}) {
      const std::int64_t n = std::min(count, 315 - first);
      std::vector<float> seen(static_cast<std::size_t>(n));
      open->read(0, first, n, reinterpret_cast<std::byte*>(seen.data()));
      ASSERT_TRUE(std::equal(seen.begin(), seen.end(), values.begin() + first));
    }
  }
}

TEST(Import, FilesThatLeadElsewhereAreRefused) {
  const Folder folder;
  const std::vector<float> values = numbers(4);
  {
    Hdf5 other(folder / "other.h5");
    other.dataset("x", H5T_IEEE_F32LE, {4}, H5P_DEFAULT, values.data());
  }
  {
    Hdf5 file(folder / "external_storage.h5");
    H5Pset_external(file.how, "/etc/passwd", 0, 16);
    file.dataset("x", H5T_IEEE_F32LE, {4}, file.how);
    EXPECT_THAT(file.refused(), testing::HasSubstr("another file"));
  }
  {
    Hdf5 file(folder / "external_link.h5");
    H5Lcreate_external("other.h5", "/x", file.id(), "x", H5P_DEFAULT, H5P_DEFAULT);
    EXPECT_THAT(file.refused(), testing::HasSubstr("another file"));
  }
  {
    Hdf5 file(folder / "soft.h5");
    H5Lcreate_soft("/y/z", file.id(), "x", H5P_DEFAULT, H5P_DEFAULT);
    EXPECT_THAT(file.refused(), testing::HasSubstr("soft link"));
  }
  {
    Hdf5 file(folder / "virtual.h5");
    const hsize_t four = 4;
    const Hdf5::Handle space(H5Screate_simple(1, &four, nullptr));
    H5Pset_virtual(file.how, space, "other.h5", "/x", space);
    file.dataset("x", H5T_IEEE_F32LE, {4}, file.how);
    EXPECT_THAT(file.refused(), testing::HasSubstr("virtual"));
  }
}

TEST(Import, ClaimsWithoutDataAreRefused) {
  const Folder folder;
  {
    Hdf5 file(folder / "a.h5");
    file.dataset("x", H5T_IEEE_F32LE, {hsize_t{1} << 58});
    EXPECT_THAT(file.refused(), testing::HasSubstr("not wholly in the file"));
  }
  {
    Hdf5 file(folder / "b.h5");
    const hsize_t chunk[] = {2};
    H5Pset_chunk(file.how, 1, chunk);
    const std::vector<float> values = numbers(4);
    file.dataset("x", H5T_IEEE_F32LE, {8}, file.how);
    EXPECT_THAT(file.refused(), testing::HasSubstr("not wholly in the file"));
  }
  {
    Hdf5 file(folder / "c.h5");
    const hsize_t chunk[] = {hsize_t{1} << 25};
    H5Pset_chunk(file.how, 1, chunk);
    H5Pset_deflate(file.how, 1);
    file.dataset("x", H5T_IEEE_F32LE, {hsize_t{1} << 25}, file.how, numbers(1 << 25).data());
    EXPECT_THAT(file.refused(), testing::HasSubstr("chunks that are too large"));
  }
  {
    Hdf5 file(folder / "d.h5");
    file.dataset("x", H5T_IEEE_F32LE, {1 << 20}, H5P_DEFAULT, numbers(1 << 20).data());
    file.open();
    std::filesystem::resize_file(folder / "d.h5", 100'000);
    EXPECT_THROW(ck::open_foreign(folder / "d.h5"), CorruptCheckpoint);
  }
}

TEST(Import, OtherTypesAndCirclesAreRefused) {
  const Folder folder;
  {
    Hdf5 file(folder / "a.h5");
    const double values[] = {1, 2};
    file.dataset("x", H5T_IEEE_F64LE, {2}, H5P_DEFAULT, values);
    EXPECT_THAT(thrown<InvalidArgument>([&] { file.open(); }), testing::HasSubstr("\"x\""));
  }
  {
    Hdf5 file(folder / "b.h5");
    Hdf5::Handle group(H5Gcreate2(file.id(), "g", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    H5Lcreate_hard(file.id(), "/", group, "up", H5P_DEFAULT, H5P_DEFAULT);
    group.close();
    EXPECT_THAT(file.refused(), testing::HasSubstr("second name"));
  }
  std::ofstream(folder / "c") << "neither of them";
  EXPECT_THROW(ck::open_foreign(folder / "c"), InvalidArgument);
  EXPECT_THROW(ck::open_foreign(folder / "missing"), IoError);
}

}  // namespace
}  // namespace ration::test
